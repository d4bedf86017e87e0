"""One JetStream stream as `engines.nats.bus` uses it: subjects below one name, the newest message of each, conditions,
expiry.

It uses JetStream's API in JSON directly, not the library's functions, because it needs only five requests of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ...bus.contract import BusLost, log
from ...jsonrpc.errors import LocalError
from ...net.urls import printable
from .connection import Message, MessageTooLong, NatsConnection, NoResponders

EXPIRES = "Expires"
"""Header: milliseconds since 1970 after which an entry is expired."""
_AFTER = "Nats-Expected-Last-Subject-Sequence"
_NOT_FOUND, _NO_STREAM, _OTHER_STREAM = 10037, 10059, 10058
_WRONG_LAST = (10071, 10164)


class ApiError(Struct):
    """An error in an answer of JetStream."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class _Held(Struct):
    seq: int
    data: bytes = b""
    hdrs: bytes = b""


class _State(Struct):
    last_seq: int = 0


class ApiReply(Struct):
    """The members of a JetStream answer that are used."""

    error: ApiError | None = None
    seq: int = 0
    purged: int = 0
    name: str = ""
    num_pending: int = 0
    message: _Held | None = None
    state: _State | None = None
    streams: list[str] | None = None
    """The names of streams."""


reply: Callable[[bytes], ApiReply] = msgspec.json.Decoder(ApiReply).decode


class StreamEntry(Struct, frozen=True):
    """One message of a stream."""

    position: int
    """Its number in the stream."""
    body: bytes
    headers: Mapping[str, str]
    pending: int = 0
    """How many come after it, if known."""
    name: str = ""

    @property
    def expires(self) -> int | None:
        """When it expires, in milliseconds since 1970; None: never, or it is not a message of ours."""
        text = self.headers.get(EXPIRES, "")
        return int(text) if text.isascii() and text.isdigit() else None

    @property
    def over(self) -> bool:
        """Whether it has expired, or was deleted as a value of the bucket."""
        expires = self.expires
        return (expires is not None and expires <= now()) or "KV-Operation" in self.headers


def now() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1000)


async def api(connection: NatsConnection, what: str, patience: float = 5.0, /, **members: Any) -> ApiReply:
    """Send a request to JetStream. Raises NoResponders if there is no JetStream, BusLost if it does not answer; its own
    errors are in the reply."""
    body = msgspec.json.encode(members) if members else b""
    answer = await connection.ask(f"$JS.API.{what}", body, patience=patience)
    return reply(answer.data)


def refusal_error(connection: NatsConnection, fault: ApiError) -> BusLost:
    """Return a refusal of JetStream as an exception."""
    return BusLost(f"{connection.where.shown}: JetStream says: {printable(fault.description)} ({fault.err_code})")


