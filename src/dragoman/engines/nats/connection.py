"""Connections to NATS, for the bus in `engines.nats.bus` and the wire in `engines.nats.wire`. The one file with the
library.

- A `NatsConnection` is one connection. It reconnects by itself, with growing, jittered pauses, to any server of the
  cluster that it knows, and subscribes again. Messages published before a loss are never sent after it.
- A server that is silent for `PATIENCE` seconds is sent a ping, and is lost when it does not answer for as long again.
- The server reports later what it does not permit, and names the subject. A connection whose inbox is not permitted
  fails; `ask` and `sync` raise SubjectForbidden for a subject at which they may not publish; `denials` are called for
  all others.
- No incoming message is dropped for lack of space: a subscriber takes messages at once (`take` is a plain
  function) and bounds what it keeps itself.
- Credentials are passed to the library as options and appear in no text of ours. Over `natss://` they are not sent
  before TLS is up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import re
import ssl
import uuid
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeAlias

from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from ...bus.contract import BusLost, log, repeats
from ...jsonrpc.errors import LocalError
from ...net import sockets
from ...net.reconnect import BackgroundTasks, Keeper
from ...net.sharing import ConnectionShare, OnState, Sharing
from ...net.urls import Url, printable

PATIENCE = 3.0
"""Seconds of silence after which the server is sent a ping, and again that long until it is lost."""
PAUSES = (0.05, 2.0)
"""The first and the longest pause between two tries to connect."""
LOOK = 0.5
"""Seconds between two checks whether the library still has its connection."""
CONNECT = 5
"""Seconds for one try to connect."""
UNSENT = 8 * 1024 * 1024
"""Bytes that wait in the library for the socket before a publisher has to wait too."""
BAD = (errors.BadHeaderError, errors.BadSubjectError)

INBOX = "_INBOX"
"""The prefix of inboxes; those of a caller with `?mailbox=` are below its name there."""
_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"', re.IGNORECASE)

Message: TypeAlias = Msg
Take: TypeAlias = Callable[[Msg], None]


class NoResponders(ConnectionError):
    """A request has no subscriber to answer it."""


class SubjectForbidden(BusLost):
    """The server's permissions for this user lack a subject, which the text names."""


class MessageTooLong(ConnectionError):
    """The message is longer than the server accepts."""


class _Client(Client):
    """The library's client, which stops reading at headers or an address that it cannot decode. One such message would
    stop every subscriber of its subject, and JetStream would deliver it again, for ever."""

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        try:
            await super()._process_msg(sid, subject, reply, data, headers)
        except (IndexError, UnicodeDecodeError):
            if headers:
                await self._process_msg(sid, subject, reply, data, b"")
            else:
                log.debug("NATS: a message with an address that is not UTF-8 is dropped")


class SubjectSubscription:
    """One subscription of a connection, renewed after each loss."""

    def __init__(self, connection: NatsConnection, subject: str, queue: str, take: Take) -> None:
        self.subject: str = subject
        self.queue: str = queue
        self._connection, self._take = connection, take
        self._active: Subscription | None = None

    async def begin(self, client: Client) -> None:
        """Subscribe on a new connection."""
        self._active = None
        # without limits of the library's own, which drops what is above them: `take` never lets them wait
        active = await client.subscribe(
            self.subject, self.queue, cb=self._receive, pending_msgs_limit=0, pending_bytes_limit=0
        )
        self._active = active

    async def _receive(self, message: Msg) -> None:
        try:
            self._take(message)
        except Exception:
            repeats.error("a message of %s could not be taken", self.subject, exc_info=True)

    async def close(self, *, rest: bool = False) -> None:
        """Unsubscribe; `rest`: after the messages that the server has already sent."""
        active, self._active = self._active, None
        self._connection.forget(self)
        if active is None:
            return
        with contextlib.suppress(errors.Error, OSError, TimeoutError, asyncio.InvalidStateError):
            if rest:
                async with asyncio.timeout(PATIENCE):
                    await active.drain()  # type: ignore[no-untyped-call]
            else:
                await active.unsubscribe()


