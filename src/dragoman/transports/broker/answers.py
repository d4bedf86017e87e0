"""Recent answers, so that a request that a broker delivers again is answered and not run again.

They are in this process's memory, and in a store that workers share if one is given (`Options.store`).

Rules:

- An answer is kept under `bound_key`: the idempotency key together with the caller and the call. So a key that another
  caller uses, or that is used for another call, is a different key, and its caller does not learn that it is in use.
- The correlation id of its request is kept with it: for another correlation id (the caller sent the request again, with
  a key of its own) the answer gets the new request's id.
- Only the answer of a call that began is kept (`has_begun`): what was refused, and what fits no method, ran nothing and
  may be tried again under its key.
- An answer is kept for `SECONDS`. `limits.answers_kept` and `limits.answers_kept_size` bound what is kept here and what
  this worker has put in the store. The oldest answers are dropped first; an answer longer than the bound is not kept.
- The store drops expired answers by itself. Only those that are dropped earlier are deleted there, by `forget`, for
  which no acknowledgement waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...jsonrpc.codec import FailedAnswer
from ...jsonrpc.errors import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR
from ...jsonrpc.limits import Limits
from .contract import AGAIN, DEADLINE, DELIVERED, KEY, KIND, BrokerMessage

log: logging.Logger = logging.getLogger("dragoman.wire")

SECONDS = 600.0
"""How long an answer is kept: much longer than a broker takes to deliver again what was not settled."""


SHORT = 300
"""Characters up to which key, caller and call are kept as they are: a digest would cost more time than it saves
memory."""


class KeptAnswer(Struct, frozen=True, array_like=True):
    """A recent answer; an empty body if none was owed."""

    correlation: str
    body: bytes
    at: float = 0.0


class _Head(Struct):
    id: Raw | UnsetType = UNSET
    method: Raw = Raw(b"")
    params: Raw = Raw(b"")


class _Response(Struct):
    jsonrpc: str | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    id: Raw | UnsetType = UNSET


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(KeptAnswer).decode
_head = msgspec.json.Decoder(_Head).decode
_response = msgspec.json.Decoder(_Response).decode
_UNFIT = frozenset({PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS})
"""The codes of faults of a request itself (specification, 5.1): its call did not begin, and may be tried again."""


_OURS = frozenset((KEY, DEADLINE, AGAIN, DELIVERED, KIND, "traceparent", "tracestate", "baggage"))
"""Headers that may differ between two deliveries of one call; all others may identify the caller."""


BoundKey: TypeAlias = tuple[str, str, bytes] | str
"""Key, caller and call; a digest of them where they are long, or where headers identify the caller too."""


def bound_key(message: BrokerMessage) -> BoundKey:
    """Return the name under which the answer to a request with an idempotency key is kept: the key, the caller (its
    mailbox and its headers) and the call.

    Where the key is the call's correlation, which is the case unless the caller chose one, the call is the whole body:
    what a broker delivers again, and a channel sends again, is the same bytes. Where the caller chose the key, the
    call is the method and the params, since the id differs in each attempt; the whole body if that is not a single
    request.
    """
    headers, caller, body = message.headers, message.mailbox or message.reply_to, message.body
    key = headers[KEY]
    if key != message.correlation:
        return _digest(key, caller, headers, *_method_and_params(body))
    if len(key) + len(caller) + len(body) > SHORT or not headers.keys() <= _OURS:
        return _digest(key, caller, headers, body)
    return key, caller, body


def _method_and_params(body: bytes) -> tuple[bytes, ...]:
    try:
        head = _head(body)
    except (msgspec.DecodeError, RecursionError):
        return (body,)
    return bytes(head.method), bytes(head.params)


def _digest(key: str, caller: str, headers: Mapping[str, str], *call: bytes) -> str:
    parts = (key, caller, sorted(pair for pair in headers.items() if pair[0] not in _OURS), *call)
    try:
        text = _encode(parts)
    except UnicodeEncodeError:  # half of a surrogate pair
        text = repr(parts).encode("ascii", "backslashreplace")
    return blake2b(text, digest_size=20).hexdigest()


def _stored_under(key: BoundKey) -> str:
    return f"answer:{key if isinstance(key, str) else _digest(key[0], key[1], {}, key[2])}"


def has_begun(failed: FailedAnswer) -> bool:
    """Return whether this is the answer of a call that began, as far as the answer shows: not so for a refusal, nor for
    an error about the request itself. Such a request may be tried again, since a worker of the next release may know
    the method."""
    return failed.refusal is None and (failed.text is None or failed.error.code not in _UNFIT)


class _AnswerSizes:
    """The names, sizes and ages of kept answers, the oldest first, within the limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._kept: OrderedDict[BoundKey, tuple[int, float]] = OrderedDict()
        self._bytes = 0

    def fits(self, size: int) -> bool:
        """Whether an answer of this size can be kept at all."""
        return size <= self._limits.answers_kept_size and self._limits.answers_kept > 0

    def add(self, key: BoundKey, size: int, now: float) -> list[BoundKey]:
        """Add an answer; returns the names of those that are dropped for it."""
        self._bytes += size - self._kept.pop(key, (0, 0.0))[0]
        self._kept[key] = size, now
        gone: list[BoundKey] = []
        while self._bytes > self._limits.answers_kept_size or len(self._kept) > self._limits.answers_kept:
            gone.append(self._drop())
        return gone

    def expire(self, now: float) -> list[BoundKey]:
        """Drop what is older than `SECONDS`; returns the names."""
        gone: list[BoundKey] = []
        while (oldest := self.oldest) is not None and now - oldest >= SECONDS:
            gone.append(self._drop())
        return gone

    @property
    def oldest(self) -> float | None:
        """The time since which the oldest is kept; None without any."""
        return next(iter(self._kept.values()))[1] if self._kept else None

    def _drop(self) -> BoundKey:
        name, (size, _) = self._kept.popitem(last=False)
        self._bytes -= size
        return name


