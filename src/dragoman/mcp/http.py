"""The HTTP side of a `Server`: both eras of Streamable HTTP on one endpoint.

A POST whose `MCP-Protocol-Version` names a stateless revision, or whose body's `_meta` names one, is an
exchange of its own; any other belongs to the session its `Mcp-Session-Id` names, or begins one by
`initialize`. GET opens a session's stream, or resumes a broken one; DELETE ends the session. `Host` and
`Origin` were looked at before (`transports.http_head.Guard`).

Rules (basic/transports; 2026's basic/transports/streamable-http):

- What cannot be served is a JSON-RPC error with the right status: 400 for what is no message here, a
  version or headers that do not agree; 404 for a session that is none, or a method that is not there;
  405, 406 and 415 as HTTP has them; 503 when busy or draining.
- Notifications and responses are 202 and have no body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from ..channel import Ended, busy
from ..jsonrpc.codec import read
from ..jsonrpc.errors import RpcError
from ..jsonrpc.messages import Batch, Malformed, Message, Notification, Request, Single
from ..rpc.gathering import Gathering
from ..rpc.run import Deliver
from ..transports.http_head import JSON_LINES, Endpoint, HttpRequest, Reply
from . import dialect
from .headers import check
from .http_answers import NO_SESSION, NO_STREAM, LonePost, SessionPost, refuse
from .http_heads import Facts, facts
from .http_sessions import HttpSession, Sessions
from .lifecycle import unknown
from .methods import HEADER_MISMATCH, UNSUPPORTED_VERSION
from .types import PROTOCOL_VERSION

if TYPE_CHECKING:
    from .http_replicas import Replica
    from .http_shared import SharedSession
    from .http_shared_posts import SharedPost
    from .server import Server
    from .shared import Shared

_MODERN = PROTOCOL_VERSION.encode()
_MISSING: Final = "Header mismatch: MCP-Protocol-Version header is missing"


class _Meta(Struct):
    version: str | UnsetType = field(default=UNSET, name=PROTOCOL_VERSION)


class _Said(Struct):
    """What params say that headers repeat. It reads no member that the method has not: what cannot be read here cannot
    be read by the method either."""

    meta: _Meta | UnsetType = field(default=UNSET, name="_meta")
    name: ClassVar[UnsetType] = UNSET
    arguments: ClassVar[UnsetType] = UNSET


class _Named(Struct):
    """The same of a method that has a name."""

    meta: _Meta | UnsetType = field(default=UNSET, name="_meta")
    name: str | UnsetType = UNSET
    arguments: Raw | UnsetType = UNSET


class _Located(Struct):
    """The same of a method whose name is a URI."""

    meta: _Meta | UnsetType = field(default=UNSET, name="_meta")
    name: str | UnsetType = field(default=UNSET, name="uri")
    arguments: ClassVar[UnsetType] = UNSET


_said = msgspec.json.Decoder(_Said).decode
_named = msgspec.json.Decoder(_Named).decode
_NAMED: Final[Mapping[str, Callable[[Raw], _Named | _Located]]] = {
    "tools/call": _named,
    "prompts/get": _named,
    "resources/read": msgspec.json.Decoder(_Located).decode,
}
_NOTHING = _Said()


def endpoints(server: Server, at: str) -> Mapping[str, Endpoint]:
    """The endpoint of a server at this path, and what stands beside it."""
    sessions = Sessions(server.host, server.options)
    found: dict[str, Endpoint] = {at: McpEndpoint(server, sessions)}
    if server.options.sse_2024:
        from .http_2024 import beside  # noqa: PLC0415  (an old wire, imported when switched on)

        found |= beside(server, at)
    return found


class McpEndpoint:
    """The MCP endpoint."""

    def __init__(self, server: Server, sessions: Sessions) -> None:
        self.server = server
        self.sessions = sessions
        self._stateful = bool(server.offered.stateful)
        self._stateless = bool(server.offered.stateless)
        self._service = server.service
        self._host = server.host
        self._replica: Replica | None = None

    def __call__(self, request: HttpRequest, reply: Reply) -> None:
        known: Facts | None = request.head.memo
        if known is None:
            known = facts(request.head, request.headers)
        if request.method == "POST":
            self._post(request, known, reply)
        elif request.method not in ("GET", "DELETE") or not self._sits or (known.modern and self._stateless):
            # "HTTP GET or DELETE to the MCP endpoint: respond with 405 Method Not Allowed"
            allow = (("Allow", "GET, POST, DELETE" if self._sits else "POST"),)
            refuse(reply, 405, f"{request.method} is not for this endpoint", lines=allow)
        elif request.method == "GET":
            self._get(request, known, reply)
        else:
            self._delete(request, known, reply)

    @property
    def _sits(self) -> bool:
        """Whether there are sessions here."""
        shared = self.server.shared
        return self._stateful and (shared is None or shared.store is not None)

    def _elsewhere(self, shared: Shared) -> Replica:
        """This endpoint as one of several that share their sessions."""
        if self._replica is None or self._replica.shared is not shared:
            from .http_replicas import Replica  # noqa: PLC0415  (nobody pays for replicas who has none)

            self._replica = Replica(self, shared)
        return self._replica

    # -- POST

    def _post(self, request: HttpRequest, known: Facts, reply: Reply) -> None:
        if not known.body:
            refuse(reply, 415, "Content-Type must be application/json, in UTF-8")
        elif not (known.json or known.sse):
            refuse(reply, 406, "Accept must list application/json and text/event-stream")
        else:
            service = self._service
            message = read(request.body, service.limits, service.lenient)
            if self._stateless and (known.modern or _names_revision(request.body, message)):
                self._alone(request, message, known, reply)
            elif self._stateful:
                self._in_session(request, message, known, reply)
            else:
                self._misses_version(message, reply)

    def _misses_version(self, message: Message, reply: Reply) -> None:
        """A message of the stateful era, where that is not spoken, or one without headers."""
        id = message.id if type(message) is Request else UNSET
        if type(message) is Request and message.method == "initialize":
            # "SHOULD name the protocol versions it supports in any error it returns to an `initialize`" (basic/versioning)
            refuse(reply, 400, self.unsupported(_asked(message)), id=id)
        else:
            refuse(reply, 400, RpcError.of(HEADER_MISMATCH, _MISSING), id=id)

    def unsupported(self, version: str) -> RpcError:
        """-32022, with what is spoken here."""
        offered = self.server.offered
        if self._sits or not self._stateful:
            data = {"supported": offered.dates, "requested": version}
            return RpcError.of(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
        text = "Unsupported protocol version: this server shares its load, and has nowhere to keep a session"
        supported = [*reversed([*offered.stateless])]
        return RpcError.of(UNSUPPORTED_VERSION, text, {"supported": supported, "requested": version})

    # -- the stateless era

    def _alone(self, request: HttpRequest, message: Message, known: Facts, reply: Reply) -> None:
        kind = type(message)
        if kind is not Request and kind is not Notification:
            self.unfit(message, reply)
            return
        reason = self._mismatch(message, known)  # type: ignore[arg-type]
        if reason is not None:
            id = message.id if type(message) is Request else UNSET
            refuse(reply, 400, RpcError.of(HEADER_MISMATCH, reason), id=id)
            return
        if message.method == "initialize" and not _names_revision(request.body, message):  # type: ignore[union-attr]
            # without `_meta` it would begin a session
            refuse(reply, 404, unknown("initialize"), id=message.id if type(message) is Request else UNSET)
            return
        post = LonePost(reply, request.body, request.caller, known, self.sessions, kind is Request)
        self._host.take(post, message)
        if not post.over:
            reply.gone = post.left

    def unfit(self, message: Message, reply: Reply, null: bool = False) -> None:
        """ "The body of the HTTP POST MUST be a single JSON-RPC request or notification"."""
        if type(message) is Malformed and message.answerable:
            spoken = msgspec.structs.replace(dialect.MCP, null_id=null)
            answer = self.server.service.answers.malformed(message, spoken)
            reply.respond(400, JSON_LINES, answer or b"")
        elif type(message) is Malformed:
            refuse(reply, 400, message.reason, null=null)
        elif type(message) is Batch:
            refuse(reply, 400, "Invalid Request: this revision has no batches, send one message at a time", null=null)
        else:
            refuse(reply, 400, "Invalid Request: nobody waits for a response here", null=null)

    def _mismatch(self, message: Request | Notification, known: Facts) -> str | None:
        """Why the headers do not say what the body says, or None."""
        method = message.method
        said: _Said | _Named | _Located = _NOTHING
        try:
            if message.params is not UNSET:
                said = _NAMED.get(method, _said)(message.params)
        except (msgspec.DecodeError, RecursionError):  # whoever reads the params has the words
            pass
        version = UNSET if said.meta is UNSET else said.meta.version
        # "Every POST request to the MCP endpoint MUST include an `MCP-Protocol-Version` header", and "The header value
        # MUST match the `io.modelcontextprotocol/protocolVersion` field carried in the request body's `_meta`"
        if known.version is None:
            return _MISSING
        if version is not UNSET and version != known.version:
            return (
                f"Header mismatch: MCP-Protocol-Version header value {known.version!r:.80}"
                f" does not match body value {version!r:.80}"
            )
        if type(message) is Notification:  # "header requirements for notification POSTs are not defined"
            return None
        name = None if said.name is UNSET else said.name
        marked = self.server.marks(name) if method == "tools/call" and name is not None else ()
        agreed = (method, name)
        if not marked and known.agreed == agreed:
            return None
        fault = check(method, name, said.arguments, marked, known.headers)
        if fault is None:
            known.agreed = agreed
        return fault

    # -- the stateful era

    def _in_session(self, request: HttpRequest, message: Message, known: Facts, reply: Reply) -> None:
        if (shared := self.server.shared) is not None:
            if shared.store is None:
                self._misses_version(message, reply)
            else:
                self._elsewhere(shared).post(request, message, known, reply)
            return
        begins = type(message) is Request and message.method == "initialize" and known.session is None
        session = self._begun(request, message, known, reply) if begins else self._session(request, known, reply)
        if session is None:
            return
        kind = type(message)
        inbox = session.peer.inbox
        if kind is Request:
            post = SessionPost(reply, known, session, begins=begins)
            inbox.take(message, post.deliver, post, request.caller)  # type: ignore[arg-type]
            if not post.over:
                post.wait(owed=True)
        elif kind is Batch and session.peer.inbox.dialect.batches:
            self.batch(request, message, known, reply, session, SessionPost(reply, known, session))  # type: ignore[arg-type]
        elif kind is Batch or kind is Malformed:
            if kind is Malformed:
                inbox.take(message, _nothing, session.say, request.caller)  # type: ignore[arg-type]  # its call fails
            self.unfit(message, reply, null=session.peer.inbox.dialect.null_id)
        else:
            inbox.take(message, _nothing, session.say, request.caller)  # type: ignore[arg-type]
            self.sessions.touch(session)
            # "If the server accepts the input, the server MUST return HTTP status code 202 Accepted with no body"
            reply.respond(202)

    def _begun(self, request: HttpRequest, message: Message, known: Facts, reply: Reply) -> HttpSession | None:
        """A session for an `initialize`; None when it was refused."""
        id = message.id if type(message) is Request else UNSET
        if known.version is not None and not self.fits(known):
            refuse(reply, 400, self.unsupported(known.version), id=id)
            return None
        session = self.sessions.begin(self.server.principal(request.caller), request.caller)
        if session is None:
            allowed = self.server.options.sessions
            error = dialect.MCP.error(busy("sessions", allowed))
            refuse(reply, 503, error, id=id, lines=(("Retry-After", "1"),))
        return session

    def fits(self, known: Facts) -> bool:
        """Whether the head names a stateful revision that is spoken here."""
        return known.version in self.server.offered.stateful

    def named_session(self, known: Facts, reply: Reply) -> str | None:
        """The id of the session that a request belongs to, if it is one; None when it was refused."""
        # "If the server receives a request with an invalid or unsupported `MCP-Protocol-Version`, it MUST respond with
        # 400 Bad Request"; without one the version is what was negotiated
        if known.version is not None and not self.fits(known):
            refuse(reply, 400, self.unsupported(known.version))
            return None
        if known.session is None:
            # "Servers that require a session ID SHOULD respond to requests without [it] with HTTP 400 Bad Request"
            refuse(reply, 400, "Mcp-Session-Id is missing: `initialize` gives one", null=known.null)
        return known.session

    def _session(self, request: HttpRequest, known: Facts, reply: Reply) -> HttpSession | None:
        """The session that a request belongs to; None when it was refused."""
        id = self.named_session(known, reply)
        if id is None:
            return None
        session = self.sessions.find(id, self.server.principal(request.caller))
        if session is None:
            # "it MUST respond to requests containing that session ID with HTTP 404 Not Found"
            refuse(reply, 404, NO_SESSION, null=known.null)
        return session

    def batch(
        self,
        request: HttpRequest,
        batch: Batch,
        known: Facts,
        reply: Reply,
        session: HttpSession | SharedSession,
        post: SessionPost | SharedPost,
    ) -> None:
        """Several messages at once: their answers leave together, 202 when none is owed."""
        inbox = session.peer.inbox
        asks = any(
            isinstance(one, Request) or (isinstance(one, Malformed) and one.answerable) for one in batch.messages
        )
        answers = self.server.service.answers

        def start(message: Single, deliver: Deliver) -> None:
            if type(message) is Request and message.method == "initialize":
                # "The initialize request MUST NOT be part of a JSON-RPC batch" (basic/lifecycle)
                deliver(answers.failed(message, RpcError.of(-32600, "Invalid Request: initialize stands alone")))
            else:
                inbox.take(message, deliver, post, request.caller)

        def done(found: list[bytes], size: int) -> None:
            if found:
                post.deliver(answers.batch(found, size))
            elif asks:
                post.deliver(None)
            else:
                post.over = True
                session.rest()
                reply.respond(202)

        Gathering(batch.messages, start, self.server.service.limits, done).step()
        if not post.over:
            post.wait(owed=asks)

    def _get(self, request: HttpRequest, known: Facts, reply: Reply) -> None:
        if not known.sse:
            # "The client MUST include an `Accept` header, listing `text/event-stream`"
            refuse(reply, 406, "Accept must list text/event-stream")
            return
        if (shared := self.server.shared) is not None:
            self._elsewhere(shared).get(request, known, reply)
            return
        session = self._session(request, known, reply)
        if session is None:
            return
        revision = session.revision
        if known.event is None or revision is None or not revision.resumable:
            session.home(reply)
            return
        broken = session.broken(known.event)
        if broken is None:
            refuse(reply, 400, NO_STREAM, null=known.null)
            return
        session.home(reply, *broken)

    def _delete(self, request: HttpRequest, known: Facts, reply: Reply) -> None:
        if (shared := self.server.shared) is not None:
            self._elsewhere(shared).delete(request, known, reply)
            return
        session = self._session(request, known, reply)
        if session is not None:
            session.end(Ended("the client ended the session"))
            reply.respond(204)


def _names_revision(body: bytes, message: Message) -> bool:
    """Whether a request says in `_meta` which revision it speaks: "served statelessly" (2026's basic/versioning)."""
    if _MODERN not in body or type(message) is not Request or message.params is UNSET:
        return False
    try:
        said = _said(message.params)
    except (msgspec.DecodeError, RecursionError):
        return False
    return said.meta is not UNSET and said.meta.version is not UNSET


class _Initialize(Struct):
    version: str = field(default="", name="protocolVersion")


_initialize = msgspec.json.Decoder(_Initialize).decode


def _asked(message: Request) -> str:
    """The version that an `initialize` asks for."""
    try:
        return "" if message.params is UNSET else _initialize(message.params).version
    except (msgspec.DecodeError, RecursionError):
        return ""


def _nothing(answer: bytes | None) -> None:
    pass
