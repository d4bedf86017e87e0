"""For every test: the real brokers, which start when first asked for, one of each for the whole run of a process; what
was skipped is noted, see `skips`; Ctrl-C does what it does at a terminal; hypothesis measures no time, for the machine
may be busy with other things; the collector looks at what tests make, and not at the tests."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import none

from dragoman import repeats

from . import canary, on_windows
from .engines.brokers import mosquitto, nats, rabbitmq, redis
from .skips import note

__all__ = ["mosquitto", "nats", "rabbitmq", "redis"]

CI = os.environ.get("CI") == "true"
settings.register_profile(
    "dragoman",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not CI,  # a newcomer's run tries what every run tries; CI draws, and prints what to try again
    print_blob=CI,
)
settings.load_profile("dragoman")


def pytest_configure(config: pytest.Config) -> None:
    """No secret may turn up where it must not. A shell's `&` has SIGINT ignored, and so have all programs that a test
    starts then."""
    canary.watch(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if sys.platform == "win32":

    def pytest_ignore_collect(collection_path: Path) -> bool | None:
        """What is not for Windows may not be importable there."""
        return True if on_windows.ignores(collection_path) else None

    def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
        """What is not for Windows is skipped by name and reason."""
        on_windows.mark(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was collected stays until the end, half a million objects: without this each collection looks at them all,
    and many tests ask for several. Before that hypothesis registers its random numbers, whose owner it has to see."""
    given(none())(lambda value: None)()
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Once for a run, in the process that started it, not in those of xdist."""
    if not hasattr(config, "workerinput"):
        note(terminalreporter.stats.get("skipped", []))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of xdist saves what its tests reached: it is killed ten seconds after its last test."""
    if hasattr(session.config, "workerinput") and (coverage := sys.modules.get("coverage")) is not None:
        running = coverage.Coverage.current()
        if running is not None:
            running.save()


@pytest.fixture(autouse=True)
def _log_of_its_own() -> None:
    """What one test has made repeat is the first for the next."""
    repeats.forget()


@pytest.fixture(scope="module")
def small_heap() -> None:
    """For modules that ask for many collections: what the tests before them left is not looked at again."""
    gc.collect()
    gc.freeze()


@pytest_asyncio.fixture
async def quiet_loop() -> AsyncIterator[None]:
    """Fails the test if an exception reached the loop: one that a protocol raises ends its connection, which then looks
    as if it had been closed properly."""
    reached: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reached.append(context))
    yield
    assert reached == []
