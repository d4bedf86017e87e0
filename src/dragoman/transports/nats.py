"""`nats://[user:password@]host[:port]/calculator`, `natss://` for TLS: requests to a queue group, answers to an inbox.

The address `calculator` is these subjects (a path `/team/calculator` is the subject `team.calculator`):

- `calculator`: requests, taken by one member of the queue group (`?group=`, `workers`). The reply subject is the caller's
  inbox and, as its last part, the call's correlation id; the answer goes there without headers. So any NATS client can
  call: `nats request calculator '{"jsonrpc":"2.0","method":"add","params":[1,2],"id":1}'`.
- `calculator.control`: cancels, `calculator.all`: broadcasts. Everyone who serves the address hears them.

Rules:

- At most once. Nobody there: the server says so, and the call fails at once (`Unroutable`; within `YOUNG` seconds of a
  reconnection it is tried again). The server lost: calls that are out fail at once, and nothing that somebody may have
  heard is sent again; whether they ran nobody knows.
- `?prefetch=` requests run at once and as many wait as `limits.calls` says; beyond them a request is answered as
  busy. Nothing is dropped in silence.
- A worker that closes gives what it has not begun back to the group.
- `?stream=` makes it at least once: see `nats_stream`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from ..bus import BusLost
from ..bus.nats_line import Heard, Line, Message, TooLong, unheard
from ..channel import Channel, Listener, Options, Served, busy
from ..jsonrpc.codec import decode, failure
from ..jsonrpc.errors import PLAIN, LocalError
from ..jsonrpc.messages import NULL, Notification, Request
from . import broker_channel, broker_listener
from .broker import AGAIN, CANCEL, KEY, KIND, UNROUTABLE, Letter, Outcome, Post, Refused, Take, address, asked
from .broker_life import Asides
from .sockets import sole
from .urls import Url, parse, printable

log = logging.getLogger("dragoman.wire")

GROUP = "workers"
MESSAGE = 1024 * 1024
"""What a server takes unless it says otherwise, in bytes."""
HEADROOM = 2048
"""Bytes of a message kept for its headers: the server counts them as a part of it."""
YOUNG = 3.0
"""Seconds after a reconnection in which a request that nobody took is sent again: the workers reconnect too."""
SECONDS_TO_LEAVE = 2.0
CORRELATION, REPLY_TO = "correlation", "reply-to"
_KNOWN = ("subject", "group", "stream", "replicas", "wait", "max", "deliveries", "prefetch", "creds", "token")
_SUBJECT = r"(?!\$|_INBOX)[^\s\x00-\x1f.*>]+(\.[^\s\x00-\x1f.*>]+)*"


# -- the two ends ---------------------------------------------------------------------------------


async def dial(url: str, options: Options) -> Channel:
    """A channel whose requests go to a subject. Broken when the server does not answer, LocalError for a wrong URL."""
    where = parse(url)
    return await broker_channel.reach(post_at(where, options), where, options)


async def listen(url: str, served: Mapping[str, Served], options: Options) -> Listener:
    """A listener that is one more member of a subject's queue group. LocalError when the server does not answer or the
    URL is wrong."""
    where = parse(url)
    one, post = sole(where, served), post_at(where, options)
    return await broker_listener.begin(post, where, one, options, name=subject_of(where))


def subject_of(where: Url) -> str:
    """The subject that a URL names. LocalError where there is none."""
    last, before = address(where, "subject", legal=_SUBJECT)
    if "subject" in where.query and before:
        raise LocalError(f"{where.shown}: name the subject in the path or as ?subject=, not in both")
    return ".".join(part for part in (*before.split("/"), last) if part)


def post_at(where: Url, options: Options) -> Post:
    """The post of a URL, which is not open yet."""
    query = asked(where, *_KNOWN)
    line = Line(where, tls=options.tls)
    group = query.get("group", GROUP)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", group):
        raise LocalError(f"{where.shown}: ?group= is made of letters, digits, - and _")
    plain = NatsPost(line, subject_of(where), group, options.limits.calls)
    if "stream" not in query:
        return plain
    from .nats_stream import stream_post  # noqa: PLC0415  (only who asks for a stream pays for it)

    return stream_post(plain, where)


# -- letters and messages -------------------------------------------------------------------------


def headers_of(letter: Letter, **more: str) -> dict[str, str] | None:
    """A letter's headers as they travel. Refused where they are too long, or speak to the server."""
    headers, size = dict(more), 12
    for name, text in letter.headers.items():
        if name in more or (name == KEY and text == letter.correlation):
            continue
        if name[:5].lower() == "nats-":
            raise Refused(f"the header {printable(name)} would speak to the NATS server, not to who is called")
        headers[name] = text
        size += len(name) + (len(text) if text.isascii() else len(text.encode())) + 4
    if size > HEADROOM - 512:  # what is not the caller's own is a correlation, an inbox, a name for it
        raise Refused(f"the headers have {size} bytes; {HEADROOM - 512} are kept for them on NATS")
    return headers or None


