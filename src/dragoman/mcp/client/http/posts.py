"""The client's end of Streamable HTTP: every message is a POST, answered by JSON or by a stream of events.

Rules, of basic/transports in both eras and of our own:

- A call ends with its answer, or at once with a named error: `HttpRefused`, `SessionLost`, `StreamLost`, Broken,
  BadAnswer. The error of one call does not affect the next.
- In the stateless era closing the POST cancels the call. In the stateful era it does not, and a stream that ends
  before its answer is resumed by GET, as long as the call waits, if the server gave an event id.
- The session id comes with the answer to `initialize` and is sent with everything after it; `close` deletes the
  session.
- A redirect by 307 or 308 is followed at the same origin; every other one is refused. A response of ours, or a
  notification, that a proxy could not forward is sent once more, because that does no harm. A call is not.
- Calls, messages without an answer, and `subscriptions/listen` have lanes of their own, so that a response of ours
  never waits for a call that waits for it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping
from urllib.parse import urljoin

import msgspec

from ....channel import Broken, Caller, ChannelError, Closed, Options, Outgoing, Receiver
from ....jsonrpc.errors import BadAnswer, LocalError, RpcError, too_large
from ....jsonrpc.limits import Limits
from ....net.replies import excerpt, no_answer_error
from ....net.scheme import missing_package_error
from ....net.urls import Url, parse, printable
from ....repeats import Repeats
from ....transports.http.client.posts import Lane, PendingPost, Posts
from ....transports.http.sse import EventTooLong
from ...protocol.headers import session_name
from ..authorization import operation
from .refusals import HttpRefused, PeekedMessage, SessionLost, StreamLost, error_of, peek

try:
    from ....transports.http.client.authorized import AuthorizedPool, RequestSender, requests_to
    from ....transports.http.client.connection import ClientReply
    from .events import Events, is_stream, is_temporary, stay
except ModuleNotFoundError as _missing:
    raise missing_package_error("http", _missing) from _missing

JSON = "application/json"
EVENTS = "text/event-stream"
TRIES = 5
"""How many tries in a row to resume a call's stream may fail."""
AGAIN = 0.1
"""Seconds until a response of ours, or a notification, that could not be forwarded is sent once more."""
REDIRECTS = 3
LINGER = 2.0
"""Seconds that a stream may stay open after its last message, so that its connection can be reused."""
LINGERING = 100
DELETE_TIMEOUT = 5.0
"""Seconds for the server to answer the DELETE of the session."""

log: logging.Logger = logging.getLogger(__name__)
repeats: Repeats = Repeats(log)

decode_text: Callable[[bytes], str] = msgspec.json.Decoder(str).decode

KEPT = 3
"""Connections that are reserved: for the home stream, and for one message of each of two idle lanes."""


async def dial_mcp(url: str, options: Options) -> StreamableHttp:
    """Open a channel to the MCP endpoint at `url` (http: or https:). Connects when the first message is sent.

    `options`: limits, tls, headers, auth. Raises LocalError for a URL, a header or a secret that cannot be sent.
    """
    server_url = parse(url)
    return StreamableHttp(server_url, options.limits, requests_to(server_url, options, f"{JSON}, {EVENTS}", operation))


class Sent:
    """A message that is being sent, with the channel's state when `send` was called."""

    __slots__ = ("call", "first", "headers", "owed", "session", "stateless", "why")

    def __init__(
        self, call: Outgoing | None, headers: dict[str, str], stateless: bool, peeked: list[PeekedMessage]
    ) -> None:
        self.call: Outgoing | None = call
        self.headers: dict[str, str] = headers
        self.session: str | None = headers.get("mcp-session-id")
        self.stateless: bool = stateless
        self.owed: set[bytes] = {one.id for one in peeked if one.kind == "request"}
        """The ids of its requests that wait for an answer, as JSON text."""
        self.first: bool = len(peeked) == 1 and peeked[0].method == b'"initialize"'
        self.why: Exception | None = None
        """What was wrong in its event stream, in place of an answer."""


