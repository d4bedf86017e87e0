"""What was answered lately, so that a request that a broker delivers again is answered and not run again.

In this process's memory, and in a store that workers share where one is given (`Options.store`). An answer is
kept under the request's idempotency key, with the correlation that it was an answer to: for another correlation
(the caller asked again, with a key of his own) the answer gets the new request's id.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

log = logging.getLogger("dragoman.wire")

ANSWERS = 10_000
BYTES = 16 * 1024 * 1024
SECONDS = 600.0
"""How long an answer is kept: much longer than a broker takes to deliver again what nobody settled."""


class Answer(Struct, frozen=True, array_like=True):
    """What was answered; an empty body where nothing was owed."""

    correlation: str
    body: bytes
    at: float = 0.0


class _Head(Struct):
    id: Raw | UnsetType = UNSET


class _Response(Struct):
    jsonrpc: str | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    id: Raw | UnsetType = UNSET


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Answer).decode
_head = msgspec.json.Decoder(_Head).decode
_response = msgspec.json.Decoder(_Response).decode


class Recent:
    """The answers of one listener. `store`: a `bus.Store` or None."""

    def __init__(self, store: Any = None) -> None:
        self.store = store
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        self._bytes = 0

    def keep(self, key: str, correlation: str, body: bytes) -> None:
        """Remember here."""
        old = self._answers.pop(key, None)
        if old is not None:
            self._bytes -= len(old.body)
        self._answers[key] = Answer(correlation, body, time.monotonic())
        self._bytes += len(body)
        while self._bytes > BYTES or len(self._answers) > ANSWERS:
            self._bytes -= len(self._answers.popitem(last=False)[1].body)

    def here(self, key: str) -> Answer | None:
        """What this process answered."""
        found = self._answers.get(key)
        return found if found is not None and time.monotonic() - found.at < SECONDS else None

    async def share(self, key: str, correlation: str, body: bytes) -> None:
        """Remember for every worker. A store that is away is logged: the answer goes out all the same."""
        try:
            await self.store.put(f"answer:{key}", _encode(Answer(correlation, body)), ttl=SECONDS)
        except ConnectionError as why:
            log.warning("an answer could not be stored for the other workers: %s", why)

    async def shared(self, key: str) -> Answer | None:
        """What any worker answered."""
        try:
            found = await self.store.get(f"answer:{key}")
        except ConnectionError as why:
            log.warning("the store of recent answers is away: %s", why)
            return None
        return None if found is None else _decode(found)


def fitting(answer: Answer, correlation: str, request: bytes) -> bytes | None:
    """The body that answers this request; None where a recent answer cannot (a batch, asked again)."""
    if answer.correlation == correlation or not answer.body:
        return answer.body
    try:
        id, response = _head(request).id, _response(answer.body)
    except (msgspec.DecodeError, RecursionError):
        return None
    if id is UNSET:
        return None
    response.id = id
    return msgspec.json.encode(response)
