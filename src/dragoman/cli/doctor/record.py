"""What an examination finds: its steps with their times, and the first fault with its fix.

Rules: silence proves no fault: the verdict is `silent`, or `slow` where the answer came too late. A step
that took a good part of the patience is slow, too, and the examination goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Literal

from msgspec import Struct, field

from ..faults import Diagnosis as Diagnosis

PATIENCE = 10.0
"""Seconds for the whole examination, the start of a command included; `--timeout` says otherwise."""
LOOK = 1.5
"""Seconds at most for the last look at a far end that was silent until then: is it slow, or does it read otherwise?"""
FOREVER = 24 * 3600.0
"""Seconds of `--timeout inf`."""
SLOW = 0.25
"""Part of the patience from which on a step counts as slow."""
Verdict = Literal["healthy", "slow", "silent", "faulty"]
UNCERTAIN: Mapping[str, Verdict] = {"silent": "silent", "late": "silent", "slow": "slow"}
"""Faults that may be none, since nothing came, or it came late, and their verdicts."""


class Patience:
    """The time that an examination may take. Made inside the event loop."""

    def __init__(self, seconds: float | None) -> None:
        self.total: float = seconds or FOREVER
        self.look: float = min(LOOK, self.total)
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + self.total

    @property
    def left(self) -> float:
        """Seconds that are left; a moment at least."""
        return max(0.05, self._end - self._loop.time())


class FaultFound(Exception):
    """A step found a fault."""

    def __init__(self, fault: Diagnosis) -> None:
        super().__init__(fault.what)
        self.fault = fault


class ExaminationStep(Struct):
    """One step of an examination."""

    name: str
    ok: bool = True
    ms: float = 0.0
    said: str = ""
    """What was found."""
    slow: bool = False
    """It took a good part of the patience."""


class Examination(Struct):
    """An examination as far as it has come."""

    target: str
    patience: float = PATIENCE
    """Seconds for all of it."""
    steps: list[ExaminationStep] = field(default_factory=list)
    fault: Diagnosis | None = None
    found: str = ""
    """What answers there, in a few words; "" where that is not known."""

    @property
    def verdict(self) -> Verdict:
        """The examination in a word."""
        if self.fault is not None:
            return UNCERTAIN.get(self.fault.kind, "faulty")
        return "slow" if any(step.slow for step in self.steps) else "healthy"

    @contextmanager
    def step(self, name: str) -> Iterator[ExaminationStep]:
        """Time a step; a fault in it is the last word of the examination, and is raised on."""
        step = ExaminationStep(name)
        self.steps.append(step)
        started = perf_counter()
        try:
            yield step
        except FaultFound as found:
            self.fault, step.ok, step.said = found.fault, False, found.fault.what
            raise
        finally:
            took = perf_counter() - started
            step.ms = round(1000 * took, 3)
            step.slow = took > SLOW * self.patience

    def as_json(self) -> dict[str, object]:
        """What `--json` prints; times in milliseconds."""
        return {
            "target": self.target,
            "healthy": self.fault is None,
            "verdict": self.verdict,
            "found": self.found,
            "steps": self.steps,
            "fault": self.fault,
        }

    def fail(self, fault: Diagnosis) -> None:
        """This is the fault of the step that was begun last."""
        self.fault = fault
        if self.steps:
            self.steps[-1].ok, self.steps[-1].said = False, fault.what