class StreamableHttp:
    """A `Channel` over Streamable HTTP of either era.

    `version` is sent as MCP-Protocol-Version, except with `initialize`; the headers in a call's `extra` override it.
    """

    def __init__(self, server_url: Url, limits: Limits, pool: RequestSender) -> None:
        self.caller: Caller = Caller(
            scheme=server_url.scheme, remote=server_url.address, path=server_url.path, tls=server_url.tls
        )
        self.writable: bool = True
        self.duplex: bool = True
        """False in the stateless era: there the server only answers, and no message cancels a call."""
        self.version: str | None = None
        self.session: str | None = None
        """The Mcp-Session-Id, from the answer to `initialize`; dropped when a new `initialize` is sent."""
        self.on_status: Callable[[Outgoing, int], object] | None = None
        """Called with the HTTP status, 400 or more, of a JSON-RPC error that answers a call."""
        self.on_session_lost: Callable[[SessionLost], object] | None = None
        """Called once when the server no longer knows the session."""
        self.delivering: Outgoing | None = None
        """The call whose event stream brings the message that is being delivered; None: no such stream does."""
        self._url = server_url
        self._limits = limits
        self._pool = pool
        self._lost: SessionLost | None = None
        self._awaited: dict[bytes, Sent] = {}
        self._home: asyncio.Task[None] | None = None
        self._lingering: set[asyncio.Task[None]] = set()
        most = limits.connections - KEPT
        self._notes, self._calls, self._lasting = Lane(most), Lane(most), Lane(most, limits.connections // 2)
        lanes = (self._notes, self._calls, self._lasting)
        self._posts = Posts(
            str(server_url), limits, lanes, run=self._run, writable=self._set_writable, release=self._release
        )
        self.authorized: AuthorizedPool | None = pool if isinstance(pool, AuthorizedPool) else None
        if self.authorized is not None:
            self.authorized.posts = self._posts

    @property
    def session_name(self) -> str:
        """The name of its session for observers; "" without one."""
        return session_name(self.session) if self.session else ""

    # -- the contract -----------------------------------------------------------------------------

    def open(self, receiver: Receiver) -> None:
        """Start delivering to `receiver`."""
        self._posts.receiver = receiver

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        """POST `message`, at once or when it may run."""
        self._posts.check()
        peeked = [] if call is None and not self.stateless else peek(message) or []
        first = len(peeked) == 1 and peeked[0].method == b'"initialize"'
        if first:
            self._begin()
        elif self._lost is not None and not self.stateless:
            if call is not None:
                asyncio.get_running_loop().call_soon(call.failed, SessionLost(*self._lost.args))
            return
        extra = None if call is None else call.extra
        if call is None and self.stateless and len(peeked) == 1:  # a notification, which has no options of its own
            extra = {"mcp-method": decode_text(peeked[0].method)}
        sent = Sent(call, self._headers(first, extra), self.stateless, peeked)
        lane = self._notes if call is None else self._calls
        if peeked and peeked[0].method == b'"subscriptions/listen"':
            lane = self._lasting
        self._posts.send(message, call, lane, sent)

    async def flush(self) -> None:
        """Wait for space in the queue, and until the server has accepted the current task's notifications.

        Raises the error of one that was refused: HttpRefused, SessionLost, Broken or BadAnswer.
        """
        await self._posts.flush()

    async def close(self) -> None:
        """Let running POSTs end (within `limits.write_timeout`), delete the session, close the pool."""
        await self._posts.close()

    def abort(self, why: ChannelError) -> None:
        """Abort everything and close the pool."""
        self._posts.abort(why)

    # -- the two eras -----------------------------------------------------------------------------

    @property
    def stateless(self) -> bool:
        """Whether the rules of the stateless era apply to messages from now on."""
        return not self.duplex

    @stateless.setter
    def stateless(self, stateless: bool) -> None:
        self.duplex = not stateless

    def listen(self) -> None:
        """Open the home stream, for the server's messages outside calls, and reconnect to it until it is refused.

        A server without one answers 405. Raises LocalError in the stateless era, which has none.
        """
        self._posts.check()
        if self.stateless:
            raise LocalError("the stateless era has no home stream: send subscriptions/listen")
        if self._home is None or self._home.done():
            self._home = asyncio.get_running_loop().create_task(
                stay(
                    str(self._url),
                    Events(self._limits.message_size),
                    get=functools.partial(self._get, self.session),
                    take=self._take_unrequested,
                    lost=functools.partial(self._session_lost, self.session),
                )
            )

    def _begin(self) -> None:
        """Drop the state of the old session, because a new one is requested."""
        self.session = self._lost = None
        if self._home is not None:
            self._home.cancel()
            self._home = None

    def _headers(self, first: bool, extra: Mapping[str, str] | None) -> dict[str, str]:
        headers: dict[str, str] = {}
        if not first:
            # "the client MUST include the MCP-Protocol-Version header on all subsequent requests"
            if self.version is not None:
                headers["mcp-protocol-version"] = self.version
            # "clients MUST include it in the MCP-Session-Id header on all of their subsequent HTTP requests"
            if self.session is not None and not self.stateless:
                headers["mcp-session-id"] = self.session
        if extra:
            for name, value in extra.items():
                headers[name.lower()] = value
        return headers

    def _learn(self, sent: Sent, reply: ClientReply) -> None:
        """Store the session id of an answered `initialize`. Raises BadAnswer for an id that is not allowed."""
        if not sent.first or sent.stateless:
            return
        session = reply.headers.get("mcp-session-id")
        # "The session ID MUST only contain visible ASCII characters (ranging from 0x21 to 0x7E)"
        if session is not None and not (session and all("\x21" <= c <= "\x7e" for c in session)):
            raise BadAnswer("the server's Mcp-Session-Id has characters that no session id may have")
        self.session = session

    def _session_lost(self, session: str | None) -> SessionLost:
        """Report the loss of a session, once, and return its error. "When a client receives HTTP 404 in response to a
        request containing an MCP-Session-Id, it MUST start a new session": the `Client` does that."""
        why = SessionLost(f"{self._url} no longer knows the session")
        if session is not None and session == self.session and self._lost is None:
            self._lost = why
            if self.on_session_lost is not None:
                try:
                    self.on_session_lost(why)
                except Exception:
                    log.exception("on_session_lost failed")
        return why

    # -- one POST ---------------------------------------------------------------------------------

    async def _run(self, post: PendingPost) -> Exception | None:
        sent: Sent = post.how
        call = sent.call
        for id in sent.owed:
            self._awaited[id] = sent
        try:
            why = await self._exchange(post.message, sent)
            if call is None and _is_temporary(why):
                await asyncio.sleep(AGAIN)
                why = await self._exchange(post.message, sent)
        finally:
            for id in sent.owed:
                self._awaited.pop(id, None)
        if call is None:
            if why is not None:
                log.debug("%s: a message was not taken: %s", self._url, why)
            return why
        call.abandon = None
        if not call.settled:
            call.failed(why or BadAnswer(f"the answer of {self._url.address} makes no sense"))
        return None

    async def _exchange(self, message: bytes, sent: Sent) -> Exception | None:
        """POST a message and deliver the reply. Return the reason if there is no answer, else None."""
        timeout = self._limits.call_timeout if sent.call is None else None
        try:
            reply = await self._ask("POST", sent.headers, message, timeout)
            try:
                if is_stream(reply):
                    self._learn(sent, reply)
                    return await self._follow(sent, reply)
                # an event stream may have no end
                body = b"" if reply.kind == EVENTS else await reply.body(self._limits.message_size)
                if reply.kind == EVENTS:
                    reply.close()
            except BaseException:
                reply.close()
                raise
            if not 200 <= reply.status < 300:
                return self._refused(sent, reply, body)
            if sent.call is None:
                return None
            self._learn(sent, reply)
            return self._deliver_success(sent, reply, body)
        except (Broken, BadAnswer) as error:
            return error

    async def _ask(
        self, method: str, headers: dict[str, str], body: bytes | None, timeout: float | None
    ) -> ClientReply:
        reply = await self._pool.ask(method, body, headers, timeout=timeout)
        for _ in range(REDIRECTS):
            if reply.status not in (307, 308):
                break
            target = self._same_origin(reply.headers.get("location", ""))
            if target is None:
                break
            reply.close()
            reply = await self._pool.ask(method, body, headers, target=target, timeout=timeout)
        return reply

    def _same_origin(self, location: str) -> str | None:
        """Return path and query of a redirect's target; None if it leads to another origin."""
        here = self._url
        try:
            target = parse(urljoin(f"{here.scheme}://{here.address}{here.target}", location))
        except (LocalError, ValueError):
            return None
        same = location and (target.scheme, target.address) == (here.scheme, here.address)
        return target.target if same else None

    def _deliver_success(self, sent: Sent, reply: ClientReply, body: bytes) -> Exception | None:
        """Deliver the body of a success; return why it does not answer this call, or None."""
        if not body:
            return BadAnswer(f"{reply.line} without a body, which answers no call")
        if reply.kind != JSON:
            return BadAnswer(f"{reply.line} with {printable(reply.kind)}, which answers no call: {excerpt(body)}")
        peeked = peek(body)
        if peeked is None:
            return BadAnswer(f"{reply.line} with a body that is not JSON-RPC: {excerpt(body)}")
        if len(peeked) == 1 and peeked[0].kind == "orphan":
            return error_of(body) or BadAnswer(f"an answer without an id: {excerpt(body)}")
        if not _settles(sent, peeked):
            return BadAnswer(f"the reply's id does not match the call: {excerpt(body)}")
        self._deliver(body, sent.call)
        return no_answer_error(body)  # where it did not settle the call

    def _refused(self, sent: Sent, reply: ClientReply, body: bytes) -> Exception | None:
        """Deliver the JSON-RPC error in a refusal; return the error for the call if it was not settled by that."""
        if reply.status == 404 and sent.session is not None:
            return self._session_lost(sent.session)
        refused = HttpRefused(reply.status, body, reply.headers, f"POST {self._url}")
        if refused.error is None or reply.status in (401, 403) or sent.call is None:
            return refused
        peeked = peek(body) or []
        orphan = len(peeked) == 1 and peeked[0].kind == "orphan"
        if not orphan and not _settles(sent, peeked):
            return refused
        if self.on_status is not None:
            self.on_status(sent.call, reply.status)
        if orphan:  # it has no id, but is meant for this call
            return refused.error
        self._deliver(body, sent.call)
        return refused  # where it did not settle the call

    def _deliver(self, message: bytes, call: Outgoing | None) -> None:
        if self._posts.receiver is not None:
            self._posts.receiver.received(message, call)

    # -- a call's event stream --------------------------------------------------------------------

    async def _follow(self, sent: Sent, reply: ClientReply) -> Exception | None:
        """Deliver the messages of a call's stream until the call is answered, over as many connections as that takes.
        Return the reason if there is no answer. Raises StreamLost."""
        events = Events(self._limits.message_size)
        own = True
        while True:
            broke: Broken | None = None
            try:
                if await events.read(reply, lambda data, own=own: self._handle_event(sent, data, own)):  # type: ignore[misc]
                    self._let_end(reply)
                    return sent.why
                if isinstance(sent.why, RpcError):  # an error without an id, and nothing else in this stream
                    reply.close()
                    return sent.why
            except Broken as error:
                broke = error
            except BaseException:
                reply.close()
                raise
            reply.close()
            if sent.call is None:
                return None
            how = f"the event stream of {self._url.address} {'broke' if broke else 'ended'} before the answer"
            if sent.why is not None:
                how += f"; meanwhile {sent.why}"
            if sent.stateless or not events.last_id:
                return StreamLost(f"{how}, and gave no event id to take it up by" if not sent.stateless else how)
            own = False
            reply = await self._resume(sent, events, how)

    async def _resume(self, sent: Sent, events: Events, how: str) -> ClientReply:
        """Resume a stream where it ended. Raises StreamLost."""
        for _ in range(TRIES):
            await asyncio.sleep(events.pause())
            try:
                reply = await self._get(sent.session, events.last_id)
            except (Broken, BadAnswer) as error:
                why = str(error)
                continue
            if is_stream(reply):
                return reply
            reply.close()
            why = reply.line
            if reply.status == 404 and sent.session is not None:
                why = str(self._session_lost(sent.session))
            if not is_temporary(reply.status):
                break
        raise StreamLost(f"{how}, and cannot be taken up again: {why}")

    def _handle_event(self, sent: Sent, data: bytes | EventTooLong, own: bool) -> bool:
        """Handle one event of a call's stream; return True when no more are needed. `own`: it came on the connection of
        the call's POST."""
        if isinstance(data, EventTooLong):
            sent.why = BadAnswer(f"an event: {too_large('message_size', data.allowed, None).reason}")
            return True
        peeked = peek(data)
        if peeked is None or (len(peeked) == 1 and peeked[0].kind == "orphan"):
            return self._deliver_orphan(sent, data)
        # "The server MUST NOT send independent JSON-RPC requests on this stream", and no answer may be sent
        if sent.stateless and any(one.kind == "request" for one in peeked):
            repeats.warning("%s asks, which it must not in this era: passed over", self._url)
            return False
        return self._deliver_and_settle(data, peeked, sent if own else None, sent)

    def _deliver_orphan(self, sent: Sent, data: bytes) -> bool:
        """Deliver an event that names no call; return True if it is the answer of this stream's call all the same."""
        self._deliver(data, sent.call)  # this fails the call if the id can be read, and else only reports the event
        if sent.call is not None and sent.call.settled:
            return True
        error = error_of(data)
        sent.why = error or BadAnswer(f"an event that is not JSON-RPC came: {excerpt(data)}")
        repeats.warning("%s: an event that answers no call is passed over: %s", self._url, excerpt(data))
        return False

    def _deliver_and_settle(
        self, data: bytes, peeked: list[PeekedMessage], strict: Sent | None, sent: Sent | None
    ) -> bool:
        """Deliver a message of a stream, and settle the calls that it answers. Return True when the stream's own call
        needs no more. `strict`: the call whose POST the stream answers: then it may answer no unknown id; `sent`: the
        call of the stream; None: it is the home stream."""
        owners: list[Outgoing | None] = []
        for one in peeked:
            if one.kind != "answer":
                continue
            owner = self._awaited.pop(one.id, None)
            if owner is None:
                if strict is None:
                    log.debug("%s answers no request", self._url)
                    continue
                strict.why = BadAnswer(f"the reply's id does not match the call: {excerpt(data)}")
                return True
            owner.owed.discard(one.id)
            owners.append(owner.call)
            if owner is not sent and not owner.owed and owner.call is not None and owner.call.abandon is not None:
                owner.call.abandon()  # its own stream is not needed any more
        self.delivering = None if sent is None else sent.call
        try:
            self._deliver(data, owners[0] if len(owners) == 1 else None)
        finally:
            self.delivering = None
        return sent is not None and not sent.owed

    def _let_end(self, reply: ClientReply) -> None:
        """Let a stream whose last message has come end by itself, so that its connection can be reused."""
        if reply.ended:
            return
        if len(self._lingering) >= LINGERING or self._posts.ending is not None:
            reply.close()
            return
        task = asyncio.get_running_loop().create_task(_read_to_end(reply))
        self._lingering.add(task)
        task.add_done_callback(self._lingering.discard)

    def _take_unrequested(self, data: bytes | EventTooLong) -> bool:
        """Handle one event of the home stream; return False, because more may come."""
        peeked = None if isinstance(data, EventTooLong) else peek(data)
        if peeked is None or isinstance(data, EventTooLong) or (len(peeked) == 1 and peeked[0].kind == "orphan"):
            repeats.warning("%s: an event of the home stream makes no sense and is passed over", self._url)
        else:
            self._deliver_and_settle(data, peeked, None, None)
        return False

    async def _get(self, session: str | None, last_id: str) -> ClientReply:
        headers = self._headers(False, None) | {"accept": EVENTS}
        headers.pop("mcp-session-id", None)
        if session is not None:
            headers["mcp-session-id"] = session
        if last_id:
            headers["last-event-id"] = last_id
        return await self._ask("GET", headers, None, None)

    # -- the end ----------------------------------------------------------------------------------

    def _set_writable(self, writable: bool) -> None:
        self.writable = writable

    async def _release(self) -> None:
        tasks = [*self._lingering, *([self._home] if self._home is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self.session is not None and self._lost is None and isinstance(self._posts.ending, Closed):
            # "Clients that no longer need a particular session SHOULD send an HTTP DELETE"; 405 is fine
            headers = self._headers(False, None) | {"mcp-session-id": self.session}
            try:
                async with asyncio.timeout(DELETE_TIMEOUT):
                    (await self._ask("DELETE", headers, None, None)).close()
            except (Broken, BadAnswer, TimeoutError) as error:
                log.debug("%s: the session was not deleted: %s", self._url, error)
        await self._pool.close()


def _settles(sent: Sent, peeked: list[PeekedMessage]) -> bool:
    """Return whether one of these messages answers the one that was sent."""
    return not sent.owed.isdisjoint([one.id for one in peeked if one.kind == "answer"])


def _is_temporary(why: Exception | None) -> bool:
    """Return whether the next try may succeed: a broken connection, a proxy without a server, a closing server."""
    if isinstance(why, HttpRefused):
        return why.status in (502, 503, 504)
    return type(why) is Broken


async def _read_to_end(reply: ClientReply) -> None:
    try:
        async with asyncio.timeout(LINGER):
            while await reply.chunk():
                pass
    except (Broken, BadAnswer, TimeoutError):
        pass
    finally:
        reply.close()