class NatsConnection:
    """One connection that reconnects."""

    def __init__(self, where: Url, *, name: str = "dragoman", tls: ssl.SSLContext | None = None) -> None:
        self.where = where
        self.keeper: Keeper = Keeper(self._connect, self._watch, PAUSES, in_words=_in_words, faults=(BusLost,))
        self.states: list[OnState] = self.keeper.states
        self.inbox: str = ""
        """The prefix of the subjects for answers to `ask`, with a dot at the end."""
        self.denials: list[Callable[[str, SubjectForbidden], None]] = []
        """Called with a subject, in lower case, at which the server does not let us publish."""
        self._denied: dict[str, SubjectForbidden] = {}  # subscriptions, by subject in lower case
        self._identity = _Identity(where, name, tls)
        self._client = _Client()
        self._lost = asyncio.Event()
        self._servers = [f"nats://{where.address}"]
        self._subscriptions: list[SubjectSubscription] = []
        self._pending: dict[str, tuple[asyncio.Future[Msg], str]] = {}
        self._number = 0
        self._may_not_listen = False  # the server does not let us subscribe to the reply subjects of others
        self._echo: asyncio.Future[Msg] | None = None
        self._silent = False  # whether the server was, when it was lost
        self._background = BackgroundTasks(where.shown)

    @property
    def alive(self) -> bool:
        """Whether the server is connected now."""
        return self.keeper.alive and self._client.is_connected

    @property
    def limit(self) -> int:
        """The longest message that the server takes, headers included, in bytes."""
        return self._client.max_payload

    @property
    def server(self) -> str:
        """Identifies the running server: different after each of its starts."""
        return str(self._client._server_info.get("server_id", ""))

    async def open(self) -> None:
        """Connect. Raises BusLost when the first try fails."""
        try:
            await self.keeper.open()
        except BusLost:
            await self._background.wait(None)
            raise self.lost() from None

    def lost(self, why: str = "") -> BusLost:
        """The exception to raise while it is not connected. `why`: known before the keeper knows it."""
        return BusLost(f"{self.where.shown} is away: {why or self.keeper.why}")

    # -- messages ---------------------------------------------------------------------------------

    async def publish(
        self, subject: str, body: bytes = b"", *, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Write a message to the socket. Raises BusLost while there is none, MessageTooLong above `limit`, LocalError
        for an invalid subject or header."""
        if not self.alive:
            raise self.lost()
        try:
            await self._client.publish(subject, body, reply, headers)
        except errors.MaxPayloadError:
            raise MessageTooLong(f"the message has {len(body)} bytes; {self.where.shown} takes {self.limit}") from None
        except BAD as fault:
            raise LocalError(f"{self.where.shown}: {printable(f'{type(fault).__name__}: {fault}')}") from None
        except (errors.Error, OSError) as fault:
            raise BusLost(f"{self.where.shown} is away: {_in_words(fault)}") from None

    async def ask(
        self,
        subject: str,
        body: bytes = b"",
        *,
        headers: dict[str, str] | None = None,
        patience: float = CONNECT,
    ) -> Msg:
        """Publish, and wait for the answer. Raises NoResponders when there is no subscriber; BusLost when the server is
        lost before the answer came, or none came within `patience` seconds."""
        self._number += 1
        token = str(self._number)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Msg] = loop.create_future()
        self._pending[token] = answer, subject
        clock = loop.call_later(patience, self._time_out_answer, answer, subject)
        try:
            await self.publish(subject, body, reply=self.inbox + token, headers=headers)
            message = await answer
        finally:
            clock.cancel()
            del self._pending[token]
        if is_no_responders(message):
            raise NoResponders(f"{self.where.shown}: no subscriber answers at {subject}")
        return message

    async def deliver(self, subject: str, body: bytes, *, headers: dict[str, str] | None = None) -> bool:
        """Publish; returns whether there was a subscriber. Raises BusLost when the server is lost meanwhile."""
        self._number += 1
        token = str(self._number)
        report: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._pending[token] = report, subject
        try:
            await self.publish(subject, body, reply=self.inbox + token, headers=headers)
            await self.sync()  # the server would have reported "no responders" before
            if report.done() and isinstance(denied := report.exception(), SubjectForbidden):
                raise denied
            return not report.done()
        finally:
            del self._pending[token]

    async def pass_on(self, subject: str, message: Message) -> bool:
        """Publish another's request again, with its own reply subject. Returns False if no subscriber took it. The
        server reports that only to a subscriber of the reply subject: where we may not subscribe to it, True is
        returned. Raises BusLost when the server is lost meanwhile."""
        lacking = False

        def receive(answer: Message) -> None:
            nonlocal lacking
            lacking = lacking or is_no_responders(answer)

        listening = None
        if message.reply and not self._may_not_listen and not {"*", ">"} & set(message.reply.split(".")):
            listening = await self.subscribe(message.reply, receive)
        try:
            await self.publish(subject, message.data, reply=message.reply, headers=message.headers)
            if listening is not None:
                await self.sync()
                self._may_not_listen = message.reply.lower() in self._denied
        finally:
            if listening is not None:
                await listening.close(rest=True)
        return not lacking

    async def sync(self) -> None:
        """Wait until the server has processed everything published before. Raises BusLost when it is lost meanwhile.

        It sends a message to ourselves, because the server processes the messages of one connection in order. Tasks
        that wait in the same turn of the loop share one."""
        echo = self._echo
        if echo is None:
            loop = asyncio.get_running_loop()
            echo = self._echo = loop.create_future()
            loop.call_soon(self._begin_echo, echo)
        await asyncio.shield(echo)

    def _begin_echo(self, echo: asyncio.Future[Msg]) -> None:
        self._echo = None
        self._background.begin(self._send_echo(echo))

    async def _send_echo(self, echo: asyncio.Future[Msg]) -> None:
        token = f"echo{id(echo)}"
        self._pending[token] = echo, self.inbox + token
        try:
            await self.publish(self.inbox + token)
            await asyncio.wait([echo], timeout=2 * PATIENCE)
            if not echo.done():
                echo.set_exception(BusLost(f"{self.where.shown} is away: it says nothing"))
        except ConnectionError as fault:
            if not echo.done():
                echo.set_exception(fault)
        finally:
            del self._pending[token]
            if echo.done() and not echo.cancelled():
                echo.exception()  # the task that waited may be gone

    async def subscribe(self, subject: str, take: Take, *, queue: str = "") -> SubjectSubscription:
        """Call `take` with what is published there from now on; returns when it is on its way to the server (`sync`
        waits for it)."""
        if not self.alive:
            raise self.lost()
        subscription = SubjectSubscription(self, subject, queue, take)
        self._subscriptions.append(subscription)
        try:
            await subscription.begin(self._client)
        except BAD as fault:
            self.forget(subscription)
            raise LocalError(
                f"{self.where.shown}: {printable(subject)!r} is not a subject: {type(fault).__name__}"
            ) from None
        except (errors.Error, OSError) as fault:
            self.forget(subscription)
            raise BusLost(f"{self.where.shown} is away: {_in_words(fault)}") from None
        return subscription

    def check_permitted(self, *subjects: str) -> None:
        """Raise SubjectForbidden if the server has reported, up to the last `sync`, that we may not subscribe to one of
        these subjects."""
        for subject in subjects:
            if (denied := self._denied.get(subject.lower())) is not None:
                raise denied

    def forget(self, subscription: SubjectSubscription) -> None:
        """Do not renew a subscription after a loss."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def new_inbox_address(self) -> str:
        """Return a new address that cannot be guessed: half of the library's own is a counter."""
        prefix, _, _ = self._client.new_inbox().rpartition(".")
        return f"{prefix}.{uuid.uuid4().hex}"

    async def close(self) -> None:
        """Send what is queued, and disconnect. `states` are not called."""
        if self.keeper.closed or not self.keeper.since:
            return
        self.states.clear()
        if self.alive:
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(1):
                    await self.sync()
        await self.keeper.close()
        self._fail(self.keeper.why)
        await self._end(self._client)
        await self._background.wait(None)

    # -- the connection ---------------------------------------------------------------------------

    async def _connect(self) -> str:
        """Connect once, after a loss to any server of the cluster. Return why messages may have been lost, or ""."""
        client, lost = _Client(), asyncio.Event()
        if self.keeper.since:
            random.shuffle(self._servers)

        async def fault(error: Exception) -> None:
            if client.is_connected or client.is_closed:
                ended = isinstance(error, errors.UnexpectedEOF | OSError)  # the library's state reports that too
                log.log(logging.DEBUG if ended else logging.WARNING, "%s: %s", self.where.shown, _in_words(error))
                if ended:
                    lost.set()
                elif (found := _VIOLATION.search(str(error))) is not None:
                    self._on_violation(found[1].lower() == "publish", found[2])
            else:
                raise error  # the library would try on; that is done here

        async def over() -> None:
            lost.set()

        self._identity.client = client
        self._denied.clear()
        try:
            async with asyncio.timeout(CONNECT):
                await client.connect(
                    self._servers,
                    allow_reconnect=False,
                    connect_timeout=CONNECT,
                    ping_interval=3600,  # `_watch_for_silence` does that, without the library
                    pending_size=UNSENT,
                    error_cb=fault,
                    closed_cb=over,
                    **self._identity.options,
                )
                self._identity.check(client)
                await self._subscribe_all(client)
        except (OSError, errors.Error, ValueError) as error:
            self._background.begin(self._end(client))
            raise BusLost(str(error) if isinstance(error, SubjectForbidden) else _in_words(error)) from None
        except BaseException:
            await self._end(client)
            raise
        named = (f"nats://{one.hostname}:{one.port}" for one in client.servers)  # every one of its cluster
        self._servers = list(dict.fromkeys([*self._servers, *named]))
        self._client, self._lost = client, lost
        return "it was silent: what it sent meanwhile is lost" if self._silent else ""

    async def _subscribe_all(self, client: Client) -> None:
        """Subscribe again on a new connection; return when the server has all subscriptions."""
        for subscription in self._subscriptions:
            await subscription.begin(client)
        if not self.inbox:
            self.inbox = client.new_inbox() + "."
            subscription = SubjectSubscription(self, self.inbox + "*", "", self._on_answer)
            self._subscriptions.append(subscription)
            await subscription.begin(client)
        for _ in range(2):  # the library's ping overtakes what it has not sent yet
            await client.flush()
        self.check_permitted(self.inbox + "*")

    def _on_violation(self, publishing: bool, subject: str) -> None:
        """Fail what the server does not permit: publishing or subscribing to a subject, given in lower case."""
        names = (
            (one.subject for one in self._subscriptions)
            if not publishing
            else (where for _, where in self._pending.values())
        )
        named = next((name for name in names if name.lower() == subject.lower()), subject)
        verb = "publish" if publishing else "subscribe"
        words = f"the server does not let this user {verb} to {printable(named)}"
        if named == self.inbox + "*":
            words += f": permit {INBOX}.>, or the part of it that ?mailbox= names"
        denied = SubjectForbidden(words)
        if not publishing:
            self._denied[subject.lower()] = denied
            return
        for answer, where in self._pending.values():
            if where.lower() == subject.lower() and not answer.done():
                answer.set_exception(denied)
                answer.exception()  # `deliver` may not ask for it
        for on_denial in tuple(self.denials):
            on_denial(subject.lower(), denied)

    async def _watch(self) -> str:
        """Wait until the server is lost; return why, after all that waited on it has failed."""
        self._silent = await self._watch_for_silence()
        fault = self._client.last_error
        why = _in_words(fault) if fault else "the connection was lost"
        self._fail(why)
        self._background.begin(self._end(self._client))
        return why

    async def _watch_for_silence(self) -> bool:
        """Wait until the server is lost; True if it was silent, as over a half-open connection."""
        loop = asyncio.get_running_loop()
        count, since = -1, loop.time()
        while not self._lost.is_set() and self._client.is_connected:  # the library may fail to report the end
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._lost.wait()
            now = self._client.stats["in_msgs"]
            if now != count:
                count, since = now, loop.time()
            elif loop.time() - since >= PATIENCE:
                if not await self._answers():
                    return not self._lost.is_set()
                since = loop.time()
        return False

    async def _answers(self) -> bool:
        """Whether the server answers within `PATIENCE` seconds."""
        echo, over = asyncio.ensure_future(self.sync()), asyncio.ensure_future(self._lost.wait())
        try:
            for _ in range(2):  # twice, or a loop that was blocked takes its own silence for the server's
                if not echo.done() and not over.done():
                    await asyncio.wait([echo, over], timeout=PATIENCE / 2, return_when=asyncio.FIRST_COMPLETED)
            return echo.done() and echo.exception() is None
        finally:  # cancelled, too: the connection is closed
            echo.cancel()
            over.cancel()

    async def _end(self, client: Client) -> None:
        """Close one of the library's clients; it may wait for a silent far end."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(1):
                await client.close()
                return
        with contextlib.suppress(AttributeError):
            client._transport._io_writer.transport.abort()  # type: ignore[union-attr]

    # -- answers ----------------------------------------------------------------------------------

    def _on_answer(self, message: Msg) -> None:
        pending = self._pending.get(message.subject[len(self.inbox) :])
        if pending is not None and not pending[0].done():
            pending[0].set_result(message)

    def _time_out_answer(self, answer: asyncio.Future[Msg], subject: str) -> None:
        if not answer.done():
            answer.set_exception(BusLost(f"{self.where.shown}: no answer from {subject} in time"))

    def _fail(self, why: str) -> None:
        for answer, _ in self._pending.values():
            if not answer.done():
                answer.set_exception(self.lost(why))
                answer.exception()


def is_no_responders(message: Message) -> bool:
    """Whether a message is the server's report that a request had no subscriber."""
    return not message.data and message.headers is not None and message.headers.get("Status") == "503"


NO_RESPONDERS = {"Status": "503"}
"""The headers of the server's report that a request had no subscriber."""


_SHARED: Sharing[NatsConnection] = Sharing()


def share_connection(where: Url, role: str, tls: ssl.SSLContext | None) -> ConnectionShare[NatsConnection]:
    """Share a connection to the server of a URL with the URL's credentials; it is not open yet."""
    who = (where.user, where.password, *(where.query.get(name) for name in ("token", "creds", "mailbox")))
    key = (where.scheme, where.address, who, tls)
    return _SHARED.share(key, role, lambda: NatsConnection(where, tls=tls))


# -- credentials -----------------------------------------------------------------------------------


class _Identity:
    """Our name and credentials, as `options` for the library. Credentials are those of the URL, else of the
    environment: DRAGOMAN_NATS_USER and _PASSWORD, _TOKEN, _CREDS (a file). The library gets user, password or token
    when it calls for them; over `natss://` not before TLS is up."""

    def __init__(self, where: Url, name: str, tls: ssl.SSLContext | None) -> None:
        self.client: Client | None = None
        self.options: dict[str, Any] = {"name": name}
        if (mailbox := where.query.get("mailbox")) is not None:
            self.options["inbox_prefix"] = f"{INBOX}.{mailbox}"
        self._tls = where.tls
        if self._tls:
            self.options["tls"] = tls or ssl.create_default_context()
            self.options["tls_hostname"] = where.host
        file = where.query.get("creds") or os.environ.get("DRAGOMAN_NATS_CREDS")
        user, password, token = where.user, where.password, where.query.get("token")
        if user is not None and password is None:
            user, token = None, user
        if user is None and token is None and not file:
            token = os.environ.get("DRAGOMAN_NATS_TOKEN")
            user, password = os.environ.get("DRAGOMAN_NATS_USER"), os.environ.get("DRAGOMAN_NATS_PASSWORD")
        if user is not None:
            self.options |= {"user": self._secret_callback(user), "password": self._secret_callback(password or "")}
        elif token is not None:
            self.options["token"] = self._secret_callback(token)
        elif file:
            if find_spec("nkeys") is None:
                raise LocalError(f"{where.shown}: ?creds= needs nkeys: pip install nkeys")
            if not os.access(file, os.R_OK):
                raise LocalError(f"{where.shown}: the file of ?creds= cannot be read")
            self.options["user_credentials"] = file

    def check(self, client: Client) -> None:
        """Raise the library's Error if TLS is required and the server has none: the library would go on without."""
        if self._tls and not client._server_info.get("tls_required"):
            raise errors.Error("the server offers no TLS, and natss:// asks for it")

    def _secret_callback(self, secret: str) -> Callable[[], str]:
        def secret_if_safe() -> str:
            assert self.client is not None
            self.check(self.client)
            return secret

        return secret_if_safe


def _in_words(fault: BaseException) -> str:
    return sockets.in_words(fault).removeprefix("nats: ").strip()
