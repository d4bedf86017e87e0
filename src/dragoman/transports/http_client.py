"""JSON-RPC over HTTP, the calling side: every message is one POST, its answer that POST's body. aiohttp lives here alone.

Rules:

- The channel is no connection but a pool of them (kept alive, at most `CONNECTIONS` POSTs at once, further ones wait
  in order). Dialling connects to nothing yet; a refused POST fails its own call, and the next one tries anew.
- A body that holds JSON-RPC is the answer whatever the HTTP status (400, 413, 500, 503 carry JSON-RPC errors). What
  holds none fails the call at once, in words: the status, the media type, one line of the body.
- A POST is never repeated and a redirect never followed: only the caller knows whether a method may run twice.
- Notifications have no order among themselves but the sender's: `flush` returns when the server has taken those
  that the current task sent, and raises what became of one that was not taken.
- Time-outs are the peer's, but for connecting (`CONNECT_TIMEOUT`) and for notifications (`limits.call_timeout`).
- No cookies, no proxy or netrc from the environment.
"""

from __future__ import annotations

import asyncio
import io
import logging
from base64 import b64encode

import aiohttp
import yarl

from ..channel import Broken, Caller, Channel, ChannelError, Closed, Options, Outgoing, Receiver
from ..jsonrpc.codec import Leniency, decode
from ..jsonrpc.errors import BadAnswer, LocalError, RpcError, too_large
from ..jsonrpc.limits import MIB, Limits
from ..jsonrpc.messages import Batch, Failure, Result
from .urls import Url, parse, printable

CONNECTIONS = 100
"""POSTs of one channel under way at once."""
CONNECT_TIMEOUT = 10.0
"""Seconds for a connection to come about, TLS included."""
_EXCERPT = 200
_LENIENT = Leniency(accept_v1=True, string_codes=True)

log = logging.getLogger(__name__)


async def dial(url: str, options: Options) -> Channel:
    """A channel that POSTs to `url` (http: or https:). Connects when the first message is sent.

    `options`: limits, tls, headers, auth (which goes before the URL's user and password). Raises
    LocalError for a URL, a header or a secret that cannot be sent.
    """
    place = parse(url)
    if place.scheme not in ("http", "https"):
        raise LocalError(f"{place}: this wire takes http:// and https://")
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=True if options.tls is None else options.tls),
        headers=_headers(place, options),
        skip_auto_headers=("Accept-Encoding",),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
    )
    return _HttpChannel(place, options.limits, session)


def _headers(place: Url, options: Options) -> dict[str, str]:
    """The header lines of every POST; names in lower case, so that the user's own replace ours."""
    headers = {"content-type": "application/json", "accept": "application/json", "user-agent": "dragoman"}
    auth = options.auth or place.auth
    if isinstance(auth, str):
        headers["authorization"] = f"Bearer {auth}"
    elif auth is not None:
        if ":" in auth[0]:
            raise LocalError("auth: the user of basic authentication has no colon (RFC 7617)")
        headers["authorization"] = "Basic " + b64encode(":".join(auth).encode()).decode()
    for name, value in options.headers.items():
        if not name or not all(c.isalnum() or c in "!#$%&'*+-.^_`|~" for c in name) or not name.isascii():
            raise LocalError(f"headers: {printable(name)!r} is no name of an HTTP header")
        headers[name.lower()] = value
    for name, value in headers.items():
        if any(c in "\r\n\0" for c in value):  # the value may be a secret, so it isn't shown
            raise LocalError(f"headers: the value of {name} has a line break or a NUL in it")
    return headers


class _Post:
    """One message on its way: waiting for its turn (no task yet) or under way."""

    __slots__ = ("call", "channel", "message", "sender", "taken", "task")

    def __init__(self, channel: _HttpChannel, message: bytes, call: Outgoing | None) -> None:
        self.channel = channel
        self.message = message
        self.call = call
        self.task: asyncio.Task[None] | None = None
        self.sender: asyncio.Task[object] | None = None
        self.taken: asyncio.Future[Exception | None] | None = None
        """A notification's outcome, as a value: nobody may be there to take an exception."""

    def abandon(self) -> None:
        """Stop: the connection is closed, by which the server notices."""
        if self.task is not None:
            self.task.cancel()
        else:
            self.channel.forget(self)

    def over(self, _: object) -> None:
        self.channel.over(self)


