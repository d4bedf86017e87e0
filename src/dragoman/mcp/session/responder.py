"""The answer to one request of a session: sent whole, or, from the first message ahead of the answer on, as a
stream of the session, which outlives its connection.

A request's changes of the session are stored before it is answered, so that a client never knows of a change that
another process does not know.
"""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol

import msgspec
from msgspec import UNSET, Struct

from ...bus.contract import BusLost
from ...channel import ChannelError, Closed
from ...jsonrpc.call_limit import busy
from ...jsonrpc.errors import INVALID_REQUEST, InternalError, Refusal, RpcError
from ...jsonrpc.messages import Malformed
from ..protocol.dialect import MCP
from ..protocol.options import HttpOptions
from .record import Delta
from .stream import Run, Stream, StreamReader

CHANGING: Final = frozenset({"logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
"""Requests that change the session."""
TURNED_AWAY: Final = frozenset({"busy", "draining", "rate_limited", "too_large", "forbidden"})
"""Refusals that a wire tells in its own way, where nothing was sent yet."""
FAILED: Final = b'{"jsonrpc":"2.0","error":'

_json = msgspec.json.Encoder().encode


class Refused(Struct, frozen=True):
    """Why a session refuses a message; the wire turns it into its own form."""

    why: Literal["no session", "no stream", "ended", "full", "too large", "away", "no batches"]
    error: RpcError


def _invalid(why: Any, text: str) -> Refused:
    return Refused(why, RpcError.of(INVALID_REQUEST, text))


NO_SESSION: Final = _invalid("no session", "There is no such session: `initialize` begins a new one")
NO_STREAM: Final = _invalid("no stream", "Last-Event-ID names no stream of this session that could be resumed")
ENDED: Final = Refused("ended", InternalError("The session ended before the call was done"))
NO_BATCHES: Final = _invalid("no batches", "Invalid Request: this revision has no batches, send one message at a time")
AWAY: Final = Refused("away", InternalError("Busy: what the replicas of this server share is away", {"retry_after": 1}))


def too_much(refusal: Refusal) -> Refused:
    """A client says more of itself than is kept, or its share is used up."""
    return Refused("too large" if refusal.kind == "too_large" else "full", MCP.error(refusal))


def full(sessions: int) -> Refused:
    """The limit of sessions is reached."""
    return Refused("full", MCP.error(busy("sessions", sessions)))


def failed(answer: bytes) -> bool:
    """Whether an answer is an error."""
    return answer.startswith(FAILED)


class Answering(StreamReader, Protocol):
    """Carries the answer to one message: whole, or as a stream."""

    whole: bool
    """The caller accepts an answer that is not a stream."""
    streams: bool
    """The caller accepts a stream."""

    def wait(self) -> None:
        """The answer is not ready: notice it if the far end goes."""

    def answer(self, answer: bytes, session: str = "") -> None:
        """Send the answer whole. `session`: the id of a session that begins with it."""

    def turned_away(self, answer: bytes | None, refusal: Refusal) -> None:
        """The message is not accepted: send this answer, None for a notification."""

    def accepted(self) -> None:
        """No answer is owed."""

    def nothing(self) -> None:
        """The call was cancelled and has no answer."""

    def refused(self, refusal: Refused, id: Any = UNSET) -> None:
        """The message is refused; `id`: of the request."""

    def unfit(self, message: Malformed) -> None:
        """The body is not a message."""


class Owner(Protocol):
    """The session of a responder."""

    id: str
    options: HttpOptions
    responders: dict[Responder, None]
    run: Run

    @property
    def primed(self) -> bool: ...

    def say(self, message: bytes) -> bool: ...
    def stream(self, id: bytes) -> Stream: ...
    def complete(self, id: bytes, reader: Answering, answer: bytes) -> None: ...
    def rest(self) -> None: ...
    def end(self, why: ChannelError) -> None: ...
    def changed(self) -> Delta | None: ...
    async def save(self, change: Delta) -> None: ...
    async def keep(self) -> Refused | None: ...


class Responder(Struct, eq=False):
    """The answer to one request, or to several at once. Calling it with a message sends that ahead of the answer."""

    session: Owner
    reader: Answering
    id: Any = UNSET
    """Of the request; UNSET: there are several."""
    begins: bool = False
    """It is the `initialize` of the session."""
    saves: bool = True
    """It may change the session."""
    stream: Stream | None = None
    over: bool = False

    def __call__(self, message: bytes) -> bool:
        if self.over:
            return False
        if self.stream is None and not self._open():
            return self.session.say(message)
        assert self.stream is not None
        return self.stream.say(message)

    def _open(self) -> bool:
        """Turn the answer into a stream; False if the caller accepts none."""
        if not self.reader.streams or self.begins:
            return False
        self.stream = self.session.stream(self._id_text())
        self.stream.begin(self.reader)
        self.session.responders.pop(self, None)  # the stream replaces it
        return True

    def disconnect(self, retry: float | None = None) -> bool:
        """Close the connection and not the stream, so that the client polls for the rest, `retry` seconds later.

        False if the revision does not have that ("server-initiated close", basic/transports).
        """
        session = self.session
        if self.over or not session.primed or (self.stream is None and not self._open()):
            return False
        assert self.stream is not None
        self.stream.pause(session.options.retry if retry is None else int(retry * 1000))
        return True

    def wait(self, *, owed: bool) -> None:
        """The answer is not ready. "Disconnection SHOULD NOT be interpreted as the client cancelling its request"."""
        if self.stream is not None:  # an eager handler has sent a message, and the stream has its reader
            return
        self.reader.wait()
        session = self.session
        session.responders[self] = None
        if owed and not (session.options.json and self.reader.whole):
            self._open()

    def deliver(self, answer: bytes | None, refusal: Refusal | None = None, /) -> None:
        """The answer; None when nothing is owed, or the call was cancelled."""
        if self.over:
            return
        self.over = True
        session = self.session
        if session.responders:
            session.responders.pop(self, None)
        if self.begins:
            if answer is None or failed(answer):
                if answer is not None and refusal is not None and refusal.kind in TURNED_AWAY and self.stream is None:
                    self.reader.turned_away(answer, refusal)
                else:
                    self._answer(answer)
                session.end(Closed("initialize was refused"))
            else:
                session.run(self._keep(answer))
            return
        if self.stream is None:  # otherwise the session is in use until the stream ends
            session.rest()
        if answer is not None and refusal is not None and self.stream is None and refusal.kind in TURNED_AWAY:
            self.reader.turned_away(answer, refusal)
            return
        if self.saves and (change := session.changed()) is not None:
            session.run(self._save(change, answer))
        else:
            self._answer(answer)

    async def _keep(self, answer: bytes) -> None:
        """Answer `initialize`, once every process can find the session."""
        try:
            refusal = await self.session.keep()
        except BusLost:
            refusal = AWAY
        if refusal is None:
            self.reader.answer(answer, self.session.id)
        else:
            self.session.end(Closed("the session could not be kept"))
            self.reader.refused(refusal, self.id)

    async def _save(self, change: Delta, answer: bytes | None) -> None:
        """Answer a request that changed the session, once every process can know the change."""
        try:
            await self.session.save(change)
        except BusLost:
            if self.stream is None:
                self.reader.refused(AWAY, self.id)
                return
        self._answer(answer)

    def _answer(self, answer: bytes | None) -> None:
        stream, reader = self.stream, self.reader
        if stream is not None:
            stream.finish(answer)
        elif answer is None:
            reader.nothing()
        elif not reader.streams or self.begins or (reader.whole and (self.session.options.json or failed(answer))):
            reader.answer(answer)
        else:
            self.session.complete(self._id_text(), reader, answer)

    def _id_text(self) -> bytes:
        """JSON text of the request's id; b"" without one."""
        return b"" if self.id is UNSET else _json(self.id)

    def accept(self) -> None:
        """No answer is owed after all."""
        self.over = True
        self.session.rest()
        self.reader.accepted()

    def ended(self) -> None:
        """The session ended before the answer."""
        self.over = True
        self.reader.refused(ENDED, self.id)
