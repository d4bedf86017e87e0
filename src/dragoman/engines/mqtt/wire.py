"""MQTT 5, and 3.1.1 where it must be: `mqtt://host/devices/lamp-1`, `mqtts://`; the path is the topic.

Rules:

- A request goes to the topic, with QoS 1, Response Topic and Correlation Data; workers share a subscription
  (`$share/<group>/<topic>`) and acknowledge after the work. Cancels and broadcasts go to `<topic>/control`, with QoS 0,
  so that no unacknowledged request holds them up. Mailboxes are `<topic>/reply/<client>/<random>`,
  with `?mailbox=` `<topic>/reply/<mailbox>/<client>/<random>`; a worker answers nowhere else but where `?reply_to=`
  allows it. What cannot be answered goes to `<topic>/dead`: a client that may use
  `<topic>/#` can do it all.
- 3.1.1 has no properties, so they are in the topic: `<topic>/request/<mailbox>/<correlation>[/<headers>]`, answers at
  `<mailbox>/<correlation>[/<headers>]`, each part URL-encoded, the headers as `name=value&...`. Workers accept that
  form in both versions, so a caller on 3.1.1 reaches a worker on 5.
- MQTT does not count deliveries. Requests of a process that died are published again with their count raised and then
  acknowledged; so are requests that we give back, with their count unchanged.
- A worker without a name of its own leaves a will at `<topic>/fallen/<group>/<client>`. A worker that receives the will
  takes over the dead one's requests. The broker retains the will as long as the dead worker's session, so that a worker
  that starts later receives it too. The heir removes it when it is done, and so does a worker that comes back.
- Retained messages are not requests: they are acknowledged and dropped.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Mapping
from urllib.parse import quote

from msgspec.structs import replace

from ...channel import Options
from ...net.reconnect import BackgroundTasks, Keeper
from ...net.sharing import OnState, ignore_state
from ...net.sockets import in_words
from ...net.urls import Url, read_query
from ...repeats import Repeats
from ...transports.broker.contract import (
    BrokerMessage,
    Mailboxes,
    NotTaken,
    Outcome,
    Refused,
    Take,
    Unroutable,
    mailbox_parts,
)
from ...transports.broker.ends import ends
from .connection import (
    FIRST_FAILURE,
    NO_RETAINING,
    NO_SUBSCRIBERS,
    UNSUPPORTED,
    ConnectRefused,
    LostBySize,
    MqttEndpoint,
    MqttLink,
)
from .messages import MqttMessage, sendable
from .takeover import Takeovers
from .topics import (
    ALL_IN_TOPIC,
    COUNT,
    GROUP,
    MAILBOX,
    OPTIONS,
    describe_code,
    endpoint_of,
    in_topic,
    message_of,
    topic_of,
)

log: logging.Logger = logging.getLogger("dragoman.wire")
repeats: Repeats = Repeats(log)

PAUSES = (0.1, 2.0)
"""The first and the longest pause between two tries to connect."""
ROUND_THE_BODY = 4_096
"""Bytes of a packet reserved for topic and properties."""
SECONDS_TO_LEAVE = 5.0
STRIKES = 3
"""How often the link may be lost because of one message before the message is refused."""


class MqttAdapter:
    """The `BrokerAdapter` of MQTT."""

    name = "MQTT"
    durable = True

    def __init__(self, where: Url, options: Options, *, serving: bool) -> None:
        query = read_query(where, *OPTIONS)
        self.topic: str = topic_of(where)
        self.limit: int = 0
        self.on_state: OnState = ignore_state
        self.shown: str = where.address
        self._group = query.get("group", GROUP)
        self._named = bool(query.get("client"))
        self.endpoint: MqttEndpoint = endpoint_of(where, options, serving=serving)
        self._mailboxes = Mailboxes(where, f"{self.topic}/reply/*", legal=re.compile(MAILBOX).fullmatch)
        self._wants_groups = "group" in query
        self._dead = f"{self.topic}/dead"
        self._fallen = f"{self.topic}/fallen/{self._group}"
        self._takeovers = Takeovers(self, self._fallen)
        self._control = f"{self.topic}/control"
        self._request_topic = f"{self.topic}/request"
        self._own = f"{self.topic}/reply/{self.endpoint.client}"
        self._names = mailbox_parts(where)
        self._takes: dict[str, Take] = {}
        self._early: list[tuple[MqttLink, MqttMessage]] = []
        self._filters: dict[str, int] = {}
        self.working: list[str] = []
        """The subscriptions for requests; empty while it takes none."""
        self.link: MqttLink | None = None
        self._inherits = False
        self.renewing: int = 0
        self._keeper = Keeper(self._resume, self._watch, PAUSES, in_words=in_words, faults=(OSError, ValueError))
        self._keeper.states.append(lambda alive, why: self.on_state(alive, why))
        self._gone: asyncio.Future[str]  # why the link was lost; from `open` on
        self.background: BackgroundTasks = BackgroundTasks(where.shown)
        self._drained: asyncio.Event | None = None
        self._unsettled: dict[int, tuple[MqttLink, MqttMessage]] = {}
        self._strikes: dict[str, int] = {}
        self.closing: bool = False
        self._anew = False
        """Whether a try to connect, even one that failed, may have made a new session, which the next one then
        finds."""

    # -- the link ---------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect for the first time; with 3.1.1 if the broker does not know 5. Raises OSError."""
        try:
            link = await self._connect()
        except ConnectionError as why:
            # "If a Server does not support the version it MAY respond with 0x84 (Unsupported Protocol Version) and then
            # MUST close" (MQTT 5.0, 3.1.2.2); older ones answer in their own version, or just close
            if (
                self.endpoint.version != "5"
                or why.errno is not None
                or (isinstance(why, ConnectRefused) and why.code != UNSUPPORTED)
            ):
                raise
            expiry = self.endpoint.expiry if self._named else 0
            self.endpoint = replace(self.endpoint, version="3.1.1", expiry=expiry, will=None, will_kept=0)
            try:
                link = await self._connect()
            except ConnectionError as again:
                raise (again if isinstance(again, ConnectRefused) else why) from None
            log.info("%s: no MQTT 5 there; 3.1.1 it is", self.shown)
        self._inherits = link.resumed
        self._anew = False
        self._adopt_link(link)
        self._keeper.begin()

    async def _connect(self) -> MqttLink:
        link = MqttLink(self.endpoint, self._receive, self._on_lost)
        try:
            await link.open()
        except ConnectRefused as why:
            if why.code != NO_RETAINING or not self.endpoint.will_kept:
                raise
            self.endpoint = replace(self.endpoint, will_kept=0)
            return await self._connect()
        finally:
            if link.dialled and not link.resumed:
                self._anew = True
        if link.why:
            raise ConnectionError(link.why)
        self.limit = max(link.packet - ROUND_THE_BODY - 2 * len(self.topic), 1)
        return link

    def _on_lost(self, link: MqttLink, why: str) -> None:
        if self.link is not link:
            return
        self.link = None
        self._inherits = False
        if self._drained is not None:
            self._drained.set()
        if not self.closing:
            self._gone.set_result(why)

    def _adopt_link(self, link: MqttLink) -> None:
        self.link, self._gone = link, asyncio.get_running_loop().create_future()

    async def _watch(self) -> str:
        return await self._gone

    async def _resume(self) -> str:
        """Connect again, and subscribe to the same. Return why messages may have been lost, or ""."""
        link = await self._connect()
        try:
            if self.endpoint.will_kept:
                self._takeovers.forget_will(link, self.endpoint.client)
            await self._subscribe(link, self._filters)
        except BaseException:  # cancelled, too: this link has no other owner yet, so it is closed here or never
            await link.close(forget=self.closing and not self._named and not link.owes)
            raise
        if link.why:
            raise ConnectionError(link.why)
        self._adopt_link(link)
        forgot, self._anew = self._anew, False
        return "it has forgotten our session" if forgot else ""

    def _connected_link(self) -> MqttLink:
        if self.link is None or self.link.why:
            raise NotTaken("the broker is away" if self.link is None else self.link.why)
        return self.link

    async def _subscribe(self, link: MqttLink, filters: Mapping[str, int]) -> None:
        kinds = {one: (qos, one.startswith(self._fallen)) for one, qos in filters.items()}
        for kind in sorted(set(kinds.values())):
            some = [one for one, its in kinds.items() if its == kind]
            codes = await link.subscribe(some, kind[0], retained=kind[1])
            for one, code in zip(some, codes, strict=False):
                if code >= FIRST_FAILURE:
                    raise Refused(f"{self.shown}: the broker does not let us subscribe to {one} (0x{code:02x})")

    async def _subscribe_and_keep(self, filters: Mapping[str, int]) -> None:
        await self._subscribe(self._connected_link(), filters)
        self._filters |= filters

    # -- messages in ------------------------------------------------------------------------------

    async def work(self, take: Take, prefetch: int) -> None:
        """Take requests from now on. The broker got `prefetch` when we connected."""
        link = self._connected_link()
        shares = link.shares or (self.endpoint.version != "5" and self._wants_groups)
        group = f"$share/{self._group}/" if shares else ""
        if not shares:
            log.info("%s: no shared subscriptions; every worker of %s gets every request", self.shown, self.topic)
        self.working = [f"{group}{self.topic}", f"{group}{self._request_topic}/#"]
        self._takes["work"] = take
        early, self._early = self._early, []
        for old, message in early:
            self._take_request(old, message)
        fallen = {f"{self._fallen}/+": 0} if self.endpoint.will is not None else {}
        await self._subscribe_and_keep(dict.fromkeys(self.working, 1) | fallen)

    async def pause(self) -> None:
        """Take no more requests. Those that the broker has queued for us still come, and are published again; `close`
        waits for the last of them, a message to ourselves."""
        link = self._connected_link()
        for one in self.working:
            self._filters.pop(one, None)
        filters, self.working = self.working, []
        if not filters:
            return
        self._drained = asyncio.Event()
        await self.mark_end(link, filters)

    async def mark_end(self, link: MqttLink, filters: list[str]) -> None:
        """Take no more, and send ourselves a message that comes after everything that the broker has queued for us."""
        await link.unsubscribe(filters)
        own = f"{self.topic}/reply/{link.endpoint.client}"
        await self._subscribe(link, {own: 1})
        await link.publish(MqttMessage(topic=own, body=b""))

    async def receive_control(self, take: Take) -> None:
        self._takes["control"] = take
        await self._subscribe_and_keep({f"{self._control}/#": 0})

    async def mailbox(self, take: Take) -> str:
        """Receive answers; return the mailbox's address. A client with a name has a session that outlives this process,
        so it subscribes to the same each time: to all addresses that were or will be its own."""
        *confined, random = self._names
        mine = "/".join((f"{self.topic}/reply", *confined, self.endpoint.client))
        self._own = f"{mine}/{random}"
        self._takes["reply"] = take
        all_below = f"{self._own}/#" if self.endpoint.version != "5" else self._own
        await self._subscribe_and_keep({f"{mine}/#" if self._named else all_below: 1})
        return self._own

    def _receive(self, link: MqttLink, message: MqttMessage) -> None:
        topic = message.topic
        if topic.startswith(f"{self._fallen}/"):
            self._takeovers.receive(link, topic[len(self._fallen) + 1 :], message)
        elif message.retained:
            link.acknowledge(message)
        elif topic == self.topic or topic.startswith(f"{self._request_topic}/"):
            self._take_request(link, message)
        elif topic == self._own or topic.startswith(f"{self._own}/"):
            if (take := self._takes.get("reply")) is not None:
                take(message_of(message, self._own, answer=True, settle=lambda outcome: link.acknowledge(message)))
            else:
                link.acknowledge(message)
                if self._drained is not None:
                    self._drained.set()
        else:
            if (take := self._takes.get("control")) is not None and topic.startswith(self._control):
                take(message_of(message, self._control))
            link.acknowledge(message)

    def _take_request(self, link: MqttLink, message: MqttMessage) -> None:
        """Take a request, or keep it until this worker may take it."""
        take = self._takes.get("work")
        if take is None:  # the broker has kept our session, and sends before we take requests
            self._early.append((link, message))
        elif message.again and self._inherits:  # only the first link inherits a session
            self.renewing += 1
            self.background.begin(self.republish(link, message, 1)).add_done_callback(lambda _: self.renewed())
        elif self.renewing:  # it may be a copy, to be taken once its original is acknowledged, or both would remain
            self._early.append((link, message))
        else:
            self._unsettled[id(message)] = (link, message)
            take(message_of(message, self._request_topic, settle=lambda outcome: self._settle(link, message, outcome)))

    def renewed(self) -> None:
        self.renewing -= 1
        if self.renewing:
            return
        if self.link is not None:
            self.link.flush()
        early, self._early = self._early, []
        for link, message in early:
            self._take_request(link, message)

    def _settle(self, link: MqttLink, message: MqttMessage, outcome: Outcome) -> None:
        self._unsettled.pop(id(message), None)
        if outcome == "retry":
            self.background.begin(self.republish(link, message, 0))
        elif outcome == "reject":
            self.background.begin(self._dead_letter(link, message))
        else:
            link.acknowledge(message)

    async def republish(self, link: MqttLink, message: MqttMessage, more: int) -> None:
        """Publish a request again for other workers, then acknowledge it. If that fails it stays unacknowledged, and
        the broker keeps it."""
        head = message_of(message, self._request_topic)
        headers = dict(head.headers)
        count = head.count - message.again + more
        if count:
            headers[COUNT] = str(count)
        again = replace(message, headers=headers)
        if message.topic.startswith(f"{self._request_topic}/"):
            words = message.topic[len(self._request_topic) + 1 :].split("/")[:2]
            again = replace(
                message, topic="/".join([self._request_topic, *words, *([in_topic(headers)] if headers else [])])
            )
        try:
            code = await self._connected_link().publish(again)
        except ConnectionError as why:
            log.debug("%s: a request stays with the broker: %s", self.shown, why)
            return
        except ValueError:  # with the count its topic would be too long
            await self._dead_letter(link, message)
            return
        if code:
            repeats.warning("%s: no other worker serves %s; a request stays with the broker", self.shown, self.topic)
        else:
            link.acknowledge(message)

    async def _dead_letter(self, link: MqttLink, message: MqttMessage) -> None:
        """Publish a request that could not be run at `<topic>/dead`: MQTT has no queue of dead letters."""
        try:
            code = await self._connected_link().publish(replace(message, topic=self._dead, expiry=0))
        except ConnectionError as why:
            log.debug("%s: a request stays with the broker: %s", self.shown, why)
            return
        seen = (
            "no subscriber hears that"
            if code == NO_SUBSCRIBERS
            else "no client may"
            if code
            else "a subscriber hears that"
        )
        repeats.warning("%s: %d bytes set aside at %s (%s)", self.shown, len(message.body), self._dead, seen)
        link.acknowledge(message)

    # -- messages out -----------------------------------------------------------------------------

    async def request(self, message: BrokerMessage, ttl: float | None) -> None:
        code = await self._send(message, self._message(self.topic, "/request", message, ttl))
        if code == NO_SUBSCRIBERS:
            self._check_not_young()
            raise Unroutable(f"no worker serves {self.topic} at {self.shown}")
        if code >= FIRST_FAILURE:
            raise Refused(f"{self.shown}: the broker does not take the request at {self.topic} ({describe_code(code)})")

    async def send_control(self, message: BrokerMessage) -> None:
        self._connected_link().publish_unconfirmed(self._message(self._control, "", message, None))

    def answerable(self, message: BrokerMessage) -> bool:
        return self._mailboxes.hold(message.reply_to)

    async def answer(self, to: str, message: BrokerMessage) -> None:
        if to.endswith(f"/{ALL_IN_TOPIC}"):  # the correlation is in the topic already, URL-encoded
            base = to[: -len(ALL_IN_TOPIC) - 1]
            published = MqttMessage(
                topic=f"{base}/{in_topic(message.headers)}" if message.headers else base, body=message.body
            )
        else:
            published = MqttMessage(
                topic=to, body=message.body, correlation=message.correlation, headers=message.headers
            )
        try:
            code = await self._send(message, published)
        except Refused as why:
            repeats.error("an answer is lost: %s", why)
            return
        if code == NO_SUBSCRIBERS:
            self._check_not_young()
        if code >= FIRST_FAILURE:
            repeats.error(
                "%s: an answer is lost: the broker does not take it at %s (%s)", self.shown, to, describe_code(code)
            )

    async def _send(self, message: BrokerMessage, published: MqttMessage) -> int:
        try:
            code = await self._connected_link().publish(published)
        except LostBySize:
            strikes = self._strikes[message.correlation] = self._strikes.get(message.correlation, 0) + 1
            if strikes < STRIKES:
                raise
            del self._strikes[message.correlation]
            words = f"lost {strikes} times while it was sent {len(message.body)} bytes; they are not sent again"
            raise Refused(f"{self.shown}: the broker was {words}") from None
        if self._strikes:
            self._strikes.pop(message.correlation, None)
        return code

    def _check_not_young(self) -> None:
        if self._keeper.young:
            raise NotTaken(f"{self.shown} is back, those who were subscribed are not yet")

    def _message(self, topic: str, below: str, message: BrokerMessage, ttl: float | None) -> MqttMessage:
        if self.endpoint.version == "5":
            return MqttMessage(
                topic=topic,
                body=message.body,
                reply_to=message.reply_to,
                correlation=message.correlation,
                headers=sendable(message.headers),
                expiry=0 if ttl is None else min(math.ceil(ttl) or 1, 0xFFFFFFFF),
            )
        words = [topic + below, quote(message.reply_to, safe=""), quote(message.correlation, safe="")]
        if message.headers:
            words.append(in_topic(message.headers))
        return MqttMessage(topic="/".join(words), body=message.body)

    # -- the end ----------------------------------------------------------------------------------

    async def close(self) -> None:
        if self.closing:
            return
        self.closing = True
        await self._keeper.close()
        link = self.link
        if link is not None and not link.why:
            if self._drained is not None:
                try:
                    await asyncio.wait_for(self._drained.wait(), SECONDS_TO_LEAVE)
                except TimeoutError:
                    repeats.warning("%s: more was put by for us than can be given back", self.shown)
            for mine, message in list(self._unsettled.values()):
                self.background.begin(self.republish(mine, message, 1))
        await self.background.end(SECONDS_TO_LEAVE)
        if link is not None:
            await link.close(forget=not self._named and not link.owes)


dial, listen = ends(
    lambda where, options, serving: MqttAdapter(where, options, serving=serving), lambda adapter: adapter.topic
)