class AnswerCache:
    """The answers of one listener. `store`: a `bus.Store` or None. `clock`: seconds."""

    def __init__(self, limits: Limits, store: Any = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.store = store
        self._clock = clock
        self._answers: dict[BoundKey, KeptAnswer] = {}
        self._here = _AnswerSizes(limits)
        self._shared = _AnswerSizes(limits)
        self._doomed: deque[BoundKey] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Answers that are kept in this process."""
        return len(self._answers)

    def keep(self, key: BoundKey, correlation: str, body: bytes) -> None:
        """Keep an answer in this process."""
        if self._here.fits(len(body)):
            now = self._clock()
            self._answers[key] = KeptAnswer(correlation, body, now)
            for old in self._here.expire(now) + self._here.add(key, len(body), now):
                self._answers.pop(old, None)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(SECONDS, self._expire)

    def _expire(self) -> None:
        """Drop what has expired, also where nothing new comes."""
        self._timer = None
        now = self._clock()
        for old in self._here.expire(now):
            self._answers.pop(old, None)
        if (oldest := self._here.oldest) is not None:
            wait = max(oldest + SECONDS - now, 0.0)
            self._timer = asyncio.get_running_loop().call_later(wait, self._expire)

    def close(self) -> None:
        """Forget all that is kept in this process."""
        if self._timer is not None:
            self._timer.cancel()
        self._answers.clear()

    def here(self, key: BoundKey) -> KeptAnswer | None:
        """The answer that this process has kept."""
        found = self._answers.get(key)
        return found if found is not None and self._clock() - found.at < SECONDS else None

    async def share(self, key: BoundKey, correlation: str, body: bytes) -> None:
        """Keep an answer for every worker. A failure of the store is logged; the answer is sent nevertheless."""
        if not self._shared.fits(len(body)):
            return
        try:
            await self.store.put(_stored_under(key), _encode(KeptAnswer(correlation, body)), ttl=SECONDS)
        except ConnectionError as why:
            log.warning("an answer could not be stored for the other workers: %s", why)
            return
        now = self._clock()
        self._shared.expire(now)  # the store has dropped them
        self._doomed.extend(self._shared.add(key, len(body), now))

    @property
    def crowded(self) -> bool:
        """Whether answers are above the bounds, for `forget`."""
        return bool(self._doomed)

    async def forget(self) -> None:
        """Delete from the store what is above the bounds. What fails stays there until it expires."""
        while self._doomed:
            try:
                await self.store.delete(_stored_under(self._doomed.popleft()))
            except ConnectionError as why:
                log.debug("an answer stays in the store until it expires: %s", why)

    async def shared(self, key: BoundKey) -> KeptAnswer | None:
        """The answer that any worker has kept."""
        try:
            found = await self.store.get(_stored_under(key))
            return None if found is None else _decode(found)
        except (ConnectionError, msgspec.DecodeError, UnicodeDecodeError) as why:
            log.warning("the store of recent answers is of no use now: %s", why)
            return None


def answer_to(answer: KeptAnswer, correlation: str, request: bytes) -> bytes | None:
    """Return the body that answers this request; None if a recent answer cannot (a batch, sent again)."""
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
