"""How what answers one POST of a session that any replica may serve leaves: as JSON, or as a stream of the session.

A change of the session's state is in the store before the request that made it is answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ..bus import BusLost
from ..channel import Closed
from ..jsonrpc.errors import InternalError
from ..jsonrpc.messages import Request
from ..transports.http_head import JSON_LINES, Lines, Reply
from ..transports.sse import event
from .http_answers import SESSION, failed, refuse, unmoved
from .http_streams import SSE_LINES
from .record import Change

if TYPE_CHECKING:
    from .http_heads import Facts
    from .http_shared import SharedSession, SharedStream

CHANGING: Final = frozenset({"logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
"""Requests that change the session."""
AWAY: Final = InternalError("Busy: what the replicas of this server share is away", {"retry_after": 1})


def away(reply: Reply, id: object = msgspec.UNSET) -> None:
    """503: the store is needed for this, and is not there."""
    refuse(reply, 503, AWAY, id=id, lines=(("Retry-After", "1"),))


class SharedPost:
    """One POST of a session. Called with a message it sends that ahead of the answer, on the POST's own stream."""

    __slots__ = ("_begins", "_facts", "_id", "_reply", "_saves", "_stream", "over", "session")

    def __init__(
        self, reply: Reply, facts: Facts, session: SharedSession, message: Request | None, *, begins: bool = False
    ) -> None:
        """`message`: the request; None: several at once. `begins`: it is the `initialize` that begins the session."""
        self.session = session
        self.over = False
        self._reply = reply
        self._facts = facts
        self._begins = begins
        self._saves = message is None or message.method in CHANGING
        self._id = None if message is None else message.id
        self._stream: SharedStream | None = None

    def __call__(self, message: bytes) -> bool:
        if self.over:
            return False
        if self._stream is None and not self._open():
            return self.session.say(message)
        assert self._stream is not None
        return self._stream.put(message)

    def _open(self) -> bool:
        """Turn the answer into a stream; False where the caller takes none."""
        if not self._facts.sse or self._begins:
            return False
        self._stream = self.session.stream(self._id)
        self._stream.begin(self._reply)
        self.session.posts.pop(self, None)  # from now on the stream stands for it
        return True

    def disconnect(self, retry: float | None = None) -> bool:
        """Close the connection and not the stream, so that the client polls for the rest, `retry` seconds later.

        False where the revision does not know that ("server-initiated close", basic/transports).
        """
        revision = self.session.revision
        if self.over or revision is None or not revision.primed or (self._stream is None and not self._open()):
            return False
        assert self._stream is not None
        self._stream.pause(self.session.options.retry if retry is None else int(retry * 1000))
        return True

    def wait(self, *, owed: bool) -> None:
        """It is not answered yet."""
        if self._stream is not None:  # an eager handler has said something, and the stream knows who reads it
            return
        session = self.session
        session.posts[self] = None
        self._reply.gone = unmoved
        if owed and not (session.options.json and self._facts.json):
            self._open()

    def deliver(self, answer: bytes | None) -> None:
        """The answer; None when nothing is owed, or the call was cancelled."""
        if self.over:
            return
        self.over = True
        session = self.session
        session.posts.pop(self, None)
        if self._begins:
            if answer is None or failed(answer):
                self._answer(answer)
                session.end(Closed("initialize was refused"))
            else:
                session.place.shared.later(self._keep(answer))
            return
        session.place.touch(session)
        state = session.peer.state
        if self._saves and session.record is not None and (change := session.record.changed(state)):
            session.place.shared.later(self._save(change, answer))
        else:
            self._answer(answer)

    async def _keep(self, answer: bytes) -> None:
        """Answer `initialize`, once the session is there for everybody."""
        try:
            await self.session.place.keep(self.session)
        except BusLost:
            self.session.end(Closed("the session could not be kept"))
            away(self._reply, self._id)
            return
        lines: Lines = ((SESSION, self.session.id),)
        if self._facts.json:
            self._reply.respond(200, (*JSON_LINES, *lines), answer)
        else:
            self._reply.respond(200, (*SSE_LINES, *lines), event(answer))

    async def _save(self, change: Change, answer: bytes | None) -> None:
        """Answer what changed the session, once everybody can know."""
        try:
            await self.session.save(change)
        except BusLost:
            if self._stream is None:
                away(self._reply, self._id)
                return
        self._answer(answer)

    def _answer(self, answer: bytes | None) -> None:
        stream = self._stream
        if stream is not None:
            stream.finish(answer)
        elif answer is None:
            self._reply.respond(200, SSE_LINES)  # cancelled: a stream without a response
        elif self._facts.json and (self.session.options.json or not self._facts.sse or failed(answer)):
            self._reply.respond(200, JSON_LINES, answer)
        elif self._open():
            assert self._stream is not None
            self._stream.finish(answer)
        else:
            self._reply.respond(200, SSE_LINES, event(answer))

    def ended(self) -> None:
        """The session ended before the answer."""
        self.over = True
        refuse(self._reply, 404, "The session ended before the call was done")
