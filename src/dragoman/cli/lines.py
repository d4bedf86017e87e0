"""What the command writes to stderr: its own words, and the library's log, by one queue that never blocks the loop.

`dragoman serve` writes logs for machines too: `log_as` gives every line a time, or makes it JSON.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any, Final

from ..telemetry.line_queue import LineQueue, to_stderr
from ..telemetry.log_line import LogFormat, LogLevel, log_line
from .terminal import clean, err, show

lines: LineQueue = LineQueue(to_stderr)
"""The queue of this process."""


_STYLES: Final[dict[LogLevel, str]] = {"debug": "dim", "info": "dim", "warning": "yellow", "error": "red"}
_LEVELS: Final = tuple(_STYLES)


class _Form:
    """How lines are written: None, plain words; and the level from which on the command says something itself."""

    format: LogFormat | None = None
    least: LogLevel = "info"


def is_logged(level: LogLevel) -> bool:
    """Whether the command says what is of this level."""
    return _LEVELS.index(level) >= _LEVELS.index(_Form.least)


def tell(text: str, level: LogLevel, *, always: bool = False) -> None:
    """Print a line on stderr without blocking, if that level is logged or `always`; in a log of JSON lines as one."""
    if not always and not is_logged(level):
        return
    if is_json():
        lines.put(json_line(level, text, {}))
        return
    with err.capture() as shown:
        show(text, _STYLES[level], console=err)
    lines.put(shown.get())


def is_json() -> bool:
    """Whether lines are JSON."""
    return _Form.format == "json"


def json_line(level: LogLevel, text: str, members: dict[str, Any]) -> str:
    """What the command says itself as a line of JSON."""
    return log_line("json", time.time(), level, "dragoman.command", clean(text), members)


class LineHandler(logging.Handler):
    """Writes log records as lines that are safe to print."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            lines.put(self._line(record))
        except Exception:
            self.handleError(record)

    def _line(self, record: logging.LogRecord) -> str:
        if _Form.format is None:
            return clean(self.format(record)) + "\n"
        level, message = record.levelname.lower(), clean(record.getMessage())
        members: dict[str, Any] = {}
        if trace := _trace():
            members["trace"] = trace
        if record.exc_info and _Form.format == "json":
            members["exception"] = self._words.formatException(record.exc_info)
        line = log_line(_Form.format, record.created, level, record.name, message, members)
        if record.exc_info and _Form.format == "text":
            line += clean(self._words.formatException(record.exc_info)) + "\n"
        return line

    _words = logging.Formatter()

    def flush(self) -> None:
        """Write what is queued; called at the end of the process."""
        lines.flush()


def _trace() -> str:
    """The id of the trace in which something is logged; "" without one."""
    module = sys.modules.get("opentelemetry.trace")
    found: int = 0 if module is None else module.get_current_span().get_span_context().trace_id
    return f"{found:032x}" if found else ""


def log_as(format: LogFormat, level: LogLevel, own: LogLevel = "info") -> None:
    """Write the log from now on in this form: with times, as text or as JSON, from this level on. `own`: the level of
    what the command itself says."""
    _Form.format, _Form.least = format, own
    logging.getLogger("dragoman").setLevel(level.upper())
    if format == "json":
        lines.dropped = _dropped


def _dropped(count: int) -> str:
    return json_line("warning", "lines were dropped here", {"count": count})
