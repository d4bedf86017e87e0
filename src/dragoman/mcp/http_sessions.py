"""The sessions of the stateful era over HTTP: one `Mcp-Session-Id`, one peer, its streams.

An `HttpSession` is the channel of its peer for what is not said inside a call: that goes to the newest
of the streams that the client opened by GET, its home, or waits for one. Rules (basic/transports,
"Session Management"):

- An id has 192 random bits in visible ASCII, and is good for the principal alone who got it.
- A session ends by DELETE, after its idle time, or with the server; from then on it is unknown.
- At the bound of their number, sessions that were begun and never used give way to new ones, the
  oldest first; where there are none, a new one is refused.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from time import monotonic
from typing import TYPE_CHECKING

from ..channel import Caller, ChannelError, Closed, Outgoing, Receiver
from ..rpc.clock import Clock
from ..rpc.host import Host
from ..rpc.peer import Peer
from ..transports.http_head import Reply
from .dialect import MCP
from .http_options import HttpOptions
from .http_streams import Log, Stream
from .revisions import Revision

if TYPE_CHECKING:
    from .http_answers import SessionPost


class HttpSession:
    """One session. It is the `Channel` of its peer."""

    __slots__ = (
        "_backlog",
        "_ended",
        "_last",
        "_receiver",
        "_resting",
        "_streams",
        "caller",
        "id",
        "peer",
        "posts",
        "principal",
        "table",
        "used",
    )

    duplex = True
    writable = True  # what has no reader waits in a bounded log

    def __init__(self, table: Sessions, principal: str | None, caller: Caller) -> None:
        self.table = table
        self.principal = principal
        self.caller = Caller(scheme=caller.scheme, remote=caller.remote, path=caller.path, tls=caller.tls)
        self.id = ""
        """The `Mcp-Session-Id`; empty until `initialize` was accepted."""
        self.used = 0.0
        """When it was last used, on the monotonic clock."""
        self.posts: dict[SessionPost, None] | None = None
        """Those that wait for their answers."""
        self._streams: dict[int, Stream] | None = None
        self._resting: dict[Stream, None] | None = None
        self._last = 0
        self._backlog: Log | None = None
        self._receiver: Receiver | None = None
        self._ended = False
        self.peer = Peer(table.host, dialect=MCP)
        self.peer.attach(self)

    @property
    def options(self) -> HttpOptions:
        return self.table.options

    @property
    def clock(self) -> Clock:
        return self.table.host.clock

    @property
    def revision(self) -> Revision | None:
        """What was agreed on; None before."""
        state = self.peer.state
        return None if state is None else state.revision

    @property
    def busy(self) -> bool:
        """A call runs, or a stream is open."""
        streams = self._streams or {}
        return bool(self.posts) or any(one.owed or one.reply is not None for one in streams.values())

    # -- the peer's channel

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        """What nobody asked for: to one home stream, "it MUST NOT broadcast the same message across multiple
        streams" (basic/transports, "Multiple Connections")."""
        if self._ended:
            raise Closed("the session is over")
        for stream in reversed((self._streams or {}).values()):
            if stream.reply is not None and not stream.owed and not stream.over:
                stream.append(message)
                return
        if self._backlog is None:
            self._backlog = Log(self.options.log_messages, self.options.log_bytes)
        self._backlog.append(message)

    def say(self, message: bytes) -> bool:
        """`send`, for what is said inside a call that has no stream of its own."""
        if not self._ended:
            self.send(message)
        return not self._ended

    async def flush(self) -> None:
        """Nothing to wait for."""

    async def close(self) -> None:
        self.end(Closed("the session was closed"))

    def abort(self, why: ChannelError) -> None:
        self.end(why)

    def end(self, why: ChannelError) -> None:
        """Forget it: its calls are dropped, whoever waits or reads is let go."""
        if self._ended:
            return
        self._ended = True
        self.table.forget(self)
        if self._receiver is not None:
            self._receiver.ended(why)
        posts, self.posts = self.posts, None
        for post in posts or ():
            post.ended()
        streams, self._streams, self._resting = self._streams, None, None
        for stream in (streams or {}).values():
            stream.end()
        self._backlog = None

    def rest(self) -> None:
        """It was in use until now."""
        self.table.touch(self)

    # -- its streams

    def stream(self, *, owed: bool) -> Stream:
        """A new stream, of a POST's answer or (`owed=False`) for a GET."""
        self._last += 1
        revision = self.revision
        stream = Stream(self, self._last, ids=revision is not None and revision.resumable, owed=owed)
        if self._streams is None:
            self._streams = {}
        self._streams[stream.number] = stream
        return stream

    def home(self, reply: Reply, stream: Stream | None = None, after: int = 0) -> None:
        """A GET: a new stream for what nobody asked for, or one that broke, from behind this position on."""
        fresh = stream is None
        if stream is None:
            stream = self.stream(owed=False)
        revision = self.revision
        stream.attach(reply, after, primed=fresh and revision is not None and revision.primed)
        if stream.owed or stream.over:
            return
        backlog, self._backlog = self._backlog, None
        for _, message in () if backlog is None else backlog.since(0):
            stream.append(message)

    def broken(self, event: str) -> tuple[Stream, int] | None:
        """The stream of this session that an event id names, and the position in it; None for what is none of it."""
        number, dash, position = event.partition("-")
        if not (dash and number.isascii() and number.isdigit() and position.isascii() and position.isdigit()):
            return None
        if len(event) > 30:
            return None
        stream = (self._streams or {}).get(int(number))
        if stream is None or not stream.ids or int(position) > stream.log.last:
            return None
        return stream, int(position)

    def left(self, stream: Stream) -> None:
        self.table.touch(self)

    def forget(self, stream: Stream) -> None:
        if self._streams is not None:
            self._streams.pop(stream.number, None)
        if self._resting is not None:
            self._resting.pop(stream, None)

    def rests(self, stream: Stream, resting: bool) -> None:
        """At most so many streams wait for somebody to come back."""
        if self._resting is None:
            self._resting = {}
        if not resting:
            self._resting.pop(stream, None)
            return
        self._resting[stream] = None
        if len(self._resting) > self.options.streams:
            oldest = next(iter(self._resting))
            self.clock.drop(oldest)
            self.forget(oldest)


