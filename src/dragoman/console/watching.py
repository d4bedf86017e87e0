"""What watches a process for its console: a recorder and metrics, among the observers of what is served."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..observer import Observer
from ..rpc.service import Service
from ..telemetry.metrics import Metrics
from .gathering import OwnConsole, report
from .messages import Messages
from .process import ProcessConsole, worker_service
from .recorder import Recorder


class Watching:
    """The recorder and the metrics of one process: those among `observers`, or else new ones beside them. `messages`:
    keep the messages too."""

    def __init__(self, observers: Sequence[Observer] = (), *, messages: bool = False) -> None:
        recorder = next((one for one in observers if isinstance(one, Recorder)), None)
        metrics = next((one for one in observers if isinstance(one, Metrics)), None)
        self.recorder: Recorder = recorder or Recorder()
        self.metrics: Metrics = metrics or Metrics()
        kept = next((one for one in observers if isinstance(one, Messages)), None)
        self._messages: Messages | None = kept or (Messages() if messages else None)
        all_of_them = (recorder, self.recorder), (metrics, self.metrics), (kept, self._messages)
        new = [made for found, made in all_of_them if found is None and made is not None]
        self.observers: list[Observer] = [*observers, *new]
        """All observers, with these."""

    def source(self, served: Callable[[], Mapping[str, object]]) -> OwnConsole:
        """Return what the console shows of this process. `served`: returns what is served now, by path."""
        return OwnConsole(self._process(served), self.metrics)

    def report(self) -> bytes:
        """Return the metrics of this process, a worker, for its supervisor."""
        return report(self.metrics)

    def service(self, served: Callable[[], Mapping[str, object]]) -> Service:
        """Return what this process, a worker, answers its supervisor."""
        return worker_service(self._process(served))

    def _process(self, served: Callable[[], Mapping[str, object]]) -> ProcessConsole:
        return ProcessConsole(self.recorder, served, self._messages)
