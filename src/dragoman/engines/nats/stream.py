"""`nats://host/calculator?stream=work`: requests in a JetStream work queue, so that they run at least once.

- The stream `work` (made by the first worker, or by you) takes the subject `calculator`; the durable pull consumer
  `workers_calculator` hands each request to one worker. The caller's inbox and correlation id are in the headers
  `reply-to` and `correlation`, and `Nats-Msg-Id` lets the server drop a request that was sent twice.
- A worker acknowledges after its answer was published to an inbox that has a subscriber; if it has none, the worker
  tries for the seconds of `MAILBOX`, because the caller may be reconnecting. A caller whose connection was silent asks
  again for its open calls: the server may have sent their answers into it. While it works, it reports progress every
  third of `?wait=` seconds (10); the requests of a silent worker go to another, with one delivery more.
- It asks for as many requests as it has slots for (`?prefetch=`), so none waits in a worker while another is idle;
  and anew before `?wait=` is over, so that a worker whose connection is dead costs a request one delivery and no more.
- A server that starts again has forgotten its last deliveries (it writes them a little later than
  it makes them). So requests that were in the stream then count as redelivered, if a worker was connected at that time.
- A request that a draining worker gives back is published anew with its count, then acknowledged: JetStream counts what
  is given back as delivered. Where it does not take the copy (a full stream), the request is given back as it is.
- Rejected requests go to the subject `calculator.dead` of the stream `work-dead` (the newest 10,000).
- No stream: a call fails at once. No worker: it waits in the stream until a worker comes or its deadline passes.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...bus.contract import BusLost
from ...jsonrpc.errors import LocalError
from ...net.reconnect import RECONNECT_GRACE, BackgroundTasks, OutageLog
from ...net.sharing import OnState, ignore_state
from ...net.urls import Url, number, printable
from ...repeats import Repeats
from ...transports.broker.contract import (
    DELIVERED,
    KEY,
    BrokerMessage,
    NotTaken,
    Outcome,
    Refused,
    Take,
    Unroutable,
    given_back,
    number_in,
)
from .adapter import CORRELATION, HEADROOM, REPLY_TO, SECONDS_TO_LEAVE, NatsAdapter, headers_of, reply_address
from .connection import Message, MessageTooLong, NoResponders, SubjectForbidden, SubjectSubscription
from .store import ApiReply, api, reply

log: logging.Logger = logging.getLogger("dragoman.wire")
repeats: Repeats = Repeats(log)

WAIT = 10
DEAD = 10_000
WINDOW = 120
"""Seconds for which the stream detects a request that it already has."""
MAILBOX = (0.1, 0.2, 0.3, *(0.4,) * 14)
"""Seconds between tries to answer a caller that is not connected."""
SOON, LATE = 0.25, 5.0
"""Seconds that an answer of JetStream may take: soon after a reconnection, when a request that is not answered at once
was lost, and otherwise."""
HOLDS = 5.0
"""Seconds for which the server holds one demand of a worker for messages; at most half of `?wait=`. To a worker whose
connection is dead the server thus gives a request once and no more, since no further demand comes."""
BEAT = 1.0
"""Seconds between two heartbeats of a demand; at most a third of the time that it holds, since the server requires less
than half of it."""
SILENCE = 3.0
"""Seconds without a heartbeat after which the server has forgotten our demands."""
_NAME_TAKEN = 10058
_FOR_NOW = (10008, 10009)
"""JetStream's errors that pass: a cluster that looks for its leader."""
_MESSAGE_ID = "Nats-Msg-Id"
_NANO = 1_000_000_000


class StreamSettings(Struct, frozen=True):
    """The stream that a URL names, and its options."""

    name: str
    wait: int
    replicas: int
    most: int


def stream_of(where: Url) -> StreamSettings:
    """Read the stream of a URL with `?stream=`. Raises LocalError for an invalid URL."""
    name = where.query["stream"]
    if not name or len(name) > 100 or not all(c.isalnum() or c in "-_" for c in name):
        raise LocalError(f"{where.shown}: ?stream= is made of letters, digits, - and _")
    wait, replicas = number(where, "wait", WAIT), number(where, "replicas", 1)
    return StreamSettings(name, wait, replicas, number(where, "max", 0, least=0))


