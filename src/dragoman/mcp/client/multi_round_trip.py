"""Calls that need several round trips: the server asks, the client answers and calls again.

Rules (basic/patterns/mrtr of the stateless era):

- A retry is the original call with `inputResponses` and `requestState`, under a new id. The state is echoed byte for
  byte, and only in the retry of the call that got it.
- Retries are bounded. An unknown `resultType` is invalid; an absent one means complete.
- If a revision sends the user to a URL by an error, the call is made again after the URL was opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...jsonrpc.errors import BadAnswer, MethodNotFound, RpcError
from ...rpc.binding.results import to_json
from ..protocol import lenient
from ..protocol.encoding import decode
from ..protocol.params import COMPLETE, INPUT_REQUIRED
from ..protocol.revisions import Revision
from .handlers import ELICIT, ROOTS, SAMPLE, QuestionHandlers
from .salvage import salvage

T = TypeVar("T")

ROUNDS = 10
"""Round trips in which a server may ask, for each call."""
EARLY = 100
"""Completed elicitations that are remembered before an error has named them; the oldest is dropped first."""
LONGEST_ID = 200
"""Characters of such an elicitation's id that are remembered."""
QUESTIONS = frozenset({ELICIT, SAMPLE, ROOTS})

Trip: TypeAlias = Callable[[bytes], Awaitable[Raw]]
"""One round trip with these params."""


class _Question(Struct):
    """A member of `inputRequests`, its params as they came."""

    method: str
    params: Raw | UnsetType = UNSET


class _Head(Struct, rename="camel"):
    """The members of a result that tell whether it is complete."""

    result_type: str = COMPLETE
    input_requests: dict[str, _Question] | UnsetType = UNSET
    request_state: Raw | UnsetType = UNSET


def head(method: str, raw: Raw, known: Container[str] = ()) -> _Head:
    """Return the head of a result. Raises BadAnswer if that is not an object, or has an unknown type. `known`: the
    types that extensions add."""
    try:
        found = decode(raw, _Head)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadAnswer(f"{method}: the result cannot be read: {error}") from error
    # "A `resultType` of any value unrecognized by the client MUST be considered invalid" (basic/index)
    if found.result_type not in (COMPLETE, INPUT_REQUIRED) and found.result_type not in known:
        raise BadAnswer(f"{method}: resultType {found.result_type!r} is not known")
    return found


