"""The observers of what `serve` serves: they receive calls, and what wires turn away, from the start or later."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .channel import Servable
from .jsonrpc.errors import LocalError
from .observer import Observable, Observer, Rejection
from .rpc.observing import rejecting


class ServingObservers:
    """The observers of one `serve`, in their order. Called with a `Rejection`, it passes it on to them."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._all: dict[object, Observer] = {object(): one for one in observers}
        """By a key for each registration, since one observer may be registered twice."""
        self._served: Mapping[str, Servable] = {}
        self._stops: dict[object, Callable[[], None]] = {}

    def begin(self, served: Mapping[str, Servable]) -> None:
        """Have them observe what is served, by path. LocalError where something has no `observe`."""
        self._served = served
        for key, one in self._all.items():
            self._stops[key] = observe_all(served, [one])

    def add(self, observer: Observer) -> Callable[[], None]:
        """Add an observer from now on; returns the function that removes it."""
        key = object()
        self._all[key] = observer
        if self._served:
            self._stops[key] = observe_all(self._served, [observer])

        def stop() -> None:
            self._all.pop(key, None)
            self._stops.pop(key, lambda: None)()

        return stop

    def __bool__(self) -> bool:
        """Whether there are any now."""
        return bool(self._all)

    def __call__(self, seen: Rejection) -> None:
        """Report to them what a wire has turned away."""
        if (report := rejecting(tuple(self._all.values()))) is not None:
            report(seen)

    def end(self) -> None:
        """Report nothing more."""
        while self._stops:
            self._stops.popitem()[1]()


def observe_all(served: Mapping[str, Servable], observers: Sequence[Observer]) -> Callable[[], None]:
    """Have these observers observe what is served; returns the function that ends it. LocalError where that is not
    possible."""
    stops: list[Callable[[], None]] = []
    for one in {id(one): one for one in served.values()}.values() if observers else ():
        if not isinstance(one, Observable):
            raise LocalError(f"{one!r} has no `observe`: trace= and observers= are for a Service or a Server")
        stops += [one.observe(observer) for observer in observers]

    def stop() -> None:
        for end in stops:
            end()

    return stop