def reply_address(to: str, correlation: str) -> str:
    """Where the answer of one call goes: a part of the caller's inbox."""
    return f"{to}.{correlation}" if correlation else to


def letter_of(message: Message, settle: Callable[[Outcome], None]) -> Letter:
    """A request as it came: the reply subject says to whom the answer goes, and its last part which call it is."""
    to, dot, correlation = message.reply.rpartition(".")
    if not dot:
        to, correlation = message.reply, ""
    headers = message.headers or {}
    if correlation and KEY not in headers:
        headers = {**headers, KEY: correlation}
    return Letter(body=message.data, reply_to=to, correlation=correlation, headers=headers, settle=settle)


class NatsPost:
    """A `broker.Post` on core NATS. `room`: requests that may wait above `prefetch`."""

    name = "NATS"

    def __init__(self, line: Line, subject: str, group: str, room: int) -> None:
        self.line = line
        self.subject = subject
        self.group = group
        self.limit = MESSAGE - HEADROOM
        self.durable = False
        self.on_state: Callable[[bool, str], None] | None = None
        line.on_state = self.state
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._take: Take | None = None
        self._prefetch = 1
        self._held = 0
        self._waiting: deque[Message] = deque()
        self._full = False
        self._working: Heard | None = None
        self._young: dict[str, Letter] | None = None
        self._grown: asyncio.TimerHandle | None = None
        self._asides = Asides(line.where.shown)

    async def open(self) -> None:
        """See `Post.open`."""
        try:
            await self.line.open()
        except BusLost:
            raise ConnectionError(self.line.why) from None

    def state(self, up: bool, why: str) -> None:
        """What the line says of itself."""
        if self._grown is not None:
            self._grown.cancel()
        self._young = None
        if up:
            self.limit = self.line.limit - HEADROOM
            self._young = {}
            self._grown = self._loop.call_later(YOUNG, self._grow)
        if self.on_state is not None:
            self.on_state(up, why)

    def _grow(self) -> None:
        self._young = None

    # -- who serves -------------------------------------------------------------------------------

    async def work(self, take: Take, prefetch: int) -> None:
        """See `Post.work`."""
        self._take, self._prefetch = take, prefetch
        self._working = await self.line.subscribe(self.subject, self._came, queue=self.group)
        await self.line.sync()

    async def pause(self) -> None:
        """See `Post.pause`."""
        if self._working is not None:
            await self._working.close(rest=True)
        while self._waiting:
            self._asides.begin(self._give_back(self._waiting.popleft()))

    async def hear(self, take: Take) -> None:
        """See `Post.hear`."""
        self.limit = self.line.limit - HEADROOM

        def came(message: Message) -> None:
            headers = message.headers or {}
            to, correlation = headers.get(REPLY_TO, ""), headers.get(CORRELATION, "")
            take(Letter(body=message.data, reply_to=to, correlation=correlation, headers=headers))

        for name in ("control", "all"):
            await self.line.subscribe(f"{self.subject}.{name}", came)

    def _came(self, message: Message) -> None:
        if self._held < self._prefetch:
            self._give(message)
        elif len(self._waiting) < self._room:
            self._waiting.append(message)
        else:
            self._refuse(message)

    def _give(self, message: Message) -> None:
        assert self._take is not None
        self._held += 1
        self._take(letter_of(message, partial(self._settle, message)))

    def _settle(self, message: Message, outcome: Outcome) -> None:
        self._held -= 1
        if outcome == "retry":
            self._asides.begin(self._give_back(message))
        if self._waiting:
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        while self._waiting and self._held < self._prefetch:
            self._give(self._waiting.popleft())
        self._full = self._full and bool(self._waiting)

    async def _give_back(self, message: Message) -> None:
        """To somebody else of the group; where there is nobody, the server tells the caller."""
        try:
            await self.line.publish(self.subject, message.data, reply=message.reply, headers=message.headers)
        except ConnectionError as why:
            log.warning("%s: a request could not be given back and is lost: %s", self.subject, why)

    def _refuse(self, message: Message) -> None:
        if not self._full:
            self._full = True
            log.warning("%s: %d requests run and %d wait; more are refused", self.subject, self._held, self._room)
        asked = decode(message.data)
        if message.reply and not isinstance(asked, Notification):
            id = asked.id if isinstance(asked, Request) else NULL
            answer = failure(id, PLAIN.error(busy("prefetch", self._prefetch)))
            self._asides.begin(self._say(message.reply, answer))

    async def _say(self, to: str, answer: bytes) -> None:
        try:
            await self.line.publish(to, answer)
        except ConnectionError as why:
            log.debug("%s: %s", self.subject, why)

    # -- who calls --------------------------------------------------------------------------------

    async def mailbox(self, take: Take) -> str:
        """See `Post.mailbox`."""
        self.limit = self.line.limit - HEADROOM
        box = self.line.box()
        start = len(box) + 1

        def came(message: Message) -> None:
            correlation = message.subject[start:]
            headers = message.headers
            if headers is None:
                take(Letter(body=message.data, correlation=correlation))
            elif unheard(message):
                if self._young is not None and (letter := self._young.get(correlation)) is not None:
                    self._asides.begin(self._once_more(letter))
                    return
                take(Letter(body=b"", correlation=correlation, headers={KIND: UNROUTABLE}))
            else:
                take(Letter(body=message.data, correlation=correlation, headers=headers))

        await self.line.subscribe(f"{box}.*", came)
        await self.line.sync()
        return box

    async def request(self, letter: Letter, ttl: float | None) -> None:
        """See `Post.request`: on core NATS the server confirms nothing, "has it" means that the socket has."""
        if self._young is not None:
            self._young[letter.correlation] = letter
        if AGAIN in letter.headers:  # what failed before never left this process, see `Line`
            headers = {name: text for name, text in letter.headers.items() if name != AGAIN}
            letter = msgspec.structs.replace(letter, headers=headers)
        to = reply_address(letter.reply_to, letter.correlation) if letter.reply_to else ""
        await self.send(self.subject, letter.body, to, headers_of(letter) if letter.headers else None)

    async def _once_more(self, letter: Letter) -> None:
        """Nobody had it; the workers may be on their way back, as we were."""
        await asyncio.sleep(0.05)
        try:
            await self.request(letter, None)
        except ConnectionError as why:
            log.debug("%s: %s", self.subject, why)  # the line is lost again, and with it the call

    async def tell(self, letter: Letter) -> None:
        """See `Post.tell`."""
        more = {CORRELATION: letter.correlation} if letter.correlation else {}
        if letter.reply_to:
            more[REPLY_TO] = letter.reply_to
        kind = "control" if letter.headers.get(KIND) == CANCEL else "all"
        await self.send(f"{self.subject}.{kind}", letter.body, "", headers_of(letter, **more))

    async def answer(self, to: str, letter: Letter) -> None:
        """See `Post.answer`. At most once."""
        headers = headers_of(letter) if letter.headers else None
        await self.send(reply_address(to, letter.correlation), letter.body, "", headers)

    async def send(self, subject: str, body: bytes, reply: str, headers: dict[str, str] | None) -> None:
        """Publish. Refused for what the server would not take."""
        try:
            await self.line.publish(subject, body, reply=reply, headers=headers)
        except TooLong as why:
            raise Refused(str(why)) from None

    async def close(self) -> None:
        """See `Post.close`."""
        self._young = None
        if self._grown is not None:
            self._grown.cancel()
        while self._waiting:
            self._asides.begin(self._give_back(self._waiting.popleft()))
        await self._asides.wait(SECONDS_TO_LEAVE)
        await self.line.close()