def read(method: str, raw: Raw, kind: type[T]) -> T:
    """Return a result as a type, without entries that do not fit. Raises BadAnswer if the result itself does not
    fit."""
    try:
        return lenient.decode(raw, kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        known = salvage(method, raw, kind)
        if known is not None:
            return known
        raise BadAnswer(f"{method}: the result does not fit: {error}") from error


def complete_result(method: str, raw: Raw, kind: type[Any]) -> Any:
    """Return a result of a method that may not ask. Raises BadAnswer if it asks, or does not fit."""
    if head(method, raw).result_type != COMPLETE:
        # "Servers MUST NOT send `InputRequiredResult` responses on any other client requests" (basic/patterns/mrtr)
        raise BadAnswer(f"{method}: the server must not ask here")
    return read(method, raw, kind)


async def run_rounds(
    method: str,
    raw: Raw,
    body: bytes,
    trip: Trip,
    answering: QuestionHandlers,
    revision: Revision,
    rounds: int,
    known: Container[str] = (),
) -> tuple[Raw, str]:
    """Return the final result, after the first one `raw`, and its type: complete, or one of `known`.

    Raises BadAnswer for a server that asks wrongly or without end, Declined if a question was declined, LocalError for
    answers of ours that do not fit, and what a round trip raises.
    """
    found = head(method, raw, known)
    left = rounds
    while found.result_type == INPUT_REQUIRED:
        if not left:
            raise BadAnswer(f"{method}: the server still asks after {rounds} rounds")
        left -= 1
        raw = await trip(await _retry(method, found, body, answering, revision))
        found = head(method, raw, known)
    return raw, found.result_type


async def _retry(method: str, found: _Head, body: bytes, answering: QuestionHandlers, revision: Revision) -> bytes:
    """Return the params of the next round trip."""
    if found.input_requests is UNSET and found.request_state is UNSET:
        # "Servers MUST include at least one of `inputRequests` or `requestState`"
        raise BadAnswer(f"{method}: input_required without inputRequests and without requestState")
    state = found.request_state
    if state is not UNSET and bytes(state)[:1] != b'"':
        raise BadAnswer(f"{method}: requestState is not a string")
    parts = [body[1:-1]] if len(body) > 2 else []
    if found.input_requests is not UNSET:
        answers = await _answers(method, found.input_requests, answering, revision)
        parts.append(b'"inputResponses":' + msgspec.json.encode(answers))
    if state is not UNSET:
        # "the client MUST echo back the exact value of that field"
        parts.append(b'"requestState":' + bytes(state))
    return b"{" + b",".join(parts) + b"}"


async def answer_questions(
    requests: Mapping[str, Any], answering: QuestionHandlers, revision: Revision
) -> dict[str, Raw]:
    """Return the answers to the questions that an extension got, as JSON text, by the same keys. `requests`: as in
    `inputRequests`, JSON values or text. Raises what `run_rounds` raises because of questions."""
    where = "inputRequests of an extension"
    try:
        questions = decode(to_json(requests), dict[str, _Question])
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadAnswer(f"{where}: {error}") from error
    return await _answers(where, questions, answering, revision)


async def _answers(
    method: str, questions: Mapping[str, _Question], answering: QuestionHandlers, revision: Revision
) -> dict[str, Raw]:
    if len(questions) > answering.questions:
        many = len(questions)
        raise BadAnswer(
            f"{method}: the server asks {many} questions at once, limits.questions allows {answering.questions}"
        )
    return {key: Raw(await _answer(method, one, answering, revision)) for key, one in questions.items()}


async def _answer(method: str, question: _Question, answering: QuestionHandlers, revision: Revision) -> bytes:
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


class UrlElicitations:
    """The URLs that users were sent to, until the server reports completion (client/elicitation)."""

    def __init__(self) -> None:
        self._open: dict[str, asyncio.Future[None]] = {}
        self._early: dict[str, None] = {}

    def done(self, id: str) -> None:
        """Note that an elicitation is complete. "Clients MUST ignore notifications referencing unknown or
        already-completed IDs"; an unknown one is remembered for a while, since the notification may overtake the error
        that names its id."""
        future = self._open.get(id)
        if future is None:
            self._early[id[:LONGEST_ID]] = None
            if len(self._early) > EARLY:
                del self._early[next(iter(self._early))]
        elif not future.done():
            future.set_result(None)

    async def run(
        self, error: RpcError, answering: QuestionHandlers, revision: Revision, patience: float | None
    ) -> bool:
        """Send the user to the URLs of a URL_ELICITATION_REQUIRED error, and wait until the server reports completion,
        for at most `patience` seconds, since servers only MAY report it. Return False if the user declined, or the
        error names no such URLs."""
        try:
            required = msgspec.convert(error.data, _Required).elicitations
        except msgspec.ValidationError:
            return False
        ids = [one.get("elicitationId") for one in required]
        if (
            not required
            or not all(isinstance(id, str) for id in ids)
            or not all(one.get("mode") == "url" for one in required)
        ):
            return False
        loop = asyncio.get_running_loop()
        mine = {id: self._open.setdefault(id, loop.create_future()) for id in ids if isinstance(id, str)}
        for id in mine.keys() & self._early.keys():
            del self._early[id]
            self.done(id)
        try:
            for one in required:
                answer = await answering.answer(ELICIT, Raw(msgspec.json.encode(one)), revision)
                if msgspec.json.decode(answer).get("action") != "accept":
                    return False
            await asyncio.wait(mine.values(), timeout=patience)
            return True
        except MethodNotFound:
            return False
        finally:
            for id in mine:
                self._open.pop(id, None)


class _Required(Struct):
    elicitations: list[dict[str, Any]]
