"""Calls that take several round trips: the server asks, the client answers and calls again.

Rules (basic/patterns/mrtr of the stateless era):

- A retry is the original call with `inputResponses` and `requestState`, under a new id. The state is echoed byte for
  byte, and only when it was given; both touch no other call.
- Retries are bounded. A `resultType` that is not known is invalid; an absent one means complete.
- Where a revision sends the user to a URL by an error, the call is made again when he has been there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ..jsonrpc.errors import BadAnswer, MethodNotFound, RpcError
from . import nulls
from .answering import ELICIT, ROOTS, SAMPLE, Answering
from .encoding import decode
from .params import COMPLETE, INPUT_REQUIRED
from .revisions import Revision

T = TypeVar("T")

ROUNDS = 10
"""Round trips of one call in which a server may ask."""
QUESTIONS = frozenset({ELICIT, SAMPLE, ROOTS})

Trip: TypeAlias = Callable[[bytes], Awaitable[Raw]]
"""One round trip with these params."""


class _Question(Struct):
    """A member of `inputRequests`, its params as they came."""

    method: str
    params: Raw | UnsetType = UNSET


class _Head(Struct, rename="camel"):
    """What says whether a result is one."""

    result_type: str = COMPLETE
    input_requests: dict[str, _Question] | UnsetType = UNSET
    request_state: Raw | UnsetType = UNSET


def head(method: str, raw: Raw) -> _Head:
    """BadAnswer when a result is no object, or of a type that is not known."""
    try:
        found = decode(raw, _Head)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadAnswer(f"{method}: the result cannot be read: {error}") from error
    # "A `resultType` of any value unrecognized by the client MUST be considered invalid" (basic/index)
    if found.result_type not in (COMPLETE, INPUT_REQUIRED):
        raise BadAnswer(f"{method}: resultType {found.result_type!r} is not known")
    return found


def read(method: str, raw: Raw, kind: type[T]) -> T:
    """A result. BadAnswer when it does not fit."""
    try:
        return nulls.decode(raw, kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadAnswer(f"{method}: the result does not fit: {error}") from error


def complete_result(method: str, raw: Raw, kind: type[Any]) -> Any:
    """A result of a method that asks nothing."""
    if head(method, raw).result_type != COMPLETE:
        # "Servers MUST NOT send `InputRequiredResult` responses on any other client requests" (basic/patterns/mrtr)
        raise BadAnswer(f"{method}: the server must not ask here")
    return read(method, raw, kind)


async def answered(
    method: str, raw: Raw, body: bytes, trip: Trip, answering: Answering, revision: Revision, rounds: int
) -> tuple[Raw, bool]:
    """The complete result that follows from this first one, and whether questions were asked on the way.

    Raises BadAnswer for a server that asks wrongly or without end, Declined when a question was turned down,
    LocalError for answers of ours that do not fit, and what a round trip raises.
    """
    found = head(method, raw)
    left = rounds
    while found.result_type == INPUT_REQUIRED:
        if not left:
            raise BadAnswer(f"{method}: the server still asks after {rounds} rounds")
        left -= 1
        raw = await trip(await _retry(method, found, body, answering, revision))
        found = head(method, raw)
    return raw, left != rounds


async def _retry(method: str, found: _Head, body: bytes, answering: Answering, revision: Revision) -> bytes:
    """The params of the next round trip."""
    if found.input_requests is UNSET and found.request_state is UNSET:
        # "Servers MUST include at least one of `inputRequests` or `requestState`"
        raise BadAnswer(f"{method}: input_required without inputRequests and without requestState")
    state = found.request_state
    if state is not UNSET and bytes(state)[:1] != b'"':
        raise BadAnswer(f"{method}: requestState is no string")
    parts = [body[1:-1]] if len(body) > 2 else []
    if found.input_requests is not UNSET:
        answers = {
            key: Raw(await _answer(method, question, answering, revision))
            for key, question in found.input_requests.items()
        }
        parts.append(b'"inputResponses":' + msgspec.json.encode(answers))
    if state is not UNSET:
        # "the client MUST echo back the exact value of that field"
        parts.append(b'"requestState":' + bytes(state))
    return b"{" + b",".join(parts) + b"}"


async def _answer(method: str, question: _Question, answering: Answering, revision: Revision) -> bytes:
    if question.method not in QUESTIONS:
        raise BadAnswer(f"{method}: inputRequests has {question.method!r}, which no server may ask")
    try:
        return await answering.answer(question.method, question.params, revision)
    except MethodNotFound as error:
        raise BadAnswer(f"{method}: the server asks for {question.method}, which was not declared") from error
    except RpcError as error:
        if error.remote:
            raise
        raise BadAnswer(f"{method}: the server asks wrongly: {error.message}") from error


class Errands:
    """Where users were sent by URL, until the server says that they are done (client/elicitation)."""

    def __init__(self) -> None:
        self._open: dict[str, asyncio.Future[None]] = {}

    def done(self, id: str) -> None:
        """ "Clients MUST ignore notifications referencing unknown or already-completed IDs"."""
        future = self._open.get(id)
        if future is not None and not future.done():
            future.set_result(None)

    async def run(self, error: RpcError, answering: Answering, revision: Revision, patience: float) -> bool:
        """Send the user where a URL_ELICITATION_REQUIRED error says, and wait until he has been there. False when
        that cannot be done: he did not want to, the server says nothing more, or it makes no sense."""
        try:
            asked = msgspec.convert(error.data, _Required).elicitations
        except msgspec.ValidationError:
            return False
        ids = [one.get("elicitationId") for one in asked]
        if (
            not asked
            or not all(isinstance(id, str) for id in ids)
            or not all(one.get("mode") == "url" for one in asked)
        ):
            return False
        loop = asyncio.get_running_loop()
        mine = {id: self._open.setdefault(id, loop.create_future()) for id in ids if isinstance(id, str)}
        try:
            for one in asked:
                answer = await answering.answer(ELICIT, Raw(msgspec.json.encode(one)), revision)
                if msgspec.json.decode(answer).get("action") != "accept":
                    return False
            _, missing = await asyncio.wait(mine.values(), timeout=patience)
            return not missing
        except MethodNotFound:
            return False
        finally:
            for id in mine:
                self._open.pop(id, None)


class _Required(Struct):
    elicitations: list[dict[str, Any]]
