"""Processes that share a bus answer the consoles of each other, so that each console shows all of them.

Rules:

- A process that was started with a console answers the methods of `process.worker_service`, and nothing else. It takes
  questions of `QUESTION` bytes, and answers `ANSWERING` at once; its answer has `ANSWER` bytes at most, and is there
  within `ANSWER_TIME`.
- A console asks on one topic, and is answered on one of its own, whose name no one can guess. An answer that no one
  waits for is dropped, and so is one of a process that it did not ask.
- An answer counts if it comes within `ANSWER_TIME`. A process that was late is not waited for again until it has
  answered a later question; meanwhile, for `FORGOTTEN` seconds, it is known as missing.
- Processes say when they begin and end, so a console knows whom to wait for.
- All this is done only where no stranger can write: on a bus that is sealed (`bus.sealed`), or within the process or
  of its user alone. On another one anybody who reaches it could stop calls, and make some in the name of others.
- The group of a process is what its console asks in another way: the workers of one supervisor, or the process itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from time import monotonic
from typing import Final

import msgspec
from msgspec import Struct

from ..bus.contract import Bus, BusLost, Subscription, open_bus, reader
from ..bus.sealed import is_closed, sealed_bus
from ..jsonrpc.errors import RpcError
from ..jsonrpc.limits import KIB, MIB
from ..repeats import Repeats
from ..rpc.service import Service
from ..secret import SECRET, read_secrets
from .board import NOT_KILLED
from .views import encode

log: logging.Logger = logging.getLogger("dragoman")
repeats: Repeats = Repeats(log)

ANSWER_TIME: Final = 1.0
"""Seconds within which an answer counts: as long as a supervisor waits for its workers."""
SAME: Final = 0.5
"""Seconds within which the same question of several browsers is asked once."""
FORGOTTEN: Final = 60.0
"""Seconds after its last answer in which a process counts as missing; then it is forgotten."""
QUESTION: Final = 512 * KIB
"""Bytes of a question: a call from the page has 64 KiB, which escapes make at most six times as long."""
PART: Final = 256 * KIB
"""Bytes of one message of an answer: some engines carry no more than 1 MiB."""
ANSWER: Final = 4 * MIB
"""Bytes of the answer of one process: more than a thousand calls in flight with their positions."""
ANSWERS: Final = 64 * MIB
"""Bytes of all answers to one question; those beyond it are dropped."""
QUESTIONS: Final = 100
"""Questions of one console within `ANSWER_TIME`: sixteen browsers ask less."""
ANSWERING: Final = 32
"""Answers of one process that are on their way; further questions are dropped, so a bus that hangs fills no memory."""
PROCESSES: Final = 256
"""Processes that a console knows; further ones are not shown."""
TOPIC: Final = "dragoman-console"
"""The topic of questions."""
NEWS: Final = f"{TOPIC}-news"
"""The topic on which processes say that they begin and end."""
_reply = re.compile(rf"{TOPIC}-[0-9a-f]{{32}}\Z")
_key = re.compile(r"[A-Za-z0-9._-]{1,80}\Z")
_HOST: Final = 40
"""Characters of the host in a key."""


class _Question(Struct, frozen=True, array_like=True):
    """`reply`: the topic for answers; `to`: the key of the process that answers, "" for all but those of the group
    `but`."""

    reply: str
    number: int
    to: str
    but: str
    message: bytes


class _Part(Struct, frozen=True, array_like=True):
    """A part of the answer of the process `key`: number `part`, from 0, of `parts`."""

    number: int
    key: str
    part: int
    parts: int
    body: bytes


class _News(Struct, frozen=True, array_like=True):
    """A process begins, or has ended."""

    key: str
    group: str
    ended: bool


_pack: Callable[[object], bytes] = msgspec.msgpack.Encoder().encode
_read_question = reader(msgspec.msgpack.Decoder(_Question).decode, "questions of consoles")
_read_part = reader(msgspec.msgpack.Decoder(_Part).decode, "answers to consoles")
_read_news = reader(msgspec.msgpack.Decoder(_News).decode, "news for consoles")


def new_key() -> str:
    """Return a key for this process that no other has: host, process id, and a few random digits, since processes in
    containers may have the same of both."""
    host = re.sub(r"[^A-Za-z0-9._-]", "_", socket.gethostname())[:_HOST]
    return f"{host}-{os.getpid()}-{secrets.token_hex(2)}"


class AnsweringReplica:
    """What answers the consoles of others for this process. `open` makes it. `answered`: how many questions were."""

    def __init__(self, bus: Bus, key: str, group: str, service: Service) -> None:
        self.key: str = key
        self.answered: int = 0
        self._bus = bus
        self._group = group
        self._service = service
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscription: Subscription | None = None

    @classmethod
    async def open(cls, bus: Bus, key: str, group: str, service: Service) -> AnsweringReplica:
        """Answer from now on; `group`: of that process. Raises BusLost."""
        replica = cls(bus, key, group, service)
        replica._subscription = await bus.subscribe(TOPIC, replica._take)
        await bus.publish(NEWS, _pack(_News(key, group, False)))
        return replica

    def __repr__(self) -> str:
        return f"<AnsweringReplica {self.key}>"

    async def close(self) -> None:
        """Answer no more, and say so."""
        for task in tuple(self._tasks):
            task.cancel()
        with suppress(BusLost, TimeoutError):
            async with asyncio.timeout(ANSWER_TIME):
                if self._subscription is not None:
                    await self._subscription.close()
                await self._bus.publish(NEWS, _pack(_News(self.key, self._group, True)))

    def _take(self, message: bytes) -> None:
        if len(message) > QUESTION + KIB or len(self._tasks) >= ANSWERING:
            repeats.warning("a console's question was dropped: it is too long, or there are too many")
            return
        question = _read_question(message)
        if question is None or not _reply.match(question.reply):
            return
        if question.to != self.key and (question.to or question.but == self._group):
            return
        self.answered += 1
        task = asyncio.get_running_loop().create_task(self._answer(question))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, question: _Question) -> None:
        with suppress(BusLost, TimeoutError):
            async with asyncio.timeout(ANSWER_TIME):  # no console waits longer
                answer = await self._service.answer_async(question.message) or b""
                if len(answer) > ANSWER:
                    fault = {"code": NOT_KILLED, "message": "it is too long"}
                    answer = encode({"jsonrpc": "2.0", "error": fault, "id": None})
                parts = max(1, -(-len(answer) // PART))
                for part in range(parts):
                    body = answer[part * PART : (part + 1) * PART]
                    await self._bus.publish(question.reply, _pack(_Part(question.number, self.key, part, parts, body)))


class _Pending(Struct, eq=False):
    """A question that waits for answers. `waits`: of whom; `patient`: also of any other; `size`: bytes that came."""

    to: str
    waits: set[str]
    patient: bool
    over: asyncio.Event
    found: dict[str, bytes] = {}
    parts: dict[str, list[bytes]] = {}
    size: int = 0

    def settle(self, key: str = "") -> None:
        """End it if no answer is waited for any more; `key`: this one has answered, or has ended."""
        self.waits.discard(key)
        if not self.waits and not self.patient:
            self.over.set()


class Replicas:
    """The other processes on a bus, as `asking.Processes`. `open` makes it. `me`: the name of the process that asks."""

    def __init__(self, bus: Bus, group: str, me: str) -> None:
        self.me: str = me
        self._bus = bus
        self._group = group
        self._topic = f"{TOPIC}-{secrets.token_hex(16)}"
        self._known: dict[str, float] = {}
        """The processes, with the time of their last answer, in seconds of the monotonic clock."""
        self._late: set[str] = set()
        """Those that were late; they are not waited for."""
        self._pending: dict[int, _Pending] = {}
        self._numbers = count(1)
        self._same: dict[bytes, asyncio.Task[dict[str, bytes]]] = {}
        self._subscriptions: list[Subscription] = []
        self._found: asyncio.Task[dict[str, bytes]] | None = None

    @classmethod
    async def open(cls, bus: Bus, group: str, me: str) -> Replicas:
        """Find them, but those of a group, in the background. Raises BusLost."""
        replicas = cls(bus, group, me)
        replicas._subscriptions.append(await bus.subscribe(replicas._topic, replicas._take))
        replicas._subscriptions.append(await bus.subscribe(NEWS, replicas._hear))
        hello = encode({"jsonrpc": "2.0", "method": "services", "id": 1})
        replicas._found = asyncio.get_running_loop().create_task(replicas._ask(hello, "", patient=True))
        return replicas

    def __repr__(self) -> str:
        return f"<Replicas at {self._bus.url}: {len(self._known)}>"

    async def close(self) -> None:
        """Ask no more."""
        for task in (*self._same.values(), *([] if self._found is None else [self._found])):
            task.cancel()
        with suppress(BusLost, TimeoutError):
            async with asyncio.timeout(ANSWER_TIME):
                for subscription in self._subscriptions:
                    await subscription.close()

    async def query(self, message: bytes, key: str | None = None) -> dict[str, bytes]:
        """Ask all of them, or one. RpcError for a message that is too long, and for too many at once."""
        if self._found is not None:
            await asyncio.shield(self._found)
        if key is not None:
            self._same.clear()  # it may change the answers
            return await self._ask(message, key) if key in self._known else {}
        asking = self._same.get(message)
        if asking is None:
            loop = asyncio.get_running_loop()
            asking = self._same[message] = loop.create_task(self._ask(message, ""))
            loop.call_later(SAME, self._forget_same, message, asking)
        return await asyncio.shield(asking)

    def _forget_same(self, message: bytes, asking: asyncio.Task[dict[str, bytes]]) -> None:
        if self._same.get(message) is asking:
            del self._same[message]

    async def _ask(self, message: bytes, to: str, *, patient: bool = False) -> dict[str, bytes]:
        """Return the answers. `patient`: wait for those that are not known, too."""
        if len(message) > QUESTION:
            raise RpcError.of(NOT_KILLED, f"a question to other processes has at most {QUESTION} bytes")
        if len(self._pending) >= QUESTIONS:
            raise RpcError.of(NOT_KILLED, "other processes are asked too much now; try it again")
        self._forget()
        number, known = next(self._numbers), {to} if to else set(self._known)
        question = self._pending[number] = _Pending(
            to, set(known) if to else known - self._late, patient, asyncio.Event()
        )
        asyncio.get_running_loop().call_later(ANSWER_TIME, self._pending.pop, number, None)
        question.settle()
        with suppress(BusLost, TimeoutError):
            async with asyncio.timeout(ANSWER_TIME):
                await self._bus.publish(TOPIC, _pack(_Question(self._topic, number, to, self._group, message)))
                await question.over.wait()
        question.over.set()
        self._late |= question.waits & self._known.keys()
        found, question.found, question.parts = question.found, {}, {}
        return {one: found.get(one, b"") for one in sorted(known | found.keys())}

    def _forget(self) -> None:
        """Forget those that are missing for long."""
        until = monotonic() - FORGOTTEN
        for key in [one for one in self._late if self._known.get(one, 0.0) < until]:
            self._drop(key)

    def _drop(self, key: str) -> None:
        self._known.pop(key, None)
        self._late.discard(key)

    def _know(self, key: str) -> bool:
        """Note that a process lives; False for one too many."""
        if key not in self._known and (len(self._known) >= PROCESSES or not _key.match(key)):
            repeats.warning(
                "a process is not shown in the console: there are %d others, or its name is none", PROCESSES
            )
            return False
        self._known[key] = monotonic()
        self._late.discard(key)
        return True

    def _take(self, message: bytes) -> None:
        """Take a part of an answer."""
        part = _read_part(message)
        question = None if part is None else self._pending.get(part.number)
        if part is None or question is None or part.key != (question.to or part.key) or not self._know(part.key):
            return
        if question.over.is_set() or part.key in question.found:  # late for this question, and there for the next
            return
        parts = question.parts.setdefault(part.key, [])
        question.size += len(part.body)
        if part.part != len(parts) or not part.part < part.parts <= ANSWER // PART or question.size > ANSWERS:
            parts.clear()  # one is missing, or there are too many: no later one fits
            return
        parts.append(part.body)
        if len(parts) == part.parts:
            question.found[part.key] = b"".join(question.parts.pop(part.key))
            question.settle(part.key)

    def _hear(self, message: bytes) -> None:
        """Take news of a process."""
        news = _read_news(message)
        if news is None or news.group == self._group:
            return
        if not news.ended:
            self._know(news.key)
            return
        self._drop(news.key)
        for question in self._pending.values():
            question.settle(news.key)


@asynccontextmanager
async def ask_replicas(url: str, group: str) -> AsyncIterator[Replicas | None]:
    """Open a bus at a URL, for a console that asks the processes there but those of a group while the block runs; None
    where strangers may write. Raises BusLost, and LocalError for what is no bus."""
    bus = sealed_bus(await open_bus(url), read_secrets())
    try:
        if not may_share(bus):
            yield None
            return
        replicas = await Replicas.open(bus, group, new_key())
        try:
            yield replicas
        finally:
            await replicas.close()
    finally:
        await bus.close()


def may_share(bus: Bus) -> bool:
    """Return whether consoles may ask over a bus; if not, log what is missing."""
    if is_closed(bus):
        return True
    log.warning(
        "%s: the console does not show what others do that share this bus: give all processes the same %s",
        bus.url,
        SECRET,
    )
    return False
