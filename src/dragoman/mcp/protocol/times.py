"""Times as MCP writes them: text of ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime


def to_iso(seconds: float) -> str:
    """Return a time, in Unix seconds, as the text of ISO 8601 in UTC, to the millisecond."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


def from_iso(text: str) -> float:
    """Return the Unix seconds of a text of ISO 8601; one without a zone is in UTC. Raises ValueError."""
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
