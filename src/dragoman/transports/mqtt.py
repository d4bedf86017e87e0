"""MQTT 5, and 3.1.1 where it must be: `mqtt://host/devices/lamp-1`, `mqtts://`; the path is the topic.

Rules:

- A request goes to the topic, with QoS 1, Response Topic and Correlation Data; workers share a subscription
  (`$share/<group>/<topic>`) and acknowledge after the work. Cancels and broadcasts go to `<topic>/control`, with QoS 0,
  so that no unacknowledged request holds them up. Mailboxes are `<topic>/reply/<client>`, what nobody can answer goes
  to `<topic>/dead`: whoever may use `<topic>/#` can do it all.
- 3.1.1 has no properties, so the topic says it: `<topic>/request/<mailbox>/<correlation>[/<headers>]`, answers at
  `<mailbox>/<correlation>[/<headers>]`, each part URL-encoded, the headers as `name=value&...`. Workers hear that form
  in both versions, so a caller on 3.1.1 reaches a worker on 5.
- MQTT does not count deliveries. What was given to a process that died is published anew with its count raised and then
  acknowledged; so is, with its count as it was, what we give back.
- A worker without a name of its own leaves a will at `<topic>/fallen/<group>`: who hears it takes over what it had.
- Retained messages are no requests: they are acknowledged and forgotten.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from urllib.parse import quote, urlencode

from msgspec.structs import replace

from ..channel import Channel, Listener, Options, Served
from . import broker_channel, broker_listener
from .broker import AGAIN, AHEAD, KIND, YOUNG, Letter, NotTaken, Outcome, Refused, Take, Unroutable, asked
from .broker_life import Asides, pauses
from .mqtt_link import NO_SUBSCRIBERS, TURNED_AWAY, UNSUPPORTED, Blamed, Link, Published, TurnedAway
from .mqtt_words import COUNT, GROUP, OPTIONS, OWN_NAME, TOPIC_SAYS, letter_of, place_of, said, topic_of
from .sockets import in_words, sole
from .urls import Url, parse

log = logging.getLogger("dragoman.wire")

PAUSES = (0.1, 2.0)
"""The first and the longest pause between two tries to connect."""
ROUND_THE_BODY = 4_096
"""Bytes of a packet that are kept for topic and properties."""
SECONDS_TO_LEAVE = 5.0
SECONDS_TO_CLAIM = 0.5
"""How long workers wait for one another's claims to what a dead one leaves."""
STRIKES = 3
"""How often the link may be lost over one message before that is not sent any more."""


async def dial(url: str, options: Options) -> Channel:
    """A channel to whoever serves the URL's topic. Broken when the broker is not there."""
    where = parse(url)
    return await broker_channel.reach(MqttPost(where, options, serving=False), where, options)


async def listen(url: str, served: Mapping[str, Served], options: Options) -> Listener:
    """A worker at the URL's topic. LocalError when it cannot be one."""
    where = parse(url)
    one, post = sole(where, served), MqttPost(where, options, serving=True)
    return await broker_listener.begin(post, where, one, options, name=post.topic)