def _plain(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers without those for the server: it would apply conditions of the original message to its copy, such
    as the name of its stream."""
    return {name: text for name, text in headers.items() if name[:5].lower() != "nats-"}


class StreamAdapter:
    """A `contract.BrokerAdapter` on JetStream for requests; mailboxes and control are those of core NATS."""

    name = "NATS"

    def __init__(self, plain: NatsAdapter, stream: StreamSettings) -> None:
        self._plain, self._connection, self.subject = plain, plain.connection, plain.subject
        self.limit: int = plain.limit
        self.durable = True
        self.on_state: OnState = ignore_state
        self._stream, self._wait = stream.name, stream.wait
        self._replicas, self._most = stream.replicas, stream.most
        self._consumer = re.sub(r"[^A-Za-z0-9_-]", "_", f"{plain.group}_{plain.subject}")
        self._loop = asyncio.get_running_loop()
        self._last_taken = -RECONNECT_GRACE
        self._puller: Puller | None = None
        plain.share.watch(self._state)

    async def open(self) -> None:
        await self._plain.open()
        self.limit = self._plain.limit

    def _state(self, up: bool, why: str) -> None:
        if up:
            self.limit = self._connection.limit - HEADROOM
            if self._puller is not None:
                self._puller.anew()
        self.on_state(up, why)

    # -- who serves -------------------------------------------------------------------------------

    async def work(self, take: Take, prefetch: int) -> None:
        await self._create_missing()
        self._puller = Puller(self, take, prefetch, self._wait)
        await self._puller.begin()

    async def _create_missing(self) -> None:
        """Create the streams and the consumer if they do not exist."""
        await self._stream_for(
            self.subject,
            name=self._stream,
            retention="workqueue",
            discard="new",
            max_msgs=self._most or -1,
            duplicate_window=WINDOW * _NANO,
        )
        dead = f"{self._stream}-dead"
        await self._stream_for(f"{self.subject}.dead", name=dead, retention="limits", discard="old", max_msgs=DEAD)
        made = await self.api(
            f"CONSUMER.DURABLE.CREATE.{self._stream}.{self._consumer}",
            stream_name=self._stream,
            config={
                "durable_name": self._consumer,
                "filter_subject": self.subject,
                "deliver_policy": "all",
                "ack_policy": "explicit",
                "ack_wait": self._wait * _NANO,
                "max_deliver": -1,
                "max_ack_pending": -1,
                "replay_policy": "instant",
            },
        )
        self._check(made)

    async def _stream_for(self, subject: str, **config: Any) -> None:
        """Make sure that a stream takes a subject."""
        name = config["name"]
        named = await self.api("STREAM.NAMES", subject=subject)
        holders = named.streams or []
        if name in holders:
            return
        if holders:
            raise LocalError(f"the subject {printable(subject)} belongs to the stream {holders[0]}, not to {name}")
        base = {"subjects": [subject], "storage": "file", "num_replicas": self._replicas}
        made = await self.api(f"STREAM.CREATE.{name}", **base, **config)
        if made.error is not None and made.error.err_code == _NAME_TAKEN:  # by others, for other subjects
            raw = await self._connection.ask(f"$JS.API.STREAM.INFO.{name}")
            there = msgspec.json.decode(raw.data)["config"]
            if subject in there["subjects"]:
                return
            made = await self.api(f"STREAM.UPDATE.{name}", **{**there, "subjects": [*there["subjects"], subject]})
        self._check(made)

    async def newest(self) -> int:
        """Return the position of the stream's newest message."""
        found = await self.api(f"STREAM.INFO.{self._stream}")
        self._check(found)
        return 0 if found.state is None else found.state.last_seq

    def _patience(self) -> float:
        return SOON if self._connection.keeper.young else LATE

    async def api(self, what: str, **members: Any) -> ApiReply:
        """Send a request to JetStream. Raises BusLost if it does not answer."""
        since = self._loop.time()
        while True:
            try:
                return await api(self._connection, what, self._patience(), **members)
            except NoResponders:
                if not self._connection.keeper.young and self._loop.time() > since + 0.5:
                    raise BusLost(
                        f"{self._connection.where.shown}: this server has no JetStream (nats-server -js)"
                    ) from None
            await asyncio.sleep(0.1)

    def _check(self, made: ApiReply) -> None:
        if made.error is not None:
            raise BusLost(f"JetStream says: {printable(made.error.description)}")

    async def pause(self) -> None:
        if self._puller is not None:
            await self._puller.pause()

    async def receive_control(self, take: Take) -> None:
        await self._plain.receive_control(take)

    async def set_aside(self, message: Message) -> None:
        """Add a request to the dead letters. Raises ConnectionError."""
        subject, headers = f"{self.subject}.dead", _plain(message.headers or {})
        try:
            answer = await self._connection.ask(subject, message.data, headers=headers or None)
        except LocalError:  # headers that the library reads, and does not send
            answer = await self._connection.ask(subject, message.data)
        self._check(reply(answer.data))

    # -- the caller -------------------------------------------------------------------------------

    async def mailbox(self, take: Take) -> str:
        return await self._plain.mailbox(take)

    async def request(self, message: BrokerMessage, ttl: float | None) -> None:
        # a repeated request has another id: the stream has the first one, and only its answer is lost
        await self._request(message, f"{message.correlation}+{message.count}" if message.count else message.correlation)

    async def give_back(self, message: BrokerMessage) -> None:
        """Add a copy of a request to the stream. Without a message id: under the request's the server would drop it.
        Raises ConnectionError."""
        await self._request(given_back(replace(message, headers=_plain(message.headers))), "")

    async def _request(self, message: BrokerMessage, id: str) -> None:
        more = {REPLY_TO: message.reply_to, CORRELATION: message.correlation, _MESSAGE_ID: id}
        headers = headers_of(message, **{name: text for name, text in more.items() if text})
        try:
            answer = await self._connection.ask(self.subject, message.body, headers=headers, patience=self._patience())
        except (MessageTooLong, SubjectForbidden) as why:
            raise Refused(str(why)) from None
        except NoResponders:
            # JetStream ends, or is not ready yet
            if self._connection.keeper.young or self._loop.time() < self._last_taken + RECONNECT_GRACE:
                raise NotTaken(f"{self._connection.where.shown}: JetStream is not up yet") from None
            raise Unroutable(
                f"no worker serves {self.subject} on {self._connection.where.shown}: there is no stream for it"
            ) from None
        error = reply(answer.data).error
        if error is None:
            self._last_taken = self._loop.time()
            return
        words = f"NATS does not take the message: {printable(error.description)} ({error.err_code})"
        if error.err_code in _FOR_NOW:
            raise NotTaken(words)
        raise Refused(words)

    async def send_control(self, message: BrokerMessage) -> None:
        await self._plain.send_control(message)

    def answerable(self, message: BrokerMessage) -> bool:
        return self._plain.answerable(message)

    async def answer(self, to: str, message: BrokerMessage) -> None:
        subject, headers = reply_address(to, message.correlation), headers_of(message)
        for pause in (*MAILBOX, None):
            try:
                if await self._connection.deliver(subject, message.body, headers=headers):
                    return
            except LocalError as why:  # what a caller gave as its inbox is not a subject
                repeats.warning("%s: an answer has nowhere to go: %s", self.subject, why)
                return
            except (MessageTooLong, SubjectForbidden) as why:
                raise Refused(str(why)) from None
            if pause is not None:
                await asyncio.sleep(pause)
        repeats.log(logging.INFO, "%s: the caller that waited for an answer is gone", self.subject)

    async def close(self) -> None:
        if self._puller is not None:
            await self._puller.close()
        await self._plain.close()


class Puller:
    """Takes requests from the consumer: requests as many as there are slots, acknowledges, and reports progress."""

    def __init__(self, adapter: StreamAdapter, take: Take, prefetch: int, wait: int) -> None:
        self._adapter, self._connection = adapter, adapter._connection
        self._take, self._prefetch = take, prefetch
        self._progress_interval = wait / 3
        self._holds = min(HOLDS, wait / 2)
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{adapter._stream}.{adapter._consumer}"
        self._box = ""
        self._number = 0
        self._requested = 0
        self._held: dict[str, Message] = {}
        self._settled: list[tuple[str, bytes]] = []
        self._paused = self._closed = False
        self._missing = False
        self._server = self._connection.server
        self._doubtful = 0
        self._loop = adapter._loop
        self._due = asyncio.Event()
        self._last_sign = self._last_progress = self._loop.time()
        self._hold = 0.0
        self._subscription: SubjectSubscription | None = None
        self._task: asyncio.Task[None] | None = None
        where = f"{self._connection.where.shown} {adapter.subject}"
        self._background = BackgroundTasks(where)
        self._stuck = OutageLog(where)

    async def begin(self) -> None:
        """Take requests from now on."""
        self._box = self._connection.new_inbox_address()
        self._subscription = await self._connection.subscribe(f"{self._box}.*", self._receive)
        self._task = self._loop.create_task(self._run())
        self._due.set()

    def anew(self) -> None:
        """Demand messages anew: the server is back and has forgotten our demands."""
        self._requested = 0
        self._hold = 0.0
        self._due.set()

    async def pause(self) -> None:
        """Demand no more messages; those on their way still come."""
        self._paused = True
        if self._subscription is not None:
            await self._subscription.close(rest=True)

    async def close(self) -> None:
        """Give back unsettled requests: those that were begun count as delivered."""
        await self.pause()
        await self._background.wait(SECONDS_TO_LEAVE)
        for to in tuple(self._held):
            self._acknowledge(to, b"-NAK")
        self._closed = True
        self._due.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=SECONDS_TO_LEAVE)
            self._task.cancel()
            await asyncio.wait([self._task])

    # -- in ---------------------------------------------------------------------------------------

    def _receive(self, message: Message) -> None:
        self._last_sign = self._loop.time()
        to = message.reply
        if not to:
            self._status(message)
            return
        self._requested = max(0, self._requested - 1)
        if self._requested * 4 <= self._prefetch:
            self._due.set()
        again, self._held[to] = to in self._held, message
        if not again:
            self._take(self._read(message))

    def _read(self, message: Message) -> BrokerMessage:
        """Return the request in a message of the stream."""
        to = message.reply
        # $JS.ACK.<stream>.<consumer>.<deliveries>..., with two words more behind $JS.ACK from newer servers
        words = to.split(".")
        count, position = (words[4], words[5]) if len(words) == 9 else (words[6], words[7])
        before = int(count) - 1
        if not before and int(position) <= self._doubtful:
            before = 1
        headers = dict(message.headers or {})
        reply_to, correlation = headers.pop(REPLY_TO, ""), headers.pop(CORRELATION, "")
        headers.pop(_MESSAGE_ID, None)
        if correlation:
            headers.setdefault(KEY, correlation)
        return BrokerMessage(
            body=message.data,
            reply_to=reply_to,
            correlation=correlation,
            headers=headers,
            count=before + number_in(headers, DELIVERED),
            settle=partial(self._settle, to),
        )

    def _status(self, message: Message) -> None:
        """Take a status message of the server about a demand."""
        headers = message.headers or {}
        status = headers.get("Status", "")
        if status == "100":  # it still holds
            return
        left = headers.get("Nats-Pending-Messages", "")
        self._requested = max(0, self._requested - int(left)) if left.isdigit() else 0
        if status not in ("404", "408"):
            log.debug("%s: %s %s", self._adapter.subject, status, headers.get("Description", ""))
            self._missing = self._missing or status == "503" or "Deleted" in headers.get("Description", "")
            self._hold = self._last_sign + 0.25
        self._due.set()

    # -- out --------------------------------------------------------------------------------------

    def _settle(self, to: str, outcome: Outcome) -> None:
        message = self._held.get(to)
        if message is None:
            return
        if outcome == "reject":
            self._background.begin(self._set_aside(to, message))
        elif outcome == "retry":
            self._background.begin(self._give_back(to, message))
        else:
            self._acknowledge(to, b"+ACK")

    def _acknowledge(self, to: str, word: bytes) -> None:
        """Settle a message of the stream at the server, once."""
        if self._held.pop(to, None) is not None:
            self._settled.append((to, word))
            self._due.set()

    async def _give_back(self, to: str, message: Message) -> None:
        try:
            await self._adapter.give_back(self._read(message))
        except (ConnectionError, LocalError) as why:
            log.debug("%s: a request is given back, and counted: %s", self._adapter.subject, why)
            self._acknowledge(to, b"-NAK")
        else:
            self._acknowledge(to, b"+ACK")

    async def _set_aside(self, to: str, message: Message) -> None:
        try:
            await self._adapter.set_aside(message)
        except ConnectionError as why:
            log.error("%s: a message could not be set aside and will come again: %s", self._adapter.subject, why)
            self._held.pop(to, None)
            return
        self._acknowledge(to, b"+TERM")

    async def _run(self) -> None:
        while not self._closed or self._settled:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(self._progress_interval, 1.0)):
                    await self._due.wait()
            self._due.clear()
            try:
                await self._turn()
            except LocalError as why:
                self._stuck.report(f"no requests come: {why}")
                self._hold = self._loop.time() + 1
            except ConnectionError as why:
                if self._closed:
                    return
                self._hold = self._loop.time() + 0.25
                if self._connection.alive:
                    if not self._connection.keeper.young:
                        self._stuck.report(f"no requests come until JetStream does its part: {why}")
                    await asyncio.sleep(0.1)

    async def _turn(self) -> None:
        if not self._connection.alive:
            return
        while self._settled:
            to, word = self._settled[0]
            await self._connection.publish(to, word)
            self._settled.pop(0)
        now = self._loop.time()
        if now - self._last_progress >= self._progress_interval:
            self._last_progress = now
            for to in tuple(self._held):
                await self._connection.publish(to, b"+WPI")
        if self._requested and now - self._last_sign > SILENCE:  # the server that had our requests is gone
            self._requested, self._missing = 0, True
        if self._paused or now < self._hold:
            return
        if self._missing:
            await self._adapter._create_missing()
            self._missing = False
        if self._server != (server := self._connection.server):
            self._doubtful = await self._adapter.newest()
            self._server = server
        room = self._prefetch - len(self._held) - self._requested
        if room > 0 and self._requested * 4 <= self._prefetch:
            self._number += 1
            expires, beat = round(self._holds * _NANO), round(min(BEAT, self._holds / 3) * _NANO)
            demand = {"batch": room, "expires": expires, "idle_heartbeat": beat}
            self._requested += room
            self._last_sign = now
            await self._connection.publish(self._next, msgspec.json.encode(demand), reply=f"{self._box}.{self._number}")
