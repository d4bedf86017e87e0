"""The HTTP side of a `Server`: both eras of Streamable HTTP on one endpoint.

A POST whose `MCP-Protocol-Version` names a stateless revision, or whose body's `_meta` names one, is an exchange of its
own; any other belongs to the session that its `Mcp-Session-Id` names, or begins one by `initialize`. GET opens a
session's stream, or resumes a broken one; DELETE ends the session. `Host` and `Origin` are already checked
(`transports.http.messages.OriginPolicy`).

Rules (basic/transports; 2026's basic/transports/streamable-http):

- A request that cannot be served gets a JSON-RPC error with the right status: 400 for a body that is not a message, and
  for a version or headers that do not agree; 404 for an unknown session or method; 405, 406 and 415 as HTTP has them;
  503 when busy or draining.
- A server that drains takes no new requests of sessions (503), so that a balancer tries another; answers to its own
  questions are accepted to the end.
- Notifications and responses are answered with 202 and no body.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Struct, field

from ...bus.contract import BusLost
from ...channel import Ended
from ...jsonrpc.codec import read
from ...jsonrpc.errors import InternalError, RpcError
from ...jsonrpc.messages import Batch, Malformed, Message, Notification, Request
from ...repeats import Repeats
from ...transports.http.messages import Endpoint, Head, HttpRequest, Reply, retry_after
from ..protocol import dialect
from ..protocol.admission import claimed
from ..protocol.headers import METHOD, NAME, decode_value
from ..protocol.methods import HEADER_MISMATCH, UNSUPPORTED_VERSION
from ..session.backend import McpBackend
from ..session.refusals import AWAY, NO_BATCHES, NO_SESSION
from ..session.replica import ReplicaSessions
from ..session.session import Session, SessionTable
from .errors import MEDIA_TYPE, refuse, send_refusal
from .head import RequestHead, read_head
from .legacy_2024 import endpoints_2024
from .readers import HttpReader, refuse_malformed
from .stateless import StatelessExchange

if TYPE_CHECKING:
    from ..session.shared import Replica

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)

_LISTEN: Final = "subscriptions/listen"
_METHOD: Final = METHOD.encode()
_NAME: Final = NAME.encode()
_MISSING: Final = "Header mismatch: MCP-Protocol-Version header is missing"


def endpoints(server: McpBackend, at: str) -> Mapping[str, Endpoint]:
    """Return the endpoints of a server, by path: the one at `at`, and those of HTTP+SSE beside it, if it has them."""
    found: dict[str, Endpoint] = {at: McpEndpoint(server)}
    if server.options.sse_2024:
        found |= endpoints_2024(server, at)
    return found


class McpEndpoint:
    """The MCP endpoint of one server."""

    def __init__(self, server: McpBackend) -> None:
        self.server = server
        self._stateful_revisions = server.offered.stateful
        """The stateful revisions that this server offers."""
        self._stateless = bool(server.offered.stateless)
        self._service = server.service
        self._host = server.host
        self._table = SessionTable(server.host, server.options, server.subscriptions)
        self._shared: Replica | None = None
        """The replica through which the table's sessions are shared; None: they are not."""

    def __call__(self, request: HttpRequest, reply: Reply) -> None:
        known: RequestHead | None = request.head.memo
        if known is None:
            known = read_head(request.head, request.headers, self._stateful_revisions)
        if request.method != "POST":
            self._serve_get_or_delete(request, known, reply)
        elif not (known.body or self._service._lenient.any_media_type):
            refuse(reply, 415, MEDIA_TYPE)
        elif not (known.json or known.sse):
            refuse(reply, 406, "Accept must list application/json and text/event-stream")
        else:
            service = self._service
            message = read(request.body, service.limits, service._lenient)
            # if the head names no valid session, the body decides which era was meant
            named = known.session is not None and known.unspoken is None
            if self._stateless and (known.modern or (not named and _names_revision(message))):
                self._serve_stateless(request, message, known, reply)
            elif (sessions := self._sessions()) is not None:
                self._in_session(sessions, request, message, known, reply)
            else:
                self._refuse_without_version(message, reply)

    def scopes_of(self, head: Head) -> frozenset[str]:
        """Return the scopes that a call needs, by the headers that repeat its method and name."""
        method = head.headers.get(_METHOD)
        if method is None or head.method != "POST":
            return frozenset()
        try:
            name = decode_value(head.headers.get(_NAME, b"").decode("latin-1"))
        except ValueError:
            return frozenset()
        return self.server.scopes_of(method.decode("latin-1"), name)

    def _serve_get_or_delete(self, request: HttpRequest, known: RequestHead, reply: Reply) -> None:
        """Answer a GET or DELETE, which only sessions have, or refuse another method."""
        sessions = self._sessions()
        if request.method not in ("GET", "DELETE") or sessions is None or (known.modern and self._stateless):
            # "HTTP GET or DELETE to the MCP endpoint: respond with 405 Method Not Allowed"
            allow = (("Allow", "POST" if sessions is None else "GET, POST, DELETE"),)
            refuse(reply, 405, f"{request.method} is not for this endpoint", lines=allow)
        elif request.method == "GET" and not known.sse:
            # "The client MUST include an `Accept` header, listing `text/event-stream`"
            refuse(reply, 406, "Accept must list text/event-stream")
        else:
            self._in_session(sessions, request, None, known, reply)

    def _refuse_without_version(self, message: Message, reply: Reply) -> None:
        """Refuse a message that names no stateless revision, where there are no sessions."""
        if type(message) is Request and message.method == "initialize":
            # "SHOULD name the protocol versions it supports in any error it returns to an `initialize`"
            # (basic/versioning)
            refuse(reply, 400, self.unsupported(_requested_version(message)), id=message.id)
        else:
            refuse(reply, 400, RpcError.of(HEADER_MISMATCH, _MISSING), id=_id(message))

    def unsupported(self, version: str) -> RpcError:
        """Return the error for a version that is not offered: -32022, with the revisions that are."""
        offered = self.server.offered
        if self._sessions() is not None or not self._stateful_revisions:
            data = {"supported": offered.dates, "requested": version}
            return RpcError.of(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
        text = "Unsupported protocol version: this server shares its load, and has nowhere to keep a session"
        supported = [*reversed([*offered.stateless])]
        return RpcError.of(UNSUPPORTED_VERSION, text, {"supported": supported, "requested": version})

    # -- the stateless era

    def _serve_stateless(self, request: HttpRequest, message: Message, known: RequestHead, reply: Reply) -> None:
        kind = type(message)
        if kind is not Request and kind is not Notification:
            self._refuse_unfit(message, reply)
            return
        exchange = StatelessExchange(reply, request.body, request.caller, known, self.server, kind is Request)
        if kind is Request and message.method == _LISTEN:  # type: ignore[union-attr]
            exchange.standing(request.caller)
        self._host.take(exchange, message)
        if not exchange.over:
            reply.gone = exchange.left

    def _refuse_unfit(self, message: Message, reply: Reply) -> None:
        """Refuse a body of the stateless era that is neither: "The body of the HTTP POST MUST be a single JSON-RPC
        request or notification"."""
        if isinstance(message, Malformed):
            refuse_malformed(reply, message, self._service._answers)
        elif type(message) is Batch:
            send_refusal(reply, NO_BATCHES)
        else:
            refuse(reply, 400, "Invalid Request: no request of this server waits for a response")

    # -- the stateful era

    def _sessions(self) -> SessionTable | None:
        """Return the table of sessions; None if there are no sessions here."""
        server = self.server
        shared = server.shared
        if not self._stateful_revisions or (shared is not None and shared.store is None):
            return None
        if self._shared is not shared:
            elsewhere = None if shared is None else ReplicaSessions(shared)
            self._shared, self._table = (
                shared,
                SessionTable(server.host, server.options, server.subscriptions, elsewhere),
            )
        return self._table

    def _in_session(
        self, sessions: SessionTable, request: HttpRequest, message: Message | None, known: RequestHead, reply: Reply
    ) -> None:
        """Serve an HTTP request that belongs to a session, or begins one. `message`: None except for a POST."""
        asks = type(message) is Request
        identity = request.caller.identity
        principal = None if identity is None else identity.principal
        if self.server.call_limit.draining and (asks or type(message) is Batch or request.method == "GET"):
            self._refuse_draining(reply, _id(message))
        elif known.session is None and asks and message.method == "initialize":  # type: ignore[union-attr]
            self._begin(sessions, request, message, known, reply)  # type: ignore[arg-type]
        # "If the server receives a request with an invalid or unsupported `MCP-Protocol-Version`, it MUST respond with
        # 400 Bad Request"; without one the version is what was negotiated
        elif known.unspoken is not None:
            refuse(reply, 400, self.unsupported(known.unspoken), id=_id(message))
        elif known.session is None:
            # "Servers that require a session ID SHOULD respond to requests without [it] with HTTP 400 Bad Request"
            refuse(reply, 400, "Mcp-Session-Id is missing: `initialize` gives one", id=_id(message), null=known.null)
        elif asks and message.method == "initialize":  # type: ignore[union-attr]
            sessions.run(self._begin_another(sessions, known.session, request, message, known, reply))  # type: ignore[arg-type]
        elif asks and (session := sessions.here(known.session, principal)) is not None:
            try:
                reader = HttpReader(reply, known.json, known.sse, session.peer._dialect.null_id, self.server)
                session.request(message, request.body, reader, request.caller)  # type: ignore[arg-type]
            except Exception:
                self._refuse_raised(reply, message.id)  # type: ignore[union-attr]
        else:
            sessions.run(self._serve(sessions, known.session, request, message, known, reply))

    def _begin(
        self, sessions: SessionTable, request: HttpRequest, message: Request, known: RequestHead, reply: Reply
    ) -> None:
        if known.unspoken is not None:
            refuse(reply, 400, self.unsupported(known.unspoken), id=message.id)
            return
        session = Session(sessions, request.caller.principal, request.caller)
        reader = HttpReader(reply, known.json, known.sse, known.null, self.server)
        session.request(message, request.body, reader, request.caller, begins=True)

    async def _begin_another(
        self,
        sessions: SessionTable,
        id: str,
        request: HttpRequest,
        message: Request,
        known: RequestHead,
        reply: Reply,
    ) -> None:
        """Begin another session for an `initialize` that names one: its client has begun anew, and kept the header."""
        try:
            if await sessions.find(id, request.caller.principal, request.caller) is None:
                send_refusal(reply, NO_SESSION, id=message.id, null=known.null)
            else:
                self._begin(sessions, request, message, known, reply)
        except BusLost as lost:
            logger.warning("%s: %s", self.server.name, lost)
            send_refusal(reply, AWAY, id=message.id)
        except Exception:
            self._refuse_raised(reply, message.id)

    async def _serve(
        self,
        sessions: SessionTable,
        id: str,
        request: HttpRequest,
        message: Message | None,
        known: RequestHead,
        reply: Reply,
    ) -> None:
        server = self.server
        try:
            session = await sessions.find(id, request.caller.principal, request.caller)
            if session is None:
                send_refusal(reply, NO_SESSION, id=_id(message), null=known.null)
                return
            # an error without an id is written as the session's revision has it
            reader = HttpReader(reply, known.json, known.sse, session.peer._dialect.null_id, server)
            if type(message) is Request:
                session.request(message, request.body, reader, request.caller)
                return
            reader.wait()
            if message is not None:
                await session.take(message, request.body, reader, request.caller)
            elif request.method == "GET":
                reader.standing, reader.session = request.caller, session
                reader.about = "messages" if known.event is None else f"messages after {known.event[:64]}"
                await session.listen(reader, known.event)
            else:
                await sessions.erase(session)
                session.end(Ended("the client ended the session"))
                reply.respond(204)
        except BusLost as lost:
            repeats.warning("%s: %s", server.name, lost)
            send_refusal(reply, AWAY, id=_id(message))
        except Exception:
            self._refuse_raised(reply, _id(message))

    def _refuse_raised(self, reply: Reply, id: Any) -> None:
        logger.exception("a request of a session raised")
        refuse(reply, 500, InternalError("Internal error"), id=id)

    def _refuse_draining(self, reply: Reply, id: Any = UNSET) -> None:
        refusal = self.server.call_limit.refusal()
        assert refusal is not None
        refuse(reply, 503, dialect.MCP.error(refusal), id=id, lines=retry_after(refusal))


def _id(message: Message | None) -> Any:
    """Return the id of a request, for an error: it "MUST include the same ID as the request" (basic); UNSET for
    others."""
    return message.id if type(message) is Request else UNSET


def _names_revision(message: Message) -> bool:
    """Return whether a request names its revision in `_meta`: "served statelessly" (2026's basic/versioning)."""
    return type(message) is Request and claimed(message.params) is not UNSET


class _Initialize(Struct):
    version: str = field(default="", name="protocolVersion")


_initialize = msgspec.json.Decoder(_Initialize).decode


def _requested_version(message: Request) -> str:
    """Return the version that an `initialize` requests."""
    try:
        return "" if message.params is UNSET else _initialize(message.params).version
    except (msgspec.DecodeError, RecursionError):
        return ""