class _HttpChannel:
    """See the module's rules."""

    def __init__(self, place: Url, limits: Limits, session: aiohttp.ClientSession) -> None:
        self.caller = Caller(scheme=place.scheme, remote=place.address, path=place.path, tls=place.scheme == "https")
        self.duplex = False
        self.writable = True
        self._place = place
        self._url = yarl.URL(f"{place.scheme}://{place.address}{place.target}")
        self._limits = limits
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._receiver: Receiver | None = None
        self._ending: ChannelError | None = None
        self._told = False
        self._closing: asyncio.Task[None] | None = None
        self._posts: set[_Post] = set()
        self._waiting: dict[_Post, None] = {}
        self._unsent = 0
        self._notes: dict[asyncio.Task[object] | None, set[_Post]] = {}
        self._watchers: list[asyncio.Future[None]] = []
        self._call_timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT)
        self._note_timeout = aiohttp.ClientTimeout(total=limits.call_timeout, sock_connect=CONNECT_TIMEOUT)

    # -- the contract -----------------------------------------------------------------------------

    def open(self, receiver: Receiver) -> None:
        """Start delivering to `receiver`."""
        self._receiver = receiver

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        """POST `message`, at once or when one of the POSTs under way has ended."""
        self._check()
        post = _Post(self, message, call)
        if call is None:
            post.sender = asyncio.current_task()
            post.taken = self._loop.create_future()
            self._notes.setdefault(post.sender, set()).add(post)
        else:
            call.abandon = post.abandon
        if len(self._posts) < CONNECTIONS:
            self._start(post)
        else:
            self._waiting[post] = None
            self._unsent += len(message)
            self.writable = self._unsent <= self._limits.send_queue

    async def flush(self) -> None:
        """Wait for room among the waiting, and until the server has taken the current task's notifications.

        Raises what became of one that was refused: Broken, BadAnswer or RpcError.
        """
        mine = [post.taken for post in self._notes.get(asyncio.current_task(), ()) if post.taken]
        while not self.writable:
            self._check()
            watcher = self._loop.create_future()
            self._watchers.append(watcher)
            await watcher
        if mine:
            await asyncio.wait(mine)
            for taken in mine:
                if (why := taken.result()) is not None:
                    raise why
        self._check()

    async def close(self) -> None:
        """Let the POSTs under way and waiting end (within `limits.write_timeout`), then close the pool."""
        if self._closing is None:
            self._ending = Closed(f"{self._place} was closed here")
            self._closing = self._loop.create_task(self._drain())
        await asyncio.shield(self._closing)

    def abort(self, why: ChannelError) -> None:
        """Cut off every POST and close the pool."""
        if self._closing is None:
            self._ending = why
            self._closing = self._loop.create_task(self._release())
            self._loop.call_soon(self._end)
        self._abandon_all()

    # -- its life ---------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._ending is not None:
            raise type(self._ending)(str(self._ending))

    async def _drain(self) -> None:
        tasks = self._tasks()
        until = None if (limit := self._limits.write_timeout) is None else self._loop.time() + limit
        while tasks and (until is None or self._loop.time() < until):
            await asyncio.wait(tasks, timeout=None if until is None else until - self._loop.time())
            tasks = self._tasks()
        self._abandon_all()
        await self._release()
        self._end()

    def _abandon_all(self) -> None:
        for post in [*self._waiting, *self._posts]:
            post.abandon()

    async def _release(self) -> None:
        if tasks := self._tasks():
            await asyncio.wait(tasks)
        await self._session.close()

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [post.task for post in self._posts if post.task is not None]

    def _end(self) -> None:
        if not self._told:
            self._told = True
            self._wake()
            if self._receiver is not None and self._ending is not None:
                self._receiver.ended(self._ending)

    def _wake(self) -> None:
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    def _start(self, post: _Post) -> None:
        self._posts.add(post)
        post.task = self._loop.create_task(self._run(post))
        post.task.add_done_callback(post.over)

    def forget(self, post: _Post) -> None:
        """Take a message out of the waiting ones; it is never sent."""
        if post in self._waiting:
            self._unqueue(post)
            self._cut(post)

    def over(self, post: _Post) -> None:
        """A POST has ended: the next waiting one has its turn."""
        self._posts.discard(post)
        self._cut(post)
        if self._waiting:
            following = next(iter(self._waiting))
            self._unqueue(following)
            self._start(following)

    def _unqueue(self, post: _Post) -> None:
        del self._waiting[post]
        self._unsent -= len(post.message)
        if not self.writable and self._unsent <= self._limits.send_queue:
            self.writable = True
            self._wake()
            self._loop.call_soon(self._resumed)

    def _resumed(self) -> None:
        if self.writable and not self._told and self._receiver is not None:
            self._receiver.resumed()

    def _settle(self, post: _Post, why: Exception | None) -> None:
        """Tell what became of a notification, unless that is known."""
        if post.taken is None or post.taken.done():
            return
        notes = self._notes[post.sender]
        notes.discard(post)
        if not notes:
            del self._notes[post.sender]
        post.taken.set_result(why)

    def _cut(self, post: _Post) -> None:
        """The end of a POST; a notification without an outcome by now was cut off."""
        if post.taken is not None and not post.taken.done():
            self._settle(post, self._ending or Broken(f"{self._place}: the notification was cut off"))

    # -- one POST ---------------------------------------------------------------------------------

    async def _run(self, post: _Post) -> None:
        call = post.call
        try:
            response, body = await self._exchange(post)
            why = _refused_note(response, body) if call is None else _unusable(response, body)
        except (BadAnswer, Broken) as error:
            why = error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            why = self._words(error)
        if call is None:
            if why is not None:
                log.debug("%s: a notification was not taken: %s", self._place, why)
            self._settle(post, why)
            return
        call.abandon = None
        if why is None:
            if self._receiver is not None:
                self._receiver.received(body)
            why = _unanswered(body)
        call.failed(why)  # which the peer ignores where the body has settled the call

    async def _exchange(self, post: _Post) -> tuple[aiohttp.ClientResponse, bytes]:
        """POST and read the whole answer; the connection goes back to the pool, or is closed."""
        message = post.message
        response = await self._session.post(
            self._url,
            # aiohttp warns of bytes above a MiB and writes them in one piece; a file it writes bit by bit
            data=message if len(message) < MIB else io.BytesIO(message),
            allow_redirects=False,
            timeout=self._note_timeout if post.call is None else self._call_timeout,
        )
        try:
            if response.status < 200 or response.content_type == "text/event-stream":
                # such a body may have no end
                raise BadAnswer(f"{_status(response)} with {response.content_type}, which is no JSON-RPC answer")
            body = await _read(response, self._limits.message_size)
        except BaseException:
            response.close()
            raise
        return response, body

    def _words(self, error: Exception) -> Broken | BadAnswer:
        where = self._place.address
        match error:
            case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
                why = f"TLS with {where} did not come about: {error}"
            case aiohttp.ClientConnectorDNSError():
                why = f"the host {self._place.host} was not found: {error.os_error.strerror or error.os_error}"
            case aiohttp.ClientConnectorError():
                why = f"cannot connect to {where}: {error.os_error.strerror or error.os_error}"
            case aiohttp.ServerDisconnectedError():
                why = f"{where} closed the connection without an answer"
            case aiohttp.ConnectionTimeoutError():
                why = f"cannot connect to {where}: no connection within {CONNECT_TIMEOUT:g} s"
            case TimeoutError():
                why = f"{where} did not take the notification within {self._limits.call_timeout:g} s"
            case aiohttp.ClientPayloadError():
                why = f"the answer of {where} broke off: {error}"
            case aiohttp.ClientResponseError():
                return BadAnswer(printable(f"what {where} answers is not HTTP: {error.message}"))
            case _:
                why = f"the connection to {where} failed: {error}"
        return Broken(printable(why))