class MqttPost:
    """A `Post`; see the module's rules."""

    name = "MQTT"
    durable = True

    def __init__(self, where: Url, options: Options, *, serving: bool) -> None:
        query = asked(where, *OPTIONS)
        self.topic = topic_of(where)
        self.limit = 0
        self.on_state: Callable[[bool, str], None] | None = None
        self._shown = where.address
        self._group = query.get("group", GROUP)
        self._named = bool(query.get("client"))
        self._place = place_of(where, options, serving=serving)
        self._shares_asked = "group" in query
        self._dead = f"{self.topic}/dead"
        self._fallen = f"{self.topic}/fallen/{self._group}"
        self._claims: dict[str, set[str]] = {}
        self._control = f"{self.topic}/control"
        self._asked = f"{self.topic}/request"
        self._own = f"{self.topic}/reply/{self._place.client}"
        self._takes: dict[str, Take] = {}
        self._early: list[tuple[Link, Published]] = []
        self._filters: dict[str, int] = {}
        self._working: list[str] = []
        self._link: Link | None = None
        self._inherits = False
        self._renewing = 0
        self._returning: asyncio.Task[None] | None = None
        self._asides = Asides(where.shown)
        self._drained: asyncio.Event | None = None
        self._unsettled: dict[int, tuple[Link, Published]] = {}
        self._strikes: dict[str, int] = {}
        self._out: dict[str, tuple[Letter, float]] = {}  # what the broker has and nobody answered, and until when
        self._closing = False
        self._back = -math.inf

    # -- the link ---------------------------------------------------------------------------------

    async def open(self) -> None:
        """See `Post.open`; on 3.1.1 where the broker knows no 5."""
        try:
            self._link = await self._connect(clean=not self._named)
        except ConnectionError as why:
            # "If a Server does not support the version it MAY respond with 0x84 (Unsupported Protocol Version) and then
            # MUST close" (MQTT 5.0, 3.1.2.2); older ones answer in their own version, or just close
            if (
                self._place.version != "5"
                or why.errno is not None
                or (isinstance(why, TurnedAway) and why.code != UNSUPPORTED)
            ):
                raise
            self._place = replace(self._place, version="3.1.1", expiry=self._place.expiry if self._named else 0)
            try:
                self._link = await self._connect(clean=not self._named)
            except ConnectionError as again:
                raise (again if isinstance(again, TurnedAway) else why) from None
            log.info("%s: no MQTT 5 there; 3.1.1 it is", self._shown)
        self._inherits = self._link.resumed

    async def _connect(self, *, clean: bool) -> Link:
        link = Link(self._place, self._arrived, self._lost)
        await link.open(clean=clean)
        if link.why:
            raise ConnectionError(link.why)
        self.limit = max(link.packet - ROUND_THE_BODY - 2 * len(self.topic), 1)
        return link

    def _lost(self, link: Link, why: str) -> None:
        if self._link is not link:
            return
        self._link = None
        self._inherits = False
        if self._drained is not None:
            self._drained.set()
        if self._closing:
            return
        if self.on_state is not None:
            self.on_state(False, why)
        self._returning = self._asides.begin(self._return())

    async def _return(self) -> None:
        """Until the broker is back and gives us what we took before."""
        for pause in pauses(*PAUSES):
            await asyncio.sleep(pause)
            link = None
            try:
                link = await self._connect(clean=False)
                await self._subscribe(link, self._filters)
            except (OSError, ValueError) as why:
                if link is not None:
                    await link.close(forget=False)
                if self.on_state is not None:
                    self.on_state(False, in_words(why))
                continue
            if link.why:
                continue
            self._link = link
            self._back = asyncio.get_running_loop().time()
            if self.on_state is not None:
                self.on_state(True, "")
            if not link.resumed:
                self._asides.begin(self._ask_again(link))
            return

    async def _ask_again(self, link: Link) -> None:
        """The broker has come back without our session, so it may have forgotten what it had confirmed."""
        clock = asyncio.get_running_loop().time
        for correlation, (letter, until) in list(self._out.items()):
            count = int(letter.headers.get(AGAIN, "0")) + 1
            letter = replace(letter, headers={**letter.headers, AGAIN: str(count)})
            while correlation in self._out and not link.why and (left := until - clock()) > 0:
                try:
                    await self.request(letter, left)
                except NotTaken:
                    await asyncio.sleep(PAUSES[0])
                except ConnectionError as why:
                    log.debug("%s: a request cannot be sent again: %s", self._shown, why)
                    break
                else:
                    break

    def _here(self) -> Link:
        if self._link is None or self._link.why:
            raise NotTaken("the broker is away" if self._link is None else self._link.why)
        return self._link

    async def _subscribe(self, link: Link, filters: Mapping[str, int]) -> None:
        for qos in sorted(set(filters.values())):
            some = [one for one, asked in filters.items() if asked == qos]
            codes = await link.subscribe(some, qos)
            for one, code in zip(some, codes, strict=False):
                if code >= TURNED_AWAY:
                    raise Refused(f"{self._shown}: the broker lets us not subscribe to {one} (0x{code:02x})")

    async def _follow(self, filters: Mapping[str, int]) -> None:
        await self._subscribe(self._here(), filters)
        self._filters |= filters

    # -- letters in -------------------------------------------------------------------------------

    async def work(self, take: Take, prefetch: int) -> None:
        """See `Post.work`. The broker was told of `prefetch` when we connected."""
        link = self._here()
        shares = link.shares or (self._place.version != "5" and self._shares_asked)
        group = f"$share/{self._group}/" if shares else ""
        if not shares:
            log.info("%s: no shared subscriptions; every worker of %s gets every request", self._shown, self.topic)
        self._working = [f"{group}{self.topic}", f"{group}{self._asked}/#"]
        self._takes["work"] = take
        early, self._early = self._early, []
        for old, message in early:
            self._worked(old, message)
        fallen = {self._fallen: 0} if self._place.will is not None else {}
        await self._follow(dict.fromkeys(self._working, 1) | fallen)

    async def pause(self) -> None:
        """See `Post.pause`. What the broker has put by for us still comes, and is given back; `close` waits for the
        end of that, a message to ourselves."""
        link = self._here()
        for one in self._working:
            self._filters.pop(one, None)
        if not self._working:
            return
        filters, self._working = self._working, []
        self._drained = asyncio.Event()
        await self._mark_end(link, filters)

    async def _mark_end(self, link: Link, filters: list[str]) -> None:
        """Take no more, and send ourselves a message that comes behind everything that was put by for us."""
        await link.unsubscribe(filters)
        own = f"{self.topic}/reply/{link.place.client}"
        await self._subscribe(link, {own: 1})
        await link.publish(Published(topic=own, body=b""))

    async def hear(self, take: Take) -> None:
        """See `Post.hear`."""
        self._takes["control"] = take
        await self._follow({f"{self._control}/#": 0})

    async def mailbox(self, take: Take) -> str:
        """See `Post.mailbox`."""
        self._takes["reply"] = take
        await self._follow({self._own if self._place.version == "5" else f"{self._own}/#": 1})
        return self._own

    def _arrived(self, link: Link, message: Published) -> None:
        topic = message.topic
        if message.retained:
            link.acknowledge(message)
        elif topic == self.topic or topic.startswith(f"{self._asked}/"):
            self._worked(link, message)
        elif topic == self._own or topic.startswith(f"{self._own}/"):
            if (take := self._takes.get("reply")) is not None:
                letter = letter_of(message, self._own, answer=True, settle=lambda outcome: link.acknowledge(message))
                if letter.headers.get(KIND) != AHEAD:
                    self._out.pop(letter.correlation, None)
                take(letter)
            else:
                link.acknowledge(message)
                if self._drained is not None:
                    self._drained.set()
        elif topic == self._fallen:
            self._fell(link, message.body.decode("latin-1").split())
        else:
            if (take := self._takes.get("control")) is not None and topic.startswith(self._control):
                take(letter_of(message, self._control))
            link.acknowledge(message)

    def _worked(self, link: Link, message: Published) -> None:
        """A request."""
        take = self._takes.get("work")
        if take is None:  # a session that was kept: the broker begins before we do
            self._early.append((link, message))
        elif message.again and self._inherits and link is self._link:
            self._renewing += 1
            self._asides.begin(self._anew(link, message, 1)).add_done_callback(lambda _: self._renewed())
        elif self._renewing:  # a copy is taken when its original is acknowledged: whoever dies of it leaves one behind
            self._early.append((link, message))
        else:
            self._unsettled[id(message)] = (link, message)
            take(letter_of(message, self._asked, settle=lambda outcome: self._settle(link, message, outcome)))

    def _renewed(self) -> None:
        self._renewing -= 1
        if self._renewing:
            return
        if self._link is not None:
            self._link.flush()
        early, self._early = self._early, []
        for link, message in early:
            self._worked(link, message)

    def _settle(self, link: Link, message: Published, outcome: Outcome) -> None:
        self._unsettled.pop(id(message), None)
        if outcome == "retry":
            self._asides.begin(self._anew(link, message, 0))
        elif outcome == "reject":
            self._asides.begin(self._bury(link, message))
        else:
            link.acknowledge(message)

    async def _anew(self, link: Link, message: Published, more: int) -> None:
        """Publish again what somebody else shall do, then acknowledge it. Where that cannot be done it stays
        unacknowledged, and the broker has it."""
        head = letter_of(message, self._asked)
        headers = dict(head.headers)
        count = head.count - message.again + more
        if count:
            headers[COUNT] = str(count)
        again = replace(message, headers=headers)
        if message.topic.startswith(f"{self._asked}/"):
            words = message.topic[len(self._asked) + 1 :].split("/")[:2]
            again = replace(message, topic="/".join([self._asked, *words, *([urlencode(headers)] if headers else [])]))
        try:
            code = await self._here().publish(again)
        except ConnectionError as why:
            log.debug("%s: a request stays with the broker: %s", self._shown, why)
            return
        if code:
            log.warning("%s: nobody else serves %s; a request stays with the broker", self._shown, self.topic)
        else:
            link.acknowledge(message)

    def _fell(self, link: Link, words: list[str]) -> None:
        """A worker's will, `<client>`, or another worker's claim to what it leaves, `<client> <heir>`."""
        if len(words) == 2 and words[0] in self._claims:
            self._claims[words[0]].add(words[1])
        elif len(words) == 1 and OWN_NAME.fullmatch(words[0]) and self._working and words[0] != self._place.client:
            self._claims[words[0]] = {self._place.client}
            self._asides.begin(self._inherit(link, words[0]))

    async def _inherit(self, link: Link, client: str) -> None:
        """Another worker died. Brokers go on putting by its share of the requests until its session expires, and give
        nothing of it to others: so one of us connects in its place, publishes anew what it has, and ends it. If that
        one dies meanwhile, the will is heard again."""
        if not link.why:
            link.tell(Published(topic=self._fallen, body=f"{client} {self._place.client}".encode()))
        await asyncio.sleep(SECONDS_TO_CLAIM)
        if min(self._claims.pop(client)) != self._place.client or link.why:  # the broker fell, not the worker
            return
        end, given = asyncio.Event(), list[asyncio.Task[None]]()

        def take(theirs: Link, one: Published) -> None:
            if one.topic == self.topic or one.topic.startswith(f"{self._asked}/"):
                given.append(self._asides.begin(self._anew(theirs, one, int(one.again))))
            else:
                theirs.acknowledge(one)
                if one.topic.startswith(f"{self.topic}/reply/"):
                    end.set()

        theirs = Link(
            replace(self._place, client=client, will=(self._fallen, client.encode())), take, lambda link, why: end.set()
        )
        self._renewing += 1
        try:
            await theirs.open(clean=False)
            if theirs.resumed:
                log.warning("%s: a worker of %s died; what it had goes to the others", self._shown, self.topic)
                await self._mark_end(theirs, self._working)
                await asyncio.wait_for(end.wait(), SECONDS_TO_LEAVE)
                await asyncio.gather(*given)
        except (OSError, ValueError) as why:  # it lives after all and took its place back, or the broker is lost
            log.info("%s: what a dead worker had is not ours: %s", self._shown, why)
        finally:
            await theirs.close(forget=not theirs.resumed or (end.is_set() and not theirs.owes))
            self._renewed()

    async def _bury(self, link: Link, message: Published) -> None:
        """MQTT has no dead-letter queue: whoever wants to see what could not be done subscribes to `<topic>/dead`."""
        try:
            code = await self._here().publish(replace(message, topic=self._dead, expiry=0))
        except ConnectionError as why:
            log.debug("%s: a request stays with the broker: %s", self._shown, why)
            return
        seen = "nobody hears that" if code == NO_SUBSCRIBERS else "nobody may" if code else "somebody hears that"
        log.warning("%s: %d bytes set aside at %s (%s)", self._shown, len(message.body), self._dead, seen)
        link.acknowledge(message)

    # -- letters out ------------------------------------------------------------------------------

    async def request(self, letter: Letter, ttl: float | None) -> None:
        """See `Post.request`."""
        code = await self._send(letter, self._message(self.topic, "/request", letter, ttl))
        if code == 0 and ttl is not None and "reply" in self._takes:
            self._keep(letter, asyncio.get_running_loop().time() + ttl)
        if code == NO_SUBSCRIBERS:
            self._perhaps_not_yet()
            raise Unroutable(f"Nobody serves {self.topic} at {self._shown}")
        if code >= TURNED_AWAY:
            raise Refused(f"{self._shown}: the broker does not take the request ({said(code)})")

    def _keep(self, letter: Letter, until: float) -> None:
        self._out[letter.correlation] = letter, until
        if len(self._out) % 1_000 == 0:
            now = asyncio.get_running_loop().time()
            self._out = {name: one for name, one in self._out.items() if one[1] > now}

    async def tell(self, letter: Letter) -> None:
        """See `Post.tell`."""
        self._out.pop(letter.correlation, None)
        self._here().tell(self._message(self._control, "", letter, None))

    async def answer(self, to: str, letter: Letter) -> None:
        """See `Post.answer`."""
        message = Published(topic=to, body=letter.body, correlation=letter.correlation, headers=letter.headers)
        if to.endswith(f"/{TOPIC_SAYS}"):
            base = to[: -len(TOPIC_SAYS) - 1]
            message = replace(message, topic=f"{base}/{urlencode(letter.headers)}" if letter.headers else base)
        try:
            code = await self._send(letter, message)
        except Refused as why:
            log.error("an answer is lost: %s", why)
            return
        if code == NO_SUBSCRIBERS:
            self._perhaps_not_yet()
        if code >= TURNED_AWAY:
            log.error("%s: an answer is lost: the broker does not take it (%s)", self._shown, said(code))

    async def _send(self, letter: Letter, message: Published) -> int:
        try:
            code = await self._here().publish(message)
        except Blamed:
            strikes = self._strikes[letter.correlation] = self._strikes.get(letter.correlation, 0) + 1
            if strikes < STRIKES:
                raise
            del self._strikes[letter.correlation]
            words = f"lost {strikes} times while it was sent {len(letter.body)} bytes; they are not sent again"
            raise Refused(f"{self._shown}: the broker was {words}") from None
        if self._strikes:
            self._strikes.pop(letter.correlation, None)
        return code

    def _perhaps_not_yet(self) -> None:
        if asyncio.get_running_loop().time() < self._back + YOUNG:
            raise NotTaken(f"{self._shown} is back, those who were subscribed are not yet")

    def _message(self, topic: str, below: str, letter: Letter, ttl: float | None) -> Published:
        if self._place.version == "5":
            return Published(
                topic=topic,
                body=letter.body,
                reply_to=letter.reply_to,
                correlation=letter.correlation,
                headers=letter.headers,
                expiry=0 if ttl is None else min(math.ceil(ttl) or 1, 0xFFFFFFFF),
            )
        words = [topic + below, quote(letter.reply_to, safe=""), quote(letter.correlation, safe="")]
        if letter.headers:
            words.append(urlencode(letter.headers))
        return Published(topic="/".join(words), body=letter.body)

    # -- the end ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """See `Post.close`."""
        if self._closing:
            return
        self._closing = True
        if self._returning is not None and not self._returning.done():
            self._returning.cancel()
        link = self._link
        if link is not None and not link.why:
            if self._drained is not None:
                try:
                    await asyncio.wait_for(self._drained.wait(), SECONDS_TO_LEAVE)
                except TimeoutError:
                    log.warning("%s: more was put by for us than can be given back", self._shown)
            for mine, message in list(self._unsettled.values()):
                self._asides.begin(self._anew(mine, message, 1))
        await self._asides.end(SECONDS_TO_LEAVE)
        if link is not None:
            await link.close(forget=not self._named and not link.owes)
