"""JSON-RPC over HTTP, the calling end: every message is one POST, and its answer is the response's body.

Rules:

- The channel is not one connection but a pool (kept alive, at most `limits.connections` POSTs at once, further
  ones wait in order). Dialling does not connect yet; a refused POST fails its own call, and the next one connects
  again.
- A body that contains JSON-RPC is the answer with any HTTP status (400, 413, 500, 503 carry JSON-RPC errors). A
  body that does not fails the call at once, with the status, the media type, and one line of the body.
- A POST is never repeated and a redirect never followed, because only the caller knows whether a method may run twice.
- Notifications have no order except the sender's own: `flush` returns when the server has accepted those
  that the current task sent, and raises the error of one that was not accepted.
- Time-outs are the peer's, but for connecting (`pool.CONNECT_TIMEOUT`) and for notifications (`limits.call_timeout`).
- No cookies, no proxy or netrc from the environment.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from ....channel import Broken, Caller, Channel, Options, Outgoing, Receiver
from ....jsonrpc.errors import BadAnswer
from ....jsonrpc.limits import Limits
from ....net.replies import excerpt, holds_response, no_answer_error, orphan
from ....net.urls import Url, parse, printable
from .authorized import AuthorizedPool, RequestSender, requests_to
from .connection import ClientReply
from .posts import Lane, PendingPost, Posts

log: logging.Logger = logging.getLogger(__name__)


async def dial(url: str, options: Options) -> Channel:
    """A channel that POSTs to `url` (http: or https:). Connects when the first message is sent.

    `options`: limits, tls, headers, auth (which goes before the URL's user and password). Raises
    LocalError for a URL, a header or a secret that cannot be sent.
    """
    where = parse(url)
    return _HttpChannel(where, options.limits, requests_to(where, options, "application/json"))


class _HttpChannel:
    """The calling end of JSON-RPC over HTTP."""

    def __init__(self, where: Url, limits: Limits, pool: RequestSender) -> None:
        self.caller = Caller(scheme=where.scheme, remote=where.address, path=where.path, tls=where.tls)
        self.duplex = False
        self.writable = True
        self._where = where
        self._limits = limits
        self._pool = pool
        self._lane = Lane(limits.connections)
        self._posts = Posts(
            str(where), limits, (self._lane,), run=self._run, writable=self._set_writable, release=pool.close
        )
        self.flush, self.close, self.abort = self._posts.flush, self._posts.close, self._posts.abort
        if isinstance(pool, AuthorizedPool):
            pool.posts = self._posts

    # -- the contract -----------------------------------------------------------------------------

    def open(self, receiver: Receiver) -> None:
        """Start delivering to `receiver`."""
        self._posts.receiver = receiver

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        """POST `message`, at once or when one of the running POSTs has ended."""
        self._posts.send(message, call, self._lane)

    def _set_writable(self, writable: bool) -> None:
        self.writable = writable

    # -- one POST ---------------------------------------------------------------------------------

    async def _run(self, post: PendingPost) -> Exception | None:
        call = post.call
        why: Exception | None
        try:
            reply, body = await self._exchange(post)
            why = _not_accepted(post, reply, body) if call is None else _unusable(post, reply, body)
        except (BadAnswer, Broken) as error:
            why = error
        if call is None:
            if why is not None:
                log.debug("%s: a notification was not taken: %s", self._where, why)
            return why
        call.abandon = None
        if why is None:
            if self._posts.receiver is not None:
                self._posts.receiver.received(body, call)
            if call.settled:
                return None
            why = no_answer_error(body)
        call.failed(why)
        return None

    async def _exchange(self, post: PendingPost) -> tuple[ClientReply, bytes]:
        """POST and read the whole answer; the connection goes back to the pool, or is closed."""
        limits = self._limits
        call = post.call
        headers = call.extra if call is not None and isinstance(call.extra, Mapping) else None
        timeout = limits.call_timeout if call is None else None
        reply = await self._pool.ask("POST", post.message, headers, timeout=timeout)
        try:
            if reply.status < 200 or reply.kind == "text/event-stream":
                # such a body may have no end
                raise BadAnswer(
                    f"{_answered(post, reply)} with {printable(reply.kind)}, which is not a JSON-RPC answer"
                )
            return reply, await reply.body(limits.message_size)
        except BaseException:
            reply.close()
            raise


# -- what came back -------------------------------------------------------------------------------


class NotAdmitted(Broken):
    """The server does not let this caller in: HTTP 401 or 403."""

    def __init__(self, text: str, status: int, challenge: str) -> None:
        super().__init__(text, status, challenge)
        self.status = status
        self.challenge = challenge
        """Its WWW-Authenticate, as it came; "" without one."""

    def __str__(self) -> str:
        return str(self.args[0])


class _Named(Struct):
    method: str = "an answer"


def _answered(post: PendingPost, reply: ClientReply) -> str:
    """Return the beginning of an error text: the request, its URL and the status that came back."""
    batch = post.message.startswith(b"[")
    method = "a batch" if batch else msgspec.json.decode(post.message, type=_Named).method
    return f"{printable(method)}: POST {post.posts.name} answered {reply.line}"


def _unusable(post: PendingPost, reply: ClientReply, body: bytes) -> Broken | BadAnswer | None:
    """Why a body cannot be the answer to a call; None if the peer must decide that."""
    status = reply.status
    if 200 <= status < 300:
        if body[:1] in (b"{", b"[") or body.lstrip(b" \t\r\n")[:1] in (b"{", b"["):
            return None
        if not body:
            return BadAnswer(f"{_answered(post, reply)} without a body, which answers no call")
        return BadAnswer(f"{_answered(post, reply)} with {printable(reply.kind)} that is not JSON-RPC: {excerpt(body)}")
    if holds_response(body):
        return None
    if status in (401, 403):
        challenge = printable(reply.headers.get("www-authenticate", ""))
        detail = excerpt(body)
        parts = [_answered(post, reply), detail, challenge and f"it asks for {challenge}"]
        return NotAdmitted(": ".join(part for part in parts if part), status, reply.headers.get("www-authenticate", ""))
    if 300 <= status < 400:
        detail = f"it redirects to {printable(reply.headers.get('location', 'nowhere'))}, which is not followed; connect there"
    else:
        detail = excerpt(body)
    return Broken(f"{_answered(post, reply)}: {detail}" if detail else _answered(post, reply))


def _not_accepted(post: PendingPost, reply: ClientReply, body: bytes) -> Exception | None:
    """Why a notification was not accepted, or None."""
    if body and (error := orphan(body)) is not None:
        return error
    if 200 <= reply.status < 300:
        return None
    return _unusable(post, reply, body) or Broken(_answered(post, reply))
