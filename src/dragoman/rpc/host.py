"""The asynchronous face of a service: runs its calls on the loop, for exchanges and for peers alike."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from ..channel import Caller, Channel, Document, Exchange, Gate
from ..jsonrpc.codec import failure, read
from ..jsonrpc.errors import Refusal, RpcError
from ..jsonrpc.limits import Limits
from ..jsonrpc.messages import NULL, Batch, Malformed, Message, Notification, Request, Single
from .clock import Clock
from .gathering import Gathering
from .method import Method
from .run import Deliver, Run
from .service import Service

if TYPE_CHECKING:
    from .peer import Peer

_encode = msgspec.json.Encoder().encode


class _Places:
    """The places of one method with a concurrency of its own."""

    __slots__ = ("free", "queue")

    def __init__(self, count: int) -> None:
        self.free = count
        self.queue: deque[asyncio.Future[None]] = deque()

    def leave(self) -> None:
        while self.queue:
            turn = self.queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.free += 1


class Host:
    """A `Service` as something served: one gate, one pool of threads, one clock for all its wires."""

    def __init__(self, service: Service, *, limits: Limits | None = None) -> None:
        self.service = service = service if limits is None else service.within(limits)
        self.name = service.name
        self.gate = Gate(service.limits.calls)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._clock: Clock | None = None
        self.runs: set[Run] = set()
        self.peers: set[Peer] = set()
        self._pool: ThreadPoolExecutor | None = None
        self._places: dict[str, _Places] = {}

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop, from the first use on; a test client may run one app on several loops, one by one."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            self._clock = Clock(loop)
        return loop

    @property
    def clock(self) -> Clock:
        """The deadlines of everything in flight here."""
        if self._clock is None:
            self._clock = Clock(self.loop)
        return self._clock

    @property
    def pool(self) -> ThreadPoolExecutor:
        """The worker threads, `limits.threads` of them at most."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.service.limits.threads, f"dragoman-{self.name}")
        return self._pool

    def places(self, method: Method) -> _Places:
        """The places of a method that has a concurrency of its own."""
        places = self._places.get(method.name)
        if places is None:
            places = self._places[method.name] = _Places(method.concurrency or 1)
        return places

    # -- Served

    def exchange(self, x: Exchange) -> None:
        """Answer one exchange: in place where the method is quick, else from a task."""
        service = self.service
        if service.has_quick and not self.gate.draining:
            answer = service.at_once(x.request)
            if answer is not None:
                x.respond(answer)
                return
        self.take(x, read(x.request, service.limits, service.lenient))

    def take(self, x: Exchange, message: Message) -> None:
        """Answer one exchange whose message was read already."""
        refusal = self.gate.refusal()
        kind = type(message)
        if refusal is None and (kind is Request or kind is Notification):
            self._start(message, x, x.respond)  # type: ignore[arg-type]
        elif refusal is not None and kind in (Request, Notification, Batch):
            id = message.id if isinstance(message, Request) else NULL
            error = self.service.answers.dialect.error(refusal)
            x.respond(None if kind is Notification else failure(id, error), refusal)
        elif isinstance(message, Malformed):
            x.respond(self.service.answers.malformed(message), message.refusal)
        elif isinstance(message, Batch):
            self._batch(message, x)
        else:
            x.respond(None)

    def _batch(self, batch: Batch, x: Exchange) -> None:
        answers = self.service.answers
        if not answers.dialect.batches:
            x.respond(answers.no_batch(), Refusal("unfit", "no batches"))
            return
        runs: list[Run] = []

        def gone() -> None:
            for run in tuple(runs):
                run.drop()

        def start(single: Single, deliver: Deliver) -> None:
            if isinstance(single, Request | Notification):
                self._start(single, x, deliver, runs)
            else:
                deliver(answers.malformed(single) if isinstance(single, Malformed) else None)

        def done(found: list[bytes], size: int) -> None:
            x.respond(answers.batch(found, size) if found else None)

        x.gone = gone
        Gathering(batch.messages, start, self.service.limits, done).step()

    def _start(
        self, message: Request | Notification, x: Exchange, deliver: Deliver, runs: list[Run] | None = None
    ) -> None:
        """One call. `runs`: those of the batch that it is of, None where it stands alone."""
        service = self.service
        answers = service.answers
        try:
            method, message = service.route(message, x.caller)
        except RpcError as error:
            answer = answers.failed(message, error)
            deliver(answer) if runs is not None else x.respond(answer, Refusal("unfit", error.message))
            return
        if method is None:
            deliver(answers.unknown(message))
            return
        if method.in_place:
            deliver(service.in_place(method, message, x.caller, None, x.stream))
            return
        run = Run(self, method, message, x.caller, deliver, dialect=answers.dialect, via=x.stream)
        if runs is None:
            x.gone = run.drop
        elif (refusal := self.gate.full()) is None:  # draining was looked at when the exchange came
            runs.append(run)
            run.release = partial(runs.remove, run)
        else:
            deliver(run.refused(refusal))
            return
        self.gate.enter()
        run.start()

    def attach(self, channel: Channel) -> None:
        """Serve a channel until it ends."""
        from .peer import Peer  # noqa: PLC0415  (peers know hosts; a host makes peers)

        Peer(self).attach(channel)

    def routes(self) -> Mapping[str, Document]:
        """`/openrpc.json`."""
        return {"/openrpc.json": Document("application/json", lambda: _encode(self.service.openrpc()))}

    async def answer(self, raw: bytes) -> bytes | None:
        """One message and its answer."""
        if len(raw) > self.service.limits.message_size:
            return self.service.answers.oversized(len(raw))
        x = _Plain(raw, self.loop.create_future())
        self.exchange(x)
        try:
            return await x.future
        except asyncio.CancelledError:
            if x.gone is not None:
                x.gone()
            raise

    def release(self) -> None:
        """Give back timers and threads; for a host whose one peer is closed."""
        if self._clock is not None:
            self._clock.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    async def drain(self, timeout: float) -> None:
        """Refuse new calls, wait for those in flight, cancel what is left, close every channel."""
        self.gate.draining = True
        for peer in tuple(self.peers):
            peer.drain()
        if self.gate.in_flight:
            idle = self.loop.create_future()
            self.gate.idle = lambda: None if idle.done() else idle.set_result(None)
            await asyncio.wait([idle], timeout=timeout)
            self.gate.idle = None
        refusal = Refusal("draining", "Draining: the server closed before the call was done")
        for peer in tuple(self.peers):
            peer.inbox.turn_away(refusal)
        for run in tuple(self.runs):
            run.end(refusal)
        if self.peers:
            await asyncio.wait([asyncio.ensure_future(peer.close(0)) for peer in tuple(self.peers)])
        self.release()


class _Plain:
    """An exchange whose answer somebody awaits."""

    __slots__ = ("caller", "future", "gone", "request")

    def __init__(self, request: bytes, future: asyncio.Future[bytes | None]) -> None:
        self.request = request
        self.caller = Caller()
        self.gone: Callable[[], None] | None = None
        self.future = future

    def respond(self, answer: bytes | None, refusal: Refusal | None = None) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def stream(self, message: bytes) -> bool:
        return False
