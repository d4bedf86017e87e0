"""The progress of a call: a line on stderr while it runs, on a terminal that can clear it: from the first report of the
far end on, without any after `PATIENCE` seconds."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from .terminal import clean, err

if TYPE_CHECKING:
    from rich.progress import Progress

_bars: list[Bar] = []
"""Those that are entered."""
PATIENCE = 1.0
"""Seconds that pass before a call without progress is shown to be running: most calls are over by then."""


class ProgressValue(msgspec.Struct):
    """A progress value, read from any of the usual shapes."""

    done: float | None
    total: float | None
    text: str


def read_progress(value: object) -> ProgressValue:
    """Read a progress value: a number (a share of 1), [done, total], or an object as LSP and MCP send it."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return (
            ProgressValue(float(value), 1.0, "") if 0 <= value <= 1 else ProgressValue(float(value), None, f"{value:g}")
        )
    if isinstance(value, list) and len(value) == 2 and all(isinstance(part, (int, float)) for part in value):
        return ProgressValue(float(value[0]), float(value[1]), "")
    if not isinstance(value, dict):
        return ProgressValue(None, None, value if isinstance(value, str) else msgspec.json.encode(value).decode())
    text = next((value[key] for key in ("message", "title", "text") if isinstance(value.get(key), str)), "")
    if isinstance(share := value.get("percentage"), (int, float)):
        return ProgressValue(float(share), 100.0, text)
    done = next((value[key] for key in ("progress", "done", "value") if isinstance(value.get(key), (int, float))), None)
    total = value.get("total")
    return ProgressValue(done, float(total) if isinstance(total, (int, float)) else None, text)


class Bar:
    """A line with a call's progress: `with Bar("forecast") as bar: bar.show(value)`.

    Nothing is shown if stderr is not a terminal, or one that cannot clear a line (TERM=dumb). `pause` clears the line
    for a question; the next value shows it again. Entered within a running loop.
    """

    def __init__(self, title: str) -> None:
        self._line = _line() if err.is_interactive else None
        self._task = self._line.add_task(clean(title), total=None, text="") if self._line is not None else None
        self._soon: asyncio.TimerHandle | None = None

    def show(self, value: Any) -> None:
        """Show a progress value, in any shape that `read_progress` reads."""
        if self._line is None or self._task is None:
            return
        said = read_progress(value)
        self._line.start()
        self._line.update(
            self._task, completed=said.done or 0.0, total=said.total, text=clean(said.text).replace("\n", " ")[:60]
        )

    def pause(self) -> None:
        """Clear the line."""
        if self._soon is not None:
            self._soon.cancel()
        if self._line is not None and self._line.live.is_started:
            self._line.stop()

    def __enter__(self) -> Bar:
        _bars.append(self)
        if self._line is not None:
            self._soon = asyncio.get_running_loop().call_later(PATIENCE, self._line.start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _bars.remove(self)
        self.pause()


def pause_bars() -> None:
    """Clear every line, for a question to a person outside of the call."""
    for bar in _bars:
        bar.pause()


def _line() -> Progress:
    """A line that is not shown yet."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(24),
        TextColumn("{task.fields[text]}", markup=False),
    )
    return Progress(*columns, TimeElapsedColumn(), console=err, transient=True)
