"""What watches a process for its console: a recorder and metrics, among the observers of what is served."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from ..bus.contract import Bus
from ..bus.sealed import is_closed
from ..observer import Observer
from ..rpc.service import Service
from ..telemetry.metrics import Metrics
from .asking import OwnProcess
from .gathering import ConsoleSource, GatheredConsole, OwnConsole, report
from .messages import Messages
from .process import ProcessConsole, Sources, worker_service
from .recorder import Recorder
from .replicas import AnsweringReplica, Replicas, may_share, new_key


class Watching:
    """The recorder and the metrics of one process: those among `observers`, or else new ones beside them. `messages`:
    keep the messages too."""

    def __init__(self, observers: Sequence[Observer] = (), *, messages: bool = False) -> None:
        recorder = next((one for one in observers if isinstance(one, Recorder)), None)
        metrics = next((one for one in observers if isinstance(one, Metrics)), None)
        self.recorder: Recorder = Recorder() if recorder is None else recorder
        self.metrics: Metrics = Metrics() if metrics is None else metrics
        kept = next((one for one in observers if isinstance(one, Messages)), None)
        self._messages: Messages | None = Messages() if kept is None and messages else kept
        all_of_them = (recorder, self.recorder), (metrics, self.metrics), (kept, self._messages)
        new = [made for found, made in all_of_them if found is None and made is not None]
        self.observers: list[Observer] = [*observers, *new]
        """All observers, with these."""

    def source(self, served: Callable[[], Mapping[str, object]], sources: Sources = lambda: ()) -> OwnConsole:
        """Return what the console shows of this process. `served`: returns what is served now, by path; `sources`: what
        may have numbers for metrics, with labels."""
        return OwnConsole(self._process(served, sources), self.metrics)

    def report(self) -> bytes:
        """Return the metrics of this process, a worker, for its supervisor."""
        return report(self.metrics)

    def service(self, served: Callable[[], Mapping[str, object]], sources: Sources = lambda: ()) -> Service:
        """Return what this process, a worker, answers its supervisor."""
        return worker_service(self._process(served, sources), self.metrics, f"{os.getpid()}")

    def _process(self, served: Callable[[], Mapping[str, object]], sources: Sources) -> ProcessConsole:
        return ProcessConsole(self.recorder, served, sources, self._messages)

    @asynccontextmanager
    async def answering(
        self, bus: Bus, group: str, served: Callable[[], Mapping[str, object]], sources: Sources = lambda: ()
    ) -> AsyncIterator[None]:
        """Answer the consoles of others that share a bus while the block runs, as a worker of that group. Raises
        BusLost."""
        if not is_closed(bus):  # the supervisor's console says what is missing
            yield
            return
        key = new_key()
        service = worker_service(self._process(served, sources), self.metrics, key)
        replica = await AnsweringReplica.open(bus, key, group, service)
        try:
            yield
        finally:
            await replica.close()

    @asynccontextmanager
    async def shared(
        self, bus: Bus | None, served: Callable[[], Mapping[str, object]], sources: Sources = lambda: ()
    ) -> AsyncIterator[ConsoleSource]:
        """Return what the console shows of this process, and of all that share its bus, while the block runs; meanwhile
        answer the consoles of those. Raises BusLost."""
        if bus is None or not may_share(bus):
            yield self.source(served, sources)
            return
        key = new_key()
        service = worker_service(self._process(served, sources), self.metrics, key)
        replica = await AnsweringReplica.open(bus, key, key, service)
        try:
            others = await Replicas.open(bus, key, key)
            try:
                yield GatheredConsole(OwnProcess(key, service), far=others, me=key)
            finally:
                await others.close()
        finally:
            await replica.close()
