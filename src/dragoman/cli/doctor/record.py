"""What an examination finds: its steps with their times, and the first fault with its mend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from msgspec import Struct, field


class Fault(Struct, frozen=True):
    """What is wrong, and what to do about it."""

    kind: str
    """The fault in a word, for programs."""
    what: str
    mend: str
    answers: bool = True
    """False: there is no connection, or no answer."""


class Faulty(Exception):
    """A step found a fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.what)
        self.fault = fault


class Step(Struct):
    """One step of an examination."""

    name: str
    ok: bool = True
    ms: float = 0.0
    said: str = ""
    """What was found."""


class Record(Struct):
    """An examination as far as it has come."""

    target: str
    steps: list[Step] = field(default_factory=list)
    fault: Fault | None = None

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Time a step; a fault in it is the last word of the examination, and is raised on."""
        step = Step(name)
        self.steps.append(step)
        started = perf_counter()
        try:
            yield step
        except Faulty as found:
            step.ok, step.said = False, found.fault.what
            self.fault = found.fault
            raise
        finally:
            step.ms = round(1000 * (perf_counter() - started), 3)

    def as_json(self) -> dict[str, object]:
        """What `--json` prints; times in milliseconds."""
        return {"target": self.target, "healthy": self.fault is None, "steps": self.steps, "fault": self.fault}