class Sessions:
    """All sessions of one server, in the order of their last use. The one clock of them all."""

    def __init__(self, host: Host, options: HttpOptions) -> None:
        self.host = host
        self.options = options
        self._found: OrderedDict[str, HttpSession] = OrderedDict()
        self._unused: dict[str, HttpSession] = {}
        """Those whose client has sent nothing after `initialize`."""

    def __len__(self) -> int:
        return len(self._found)

    def begin(self, principal: str | None, caller: Caller) -> HttpSession | None:
        """A session for an `initialize`; None when there are too many. It counts, and has an id, once it is kept."""
        if len(self._found) >= self.options.sessions and not self._make_room():
            return None
        return HttpSession(self, principal, caller)

    def keep(self, session: HttpSession) -> str:
        """`initialize` was accepted: the session's id."""
        # "SHOULD be globally unique and cryptographically secure", "MUST only contain visible ASCII characters"
        session.id = secrets.token_urlsafe(24)
        if not self._found:
            self.host.clock.set(self, self.options.session_idle)
        session.used = monotonic()
        self._found[session.id] = self._unused[session.id] = session
        return session.id

    def find(self, id: str, principal: str | None) -> HttpSession | None:
        """The session of this id, if it is this principal's. Who uses it says so by `touch`, when he is done."""
        session = self._found.get(id)
        if session is None or session.principal != principal:
            return None
        self._unused.pop(id, None)
        return session

    def touch(self, session: HttpSession) -> None:
        """It is in use."""
        if session.id in self._found:
            session.used = monotonic()
            self._found.move_to_end(session.id)

    def forget(self, session: HttpSession) -> None:
        """It is over."""
        self._found.pop(session.id, None)
        self._unused.pop(session.id, None)
        if not self._found:
            self.host.clock.drop(self)

    def expired(self) -> None:
        """The oldest may have been idle for too long."""
        idle, now = self.options.session_idle, monotonic()
        while self._found:
            session = next(iter(self._found.values()))
            left = session.used + idle - now
            if left > 0:
                self.host.clock.set(self, left)
                return
            if session.busy:
                self.touch(session)
            else:
                session.end(Closed("the session was idle for too long"))

    def _make_room(self) -> bool:
        """End the oldest session that its client has done nothing with."""
        session = next(iter(self._unused.values()), None)
        if session is None:
            return False
        session.end(Closed("the session gave way to a new one"))
        return True
