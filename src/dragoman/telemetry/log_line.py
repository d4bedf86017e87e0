"""How a log line is written, as text or as JSON.

Rules:

- A line begins with the time in UTC, with milliseconds; then the level, the logger's name, the message, and members.
- Text: `2026-11-22T21:10:11.123Z INFO access: call method=subtract ms=0.14`. A value with anything but plain characters
  is quoted as a JSON string in ASCII, so a method's name can forge neither a line, nor a member, nor a terminal's
  control sequence.
- JSON: one object on one line: `time`, `level`, `logger`, `message`, then the members.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import msgspec

LogFormat: TypeAlias = Literal["text", "json"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

_plain = re.compile(r"[\w./:@+*~-]+\Z", re.ASCII).match


def log_line(format: LogFormat, when: float, level: str, logger: str, message: str, members: Mapping[str, Any]) -> str:
    """Return one line with its line end. `when`: Unix seconds. `message` must be safe to print; members may be
    anything."""
    if format == "json":
        return _ascii({"time": stamp(when), "level": level, "logger": logger, "message": message, **members}) + "\n"
    words = "".join([f" {name}={_value(value)}" for name, value in members.items()])
    return f"{stamp(when)} {level.upper()} {logger}: {message}{words}\n"


def stamp(when: float) -> str:
    """Return a time as RFC 3339 in UTC, with milliseconds. `when`: Unix seconds."""
    whole = int(when)
    return f"{_seconds(whole)}.{int((when - whole) * 1000):03}Z"


@lru_cache(maxsize=8)
def _seconds(whole: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))


def _value(value: object) -> str:
    if type(value) is int or type(value) is float:
        return f"{value}"
    text = str(value)
    return text if _plain(text) else json.dumps(text)


def _ascii(found: dict[str, Any]) -> str:
    """Return an object as JSON, in ASCII where a terminal or a reader of lines might take more than text from it."""
    try:
        text = msgspec.json.encode(found).decode()
    except UnicodeEncodeError:  # half a surrogate pair
        text = ""
    return text if text and text.isascii() else json.dumps(found, separators=(",", ":"))
