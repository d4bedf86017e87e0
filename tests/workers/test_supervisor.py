"""The supervisor in this process, with programs that never listen: what it says, counts and returns."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.workers import run_workers, supervisor
from dragoman.workers.supervisor import Supervisor

FAILS = ["/bin/sh", "-c", "exit 3"]


class Run:
    """What `run_workers` said, and its supervisor."""

    def __init__(self, folder: Path) -> None:
        self.url = f"unix:{folder}/w.sock"
        self.said: list[tuple[str, bool]] = []
        self.supervisor: Supervisor | None = None
        self.on_word: Callable[[str], object] = lambda text: None
        self.starts = 0

    def say(self, text: str, grave: bool) -> None:
        self.said.append((text, grave))
        self.on_word(text)

    @asynccontextmanager
    async def beside(self, one: Supervisor) -> AsyncIterator[None]:
        self.supervisor = one
        yield
        self.starts = (await one.reports()).starts

    async def ended(self, command: list[str], workers: int = 1, **options: Any) -> int:
        async with asyncio.timeout(60):
            return await run_workers(
                command, [self.url], workers=workers, bus="memory:", say=self.say, beside=self.beside, **options
            )


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(supervisor, "PAUSES", (0.0, 0.0))
    return Run(tmp_path)


async def test_a_program_that_fails_is_started_so_often_and_given_up(run: Run) -> None:
    assert await run.ended(FAILS, workers=3) == 1
    assert run.starts == supervisor.ATTEMPTS
    assert all(grave for _, grave in run.said)
    assert len(run.said) == supervisor.ATTEMPTS
    assert run.said[-1][0].endswith("before it listened; giving up after 5 attempts")


async def test_a_program_that_is_not_there_is_wrong_at_once(run: Run, tmp_path: Path) -> None:
    assert await run.ended([str(tmp_path / "absent")]) == 2
    [(words, grave)] = run.said
    assert words.startswith("worker 1 could not be started: ")
    assert grave is True
    assert run.starts == 0


async def test_what_may_be_mended_by_itself_is_tried_again(run: Run, tmp_path: Path) -> None:
    """A program that the system does not start, and is there."""
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF broken")
    broken.chmod(0o755)
    assert await run.ended([str(broken)]) == 1
    assert len(run.said) == supervisor.ATTEMPTS
    assert run.starts == 0


async def test_the_end_in_a_pause_starts_no_more(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "PAUSES", (1_000.0, 1_000.0))

    def on_word(text: str) -> None:
        if "another starts in" in text:
            os.kill(os.getpid(), signal.SIGTERM)

    run.on_word = on_word
    assert await run.ended(FAILS) == 0
    assert run.starts == 1
    assert [grave for _, grave in run.said] == [True, True]
    assert run.said[1][0].startswith("draining: ")


@pytest.mark.parametrize("may", [None, True, False])
async def test_sighup_reloads_unless_it_may_not(run: Run, may: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "PAUSES", (1_000.0, 1_000.0))
    signals = [signal.SIGHUP, signal.SIGTERM]
    loop = asyncio.get_running_loop()

    def next_signal() -> None:
        if signals:
            os.kill(os.getpid(), signals.pop(0))
            loop.call_soon(loop.call_soon, next_signal)

    def on_word(text: str) -> None:
        if "another starts in" in text and len(signals) == 2:
            next_signal()

    run.on_word = on_word
    asked: list[bool] = []

    def may_reload() -> bool:
        asked.append(True)
        return bool(may)

    assert await run.ended(FAILS, may_reload=None if may is None else may_reload) == 0
    said = [text for text, _ in run.said]
    assert ("reloading: one worker after the other" in said) is (may is not False)
    assert bool(asked) is (may is not None)


async def test_where_changes_are_watched_it_waits_for_one(run: Run) -> None:
    gate = asyncio.Event()

    def on_word(text: str) -> None:
        if "waiting for a change" in text:
            gate.set()

    run.on_word = on_word

    async def changes() -> AsyncIterator[str]:
        for n in range(2):
            await gate.wait()
            gate.clear()
            yield f"change {n}"
        await gate.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    assert await run.ended(FAILS, changes=changes()) == 0
    assert run.starts == 3
