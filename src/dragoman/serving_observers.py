"""The observers of what `serve` serves: told of calls and of what wires turn away, from the start or from later on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .channel import Servable
from .jsonrpc.errors import LocalError
from .observer import Observable, Observer, Rejection
from .rpc.observing import rejecting


class ServingObservers:
    """All of them, in their order."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._all: dict[object, Observer] = {object(): one for one in observers}
        """By a key of each registration, since one observer may come twice."""
        self._served: Mapping[str, Servable] = {}
        self._ends: dict[object, Callable[[], None]] = {}

    def begin(self, served: Mapping[str, Servable]) -> None:
        """Tell them of what is served, by path. LocalError where something has no `observe`."""
        self._served = served
        for key, one in self._all.items():
            self._ends[key] = observed(served, [one])

    def add(self, observer: Observer) -> Callable[[], None]:
        """Tell one more from now on; gives the function that ends it."""
        key = object()
        self._all[key] = observer
        if self._served:
            self._ends[key] = observed(self._served, [observer])

        def over() -> None:
            self._all.pop(key, None)
            self._ends.pop(key, lambda: None)()

        return over

    def __bool__(self) -> bool:
        """Whether there are any now."""
        return bool(self._all)

    def __call__(self, seen: Rejection) -> None:
        """As `Options.rejected`: tell them what a wire has turned away."""
        if (told := rejecting(tuple(self._all.values()))) is not None:
            told(seen)

    def end(self) -> None:
        """Tell them no more."""
        while self._ends:
            self._ends.popitem()[1]()


def observed(served: Mapping[str, Servable], observers: Sequence[Observer]) -> Callable[[], None]:
    """Tell these observers of what is served; gives what ends that. LocalError where something has none."""
    ends: list[Callable[[], None]] = []
    for one in {id(one): one for one in served.values()}.values() if observers else ():
        if not isinstance(one, Observable):
            raise LocalError(f"{one!r} has no `observe`: trace= and observers= are for a Service or a Server")
        ends += [one.observe(observer) for observer in observers]

    def over() -> None:
        for end in ends:
            end()

    return over