# -- what came back -------------------------------------------------------------------------------


async def _read(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The whole body; BadAnswer as soon as it is more than `limit` bytes."""
    declared = response.content_length
    if declared is not None and declared > limit:
        raise BadAnswer(f"{_status(response)}: {too_large('message_size', limit, declared).reason}")
    content = response.content
    body = await content.readany()
    if content.at_eof() and len(body) <= limit:
        return body
    chunks = [body]
    size = len(body)
    while size <= limit and (chunk := await content.readany()):
        chunks.append(chunk)
        size += len(chunk)
    if size > limit:
        raise BadAnswer(f"{_status(response)}: {too_large('message_size', limit, None).reason}")
    return b"".join(chunks)


def _unusable(response: aiohttp.ClientResponse, body: bytes) -> Broken | BadAnswer | None:
    """Why a body cannot be the answer to a call; None where it is for the peer to judge."""
    status = response.status
    if 200 <= status < 300:
        if body[:1] in (b"{", b"[") or body.lstrip(b" \t\r\n")[:1] in (b"{", b"["):
            return None
        if not body:
            return BadAnswer(f"{_status(response)} without a body, which answers no call")
        return BadAnswer(f"{_status(response)} with {response.content_type} that is no JSON-RPC: {_excerpt(body)}")
    if _holds_response(body):
        return None
    if 300 <= status < 400:
        target = response.headers.get("Location", "nowhere")
        return Broken(printable(f"{_status(response)} redirects to {target}, which is not followed; connect there"))
    return Broken(f"{_status(response)}: {_excerpt(body)}" if body else _status(response))


def _refused_note(response: aiohttp.ClientResponse, body: bytes) -> Exception | None:
    """Why a notification was not taken, or None."""
    if body and (error := _orphan(body)) is not None:
        return error
    if 200 <= response.status < 300:
        return None
    return _unusable(response, body) or Broken(_status(response))


def _unanswered(body: bytes) -> Exception:
    """What to tell a call that a JSON-RPC body did not settle: an error without id is meant for it all the same."""
    return _orphan(body) or BadAnswer(f"the reply's id does not match the call: {_excerpt(body)}")


def _orphan(body: bytes) -> RpcError | None:
    """The error of a response with id null: the server could not read the request's id, or did not want to."""
    if b'"error"' not in body or (b"null" not in body and b'"id"' in body):
        return None
    message = decode(body, lenient=_LENIENT)
    if isinstance(message, Batch) and len(message.messages) == 1:
        message = message.messages[0]
    if not isinstance(message, Failure) or not _is_null(message.id) or not _says_so(message, body):
        return None
    error = RpcError.of(message.error.code, message.error.message, message.error.data)
    error.name = message.error.name
    return error


def _holds_response(body: bytes) -> bool:
    """Whether the body of an HTTP error is JSON-RPC, not just any JSON with an `error` in it."""
    message = decode(body, lenient=_LENIENT)
    for element in message.messages if isinstance(message, Batch) else (message,):
        if isinstance(element, Result | Failure) and _says_so(element, body):
            return True
    return False


def _says_so(response: Result | Failure, body: bytes) -> bool:
    """Whether what looks like a response really is one: 1.0 has no version to know it by, but always an id."""
    return response.version == "2.0" or b'"id"' in body


def _is_null(id: object) -> bool:
    return not isinstance(id, str | int | float) and bytes(id) == b"null"  # type: ignore[call-overload]


def _status(response: aiohttp.ClientResponse) -> str:
    return printable(f"HTTP {response.status} {response.reason or ''}".rstrip())


def _excerpt(body: bytes) -> str:
    """The beginning of a body in one line that is safe to print."""
    text = body[:_EXCERPT].decode("utf-8", "replace")
    if not text.isprintable():
        text = printable(" ".join(text.split()), 2 * _EXCERPT)
    return text if len(body) <= _EXCERPT else f"{text}..."