class StreamStore:
    """A stream. `each`: messages it keeps of one subject, -1 for no bound. `missed` is called with the reason when the
    stream, or JetStream, is gone."""

    def __init__(self, connection: NatsConnection, stream: str, prefix: str, replicas: int, *, each: int) -> None:
        self.connection = connection
        self.missed: Callable[[str], object] = lambda why: None
        self.missing: str = ""
        """Why it gets no requests until it is opened again; empty while it exists."""
        self._stream = stream
        self._prefix = f"{prefix}."
        self._config = {
            "name": stream,
            "subjects": [f"{prefix}.>"],
            "retention": "limits",
            "max_consumers": -1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_msgs_per_subject": each,
            "discard": "new",
            "storage": "file",
            "num_replicas": replicas,
            "allow_rollup_hdrs": True,
            "deny_delete": True,
        }

    async def open(self) -> bool:
        """Create the stream if there is none; an existing one is not changed. Returns whether there was none."""
        found = await api(self.connection, f"STREAM.INFO.{self._stream}")
        created = found.error is not None and found.error.err_code == _NO_STREAM
        if created:
            found = await api(self.connection, f"STREAM.CREATE.{self._stream}", **self._config)
            if found.error is not None and found.error.err_code == _OTHER_STREAM:
                return True  # another process has created it
        if found.error is not None:
            raise refusal_error(self.connection, found.error)
        return created

    def _check(self) -> None:
        """Raise BusLost while the stream is missing."""
        if self.missing:
            raise BusLost(f"{self.connection.where.shown}: {self.missing}")

    def _fault(self, fault: ApiError) -> BusLost:
        """Return a refusal of JetStream as an exception."""
        if fault.err_code == _NO_STREAM:
            self.missed(f"the stream {self._stream} is gone")
        return refusal_error(self.connection, fault)

    def _report_missing(self, fault: NoResponders) -> BusLost:
        """Report that JetStream, or the stream, is gone: the server had it when this was opened."""
        self.missed(f"nothing takes what goes to the stream {self._stream}")
        return BusLost(str(fault))

    async def _api(self, what: str, **members: Any) -> ApiReply:
        """Send a request about the stream."""
        self._check()
        try:
            return await api(self.connection, f"{what}.{self._stream}", **members)
        except NoResponders as fault:
            raise self._report_missing(fault) from None

    async def last(self, name: str) -> StreamEntry | None:
        """Return the newest message of a subject, or None."""
        found = await self._api("STREAM.MSG.GET", last_by_subj=self._prefix + name)
        if found.message is None:
            if found.error is None or found.error.err_code == _NOT_FOUND:
                return None
            raise self._fault(found.error)
        return StreamEntry(found.message.seq, found.message.data, _headers(found.message.hdrs), 0, name)

    async def add(
        self,
        name: str,
        body: bytes,
        ttl: float | None,
        *,
        after: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> int | None:
        """Add a message to a subject; returns its position. `after`: only if the newest message is the one at that
        position (0: if there is none), otherwise returns None."""
        all_headers = dict(headers or {})
        if ttl is not None:
            all_headers[EXPIRES] = str(now() + max(1, round(ttl * 1000)))
        if after is not None:
            all_headers[_AFTER] = str(after)
        self._check()
        try:
            answer = await self.connection.ask(self._prefix + name, body, headers=all_headers or None)
        except NoResponders as fault:
            raise self._report_missing(fault) from None
        except MessageTooLong as fault:
            raise LocalError(str(fault)) from None
        done = reply(answer.data)
        if done.error is None:
            return done.seq
        if done.error.err_code in _WRONG_LAST:
            return None
        raise self._fault(done.error)

    async def drop(self, name: str) -> bool:
        """Delete a subject's messages; False if there were none, or they were expired."""
        while (found := await self.last(name)) is not None:
            gone = await self.clear(name, found.position)
            if found.over:
                return False
            if gone:
                return True
        return False

    async def clear(self, name: str, upto: int) -> int:
        """Delete a subject's messages up to that position without a trace; returns their number."""
        done = await self._api("STREAM.PURGE", filter=self._prefix + name, seq=upto + 1)
        if done.error is not None:
            raise self._fault(done.error)
        return done.purged

    async def entries(self, names: str, *, start: int = 1, newest: bool = False) -> AsyncIterator[StreamEntry]:
        """The messages of a subject (or of all: ">") from a position on; `newest`: without bodies, each subject's
        last."""
        received: asyncio.Queue[Message | None] = asyncio.Queue()
        box = self.connection.new_inbox_address()
        subscription = await self.connection.subscribe(box, received.put_nowait)
        try:
            config: dict[str, Any] = {
                "deliver_subject": box,
                "filter_subject": self._prefix + names,
                "ack_policy": "none",
                "mem_storage": True,
                "num_replicas": 1,
                "inactive_threshold": 10_000_000_000,
                "deliver_policy": "last_per_subject" if newest else "by_start_sequence",
            }
            config |= {"headers_only": True} if newest else {"opt_start_seq": start}
            made = await self._api("CONSUMER.CREATE", stream_name=self._stream, config=config)
            if made.error is not None:
                raise self._fault(made.error)
            # what is there counts as pending, or was delivered before this answer was written
            left = 1 if made.num_pending or not received.empty() else 0
            while left:
                entry = self._entry(await self._next(received))
                left = entry.pending
                yield entry
        finally:
            await subscription.close()

    async def _next(self, received: asyncio.Queue[Message | None]) -> Message:
        try:
            async with asyncio.timeout(5):
                message = await received.get()
        except TimeoutError:
            message = None
        if message is None:
            raise BusLost(f"{self.connection.where.shown}: JetStream stopped in the middle of reading {self._stream}")
        return message

    def _entry(self, message: Message) -> StreamEntry:
        # $JS.ACK.<stream>.<consumer>.<deliveries>.<position>.<number>.<time>.<pending>; newer servers put two words
        # more behind $JS.ACK, and one at the end
        words = message.reply.split(".")
        position, pending = (words[5], words[8]) if len(words) == 9 else (words[7], words[10])
        return StreamEntry(
            int(position), message.data, message.headers or {}, int(pending), message.subject[len(self._prefix) :]
        )

    async def sweep(self) -> None:
        """Delete expired entries."""
        over = [entry async for entry in self.entries(">", newest=True) if entry.over]
        for entry in over:
            await self.clear(entry.name, entry.position)
        if over:
            log.debug("%s: %d entries of %s were over", self.connection.where.shown, len(over), self._stream)


def _headers(block: bytes) -> dict[str, str]:
    """Header lines as JetStream stores them: NATS/1.0, then `Name: value`."""
    lines = block.decode("utf-8", "replace").split("\r\n")[1:]
    return {name: value.strip() for name, colon, value in (line.partition(":") for line in lines) if colon}
