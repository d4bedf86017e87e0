"""The parts of a server that its extensions may use while it is served."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ....channel import Caller
from ....jsonrpc.codec import read
from ....jsonrpc.errors import CallRefused, LocalError, Refusal, RpcError
from ....jsonrpc.leniency import STRICT
from ....jsonrpc.messages import Failure, Request, Result
from ....rpc.binding.results import to_json
from ....rpc.context import engine_of
from ....rpc.detached import DetachedCall, DetachedRun, detach
from ....rpc.middleware import Call, Next
from ...protocol import dialect
from ...protocol.admission import Admitted
from ...protocol.revisions import NEWEST
from ..surroundings import Surroundings

if TYPE_CHECKING:
    from ....bus.contract import Bus
    from ....rpc.service import Service
    from ....store.contract import Engine
    from ...asking.ask import Asker
    from ...session.shared import Replica
else:
    Bus = Service = Engine = Asker = Replica = Any  # start-up: annotations resolve at run time, to no more than this

logger: logging.Logger = logging.getLogger("dragoman.mcp")

FIRST_PAUSE: Final = 1.0
LAST_PAUSE: Final = 60.0
"""Seconds until work of `lead` that failed begins again: after the first failure, and at most."""
PATIENCE: Final = 2.0
"""Seconds for which work that was cancelled, of a call or of `lead`, is waited for; after that it is left running."""
_CLOSED: Final = Refusal("draining", "Draining: the server closed before the call was done")

OnProgress: TypeAlias = Callable[[float, float | None, str | None], object]
"""Takes the value, the total and the message of `ctx.progress`, on the loop."""
Work: TypeAlias = Callable[[], Awaitable[object]]
"""The work that `lead` runs on one replica at a time."""
Notify: TypeAlias = Callable[[str, str, Mapping[str, Any] | Struct], None]
"""(topic, key, params): `Subscriptions.notify`."""

Refuses: TypeAlias = Callable[[str, Caller], Refusal | None]
"""(name, caller): `Registry.refusal_of_tool`."""


class _Failed(Struct):
    """The member of an answer that is an error."""

    error: Raw


class ServingServer(Struct, frozen=True):
    """The server that is served: the extension's own, or one that includes it."""

    service: Service
    """The JSON-RPC side of that server."""
    replica: Replica | None
    """This process's part in what its replicas share; None without a bus."""


class ServerHome:
    """What an extension may use of its server while that is served. `ServerExtension.open` gets one for each event
    loop; its methods but `notify` are called on that loop. `serving`: returns the server that is served now; `notify`:
    sends the notifications of topics; `refusal`: says why a caller may not call a tool."""

    def __init__(
        self,
        surroundings: Surroundings,
        extension: str,
        serving: Callable[[], ServingServer],
        notify: Notify,
        refusal: Refuses,
    ) -> None:
        self.surroundings: Surroundings = surroundings
        """The settings of the server: its stamp, its seal, its options and limits."""
        self.extension: str = extension
        """The name of the extension that it belongs to."""
        self._serving = serving
        self._notify = notify
        self._refusal = refusal
        self._loop = asyncio.get_running_loop()
        self._detached: set[DetachedRun] = set()
        self._leading: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"<ServerHome of {self.extension} in {self.name}>"

    @property
    def name(self) -> str:
        """The server's name."""
        return self.surroundings.service.name

    @property
    def store(self) -> Engine:
        """The engine that keeps `ctx.store`: that of `serve(store=)`, or else memory. `ctx.store` and the other
        extensions have keys in it too: begin yours with the extension's name."""
        return engine_of(self._serving().service)

    @property
    def tasks_url(self) -> str | None:
        """Where `serve(tasks=)` says that tasks are kept, as a URL; None: nowhere."""
        return self._serving().service._tasks_url

    @property
    def bus(self) -> Bus | None:
        """The bus that the replicas of the server share; None: there is none."""
        replica = self._serving().replica
        return None if replica is None else replica.bus

    @property
    def clock(self) -> Callable[[], float]:
        """The server's clock: a function that returns Unix seconds."""
        return self.surroundings.seal.clock

    # -- topics

    def notify(self, topic: str, key: str, params: Mapping[str, Any] | Struct) -> None:
        """Notify the subscribers that were granted this key of the topic, at every replica. Any thread may call it.

        Subscribers are the callers of `subscriptions/listen`, and with `Topic.sessions` also the sessions of the
        stateful era whose clients declared the extension. They get each notification, those of one thread in the order
        of its calls; for a slow subscriber the newest 256 are kept, of 1 MiB at most, and older ones are dropped.
        Raises LocalError for an unknown topic, for params that are no JSON object, and for more than 64 KiB.
        """
        self._notify(topic, key, params)

    # -- calls that go on

    def run_detached(
        self,
        call: Call,
        next: Next,
        *,
        caller: Caller | None = None,
        asker: Asker | None = None,
        on_progress: OnProgress | None = None,
        timeout: float | UnsetType | None = UNSET,
        about: str = "",
    ) -> DetachedCall:
        """Run the rest of a call, the `call` and `next` of `ServerExtension.around`, beyond its request: with the other
        middleware, its function, its limits and its Context. Nothing of it runs before this returns. It goes on when
        the request is answered and when its channel is lost.

        `caller`: whose call it is (None: the caller of the request). `asker`: how its questions are asked, such as an
        `AskParked` (None: as its revision says). `on_progress`: gets its progress, which is not sent to the caller
        (None: nothing gets it). `timeout`: seconds, which begin again with each progress; None: for ever; default: the
        time-out of its method. `about`: what it is about, for observers, such as the id of a task.

        Raises CallRefused if too many calls are in flight (`limits.detached_calls`, `calls`, `calls_size`), and
        LocalError on another event loop than the home's, and after this home has closed."""
        self._check_open(f"{call.method} cannot go on beyond its request")
        admitted: Admitted = call.params

        def report(value: float, total: float | None, message: str | None) -> bool:
            return on_progress is not None and run.report(on_progress, value, total, message)

        params = msgspec.structs.replace(
            admitted,
            asker=admitted.asker if asker is None else asker,
            on_progress=report,
            # in the stateless era a log message is sent within its request, which is over
            log_level=admitted.log_level if admitted.revision.stateful else None,
        )
        run = detach(call, next, params, admitted.raw, caller=caller, timeout=timeout, about=about)
        self._detached.add(run)
        run.stopped.add_done_callback(lambda _: self._detached.discard(run))
        return DetachedCall(run)

    async def call(self, method: str, params: Mapping[str, Any], caller: Caller) -> Raw:
        """Call the server as this caller would in 2026-07-28, without a wire, and return the result as JSON text: for
        calls that come back from where they were kept. `params`: with their `_meta`. Raises RpcError for an answer that
        is an error, and LocalError if the server does not offer that revision."""
        self._check_open(f"{method} cannot be called")
        if NEWEST.date not in self.surroundings.options.offered.stateless:
            raise LocalError(f"{self.extension}: {method} cannot be called: {self.name} does not offer {NEWEST.date}")
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await self._serving().service.answer_async(to_json(message), caller=caller)
        found = read(answer or b"", self.surroundings.limits, STRICT)
        if isinstance(found, Failure):
            data = msgspec.json.decode(found.error.data) if isinstance(found.error.data, Raw) else found.error.data
            raise RpcError.of(found.error.code, found.error.message, data)
        assert isinstance(found, Result)
        result = found.result
        return result if isinstance(result, Raw) else Raw(to_json(result))

    def error_of(self, call: Call, error: Exception) -> Raw:
        """Return the error object with which the caller of a call is answered if that raises `error`, as JSON text.
        What is not for callers is logged, and masked."""
        admitted: Admitted = call.params
        answers = self._serving().service._answers
        failed = answers.failed(Request(call.method, UNSET, 0), error, dialect.of(admitted.revision))
        return msgspec.json.decode(failed.text or b"{}", type=_Failed).error

    def demand_tool(self, name: str, caller: Caller) -> None:
        """Raise CallRefused, "forbidden", unless this caller may call the tool of this name now, as far as that is
        known without its arguments: for what is left of a call, such as its task. Raises InvalidParams, as a call does,
        for a tool that is hidden from this caller. Of a tool that is not there any more nothing is demanded."""
        refusal = self._refusal(name, caller)
        if refusal is not None:
            challenge = self._serving().service._challenge
            raise CallRefused(refusal if challenge is None else challenge(refusal, caller, None))

    # -- work on one replica

    def lead(self, name: str, work: Work) -> None:
        """Run `work()` on one replica of the server at a time, until this home closes; without a bus it runs here, at
        once. `name`: the work's, the same on all replicas; `work`: a coroutine function.

        If this replica dies or loses the store, another one takes over within 7.5 seconds; here the work is cancelled
        before that. Work that raises is logged, and begins again after a pause that grows from 1 to 60 seconds. Work
        that returns is not begun again by this replica. Raises LocalError for a name that this home leads already, and
        on a bus without a store, where no replica can know whether it leads."""
        self._check_open(f"{name!r} cannot be led")
        if not isinstance(name, str) or not name:
            raise LocalError(f"{self.extension}: lead takes the name of the work, and not {name!r:.40}")
        if name in self._leading:
            raise LocalError(f"{self.extension}: {name!r} is led already: give other work another name")
        replica = self._serving().replica
        if replica is not None and replica.store is None:
            raise LocalError(
                f"{self.extension}: the bus {replica.bus.url} keeps nothing, so no replica can know whether it leads "
                f"{name!r}: share a bus with a store (unix:, redis:, nats:)"
            )
        leading = self._run_with_retries(name, work) if replica is None else self._lead_by_lease(replica, name, work)
        self._leading[name] = self._loop.create_task(leading)

    async def _lead_by_lease(self, replica: Replica, name: str, work: Work) -> None:
        """Run the work while this replica holds its lease; return once the work returns."""
        from ...session.lease import Lease  # noqa: PLC0415  (start-up: what only replicas need)

        lease = Lease(replica, f"{self.name} {self.extension} {name}")
        while True:
            await lease.take()
            working = self._loop.create_task(self._run_with_retries(name, work))
            keeping = self._loop.create_task(lease.keep())
            try:
                await asyncio.wait([working, keeping], return_when=asyncio.FIRST_COMPLETED)
                if working.done():
                    return
                logger.warning("%s: %r stops here: another replica may lead it now", self.name, name)
            finally:
                keeping.cancel()
                await self._stop(working)
                await lease.give_up()
            await asyncio.wait([working])  # it may not have stopped in time, and must not run twice here

    async def _run_with_retries(self, name: str, work: Work) -> None:
        """Run the work until it returns or is stopped; begin it again, after a pause, whenever it raises."""
        task = asyncio.current_task()
        assert task is not None
        pause = FIRST_PAUSE
        while True:
            began = self._loop.time()
            try:
                await work()
                return
            except (Exception, asyncio.CancelledError) as error:
                if task.cancelling():  # it is stopped, and must not begin again
                    if isinstance(error, asyncio.CancelledError):
                        raise
                    logger.exception("%s: %r of %s failed when it was stopped", self.name, name, self.extension)
                    return
                if self._loop.time() - began > LAST_PAUSE:  # it ran well for long before it failed
                    pause = FIRST_PAUSE
                logger.exception("%s: %r of %s failed; it begins again in %d s", self.name, name, self.extension, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE)

    async def _stop(self, task: asyncio.Task[None], seconds: float = PATIENCE) -> None:
        """Cancel a task, and wait at most `seconds` for its end; log an error if it goes on."""
        task.cancel()
        _, left = await asyncio.wait([task], timeout=seconds)
        if left:
            logger.error("%s: work of %s does not stop when it is cancelled", self.name, self.extension)

    # -- its end

    def _check_open(self, what: str) -> None:
        """Raise LocalError if this home is closed or on another event loop. `what`: what cannot be done then."""
        if self._closed:
            raise LocalError(f"{self.extension}: {what}: {self.name} is served no more on this event loop")
        if asyncio.get_running_loop() is not self._loop:
            raise LocalError(f"{self.extension}: {what}: this home of {self.name} is on another event loop")

    async def close(self) -> None:
        """End the detached calls, stop the work of `lead`, and wait a few seconds for both."""
        self._closed = True
        ending = [one.stopped for one in self._detached]
        for run in tuple(self._detached):
            run.end(_CLOSED)
        if ending:
            await asyncio.wait(ending, timeout=PATIENCE)  # a thread cannot be stopped
        await asyncio.gather(*[self._stop(task, 2 * PATIENCE) for task in self._leading.values()])
        self._leading.clear()
