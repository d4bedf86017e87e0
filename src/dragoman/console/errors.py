"""The last errors, and how many there were of each code and text."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from .rows import ErrorGroup, KeptError

ERRORS: Final = 1_000
"""Errors that are kept; their texts have `recorder.LONGEST` characters at most."""
_METHODS: Final = 10


class Errors:
    """The last errors."""

    def __init__(self) -> None:
        self._errors: deque[KeptError] = deque(maxlen=ERRORS)
        self.count: int = 0
        """How many there were in all."""

    def add(self, error: KeptError) -> None:
        """Keep one more."""
        self.count += 1
        self._errors.append(error)

    def newest(self) -> Iterator[KeptError]:
        """Return them, the newest first."""
        return reversed(self._errors)


def group_errors(errors: Iterable[KeptError]) -> list[ErrorGroup]:
    """Return the errors by outcome, code and text, the most frequent first."""
    found: dict[tuple[str, int | None, str], list[KeptError]] = {}
    for one in errors:
        found.setdefault((one.outcome, one.code, one.text), []).append(one)
    groups = [
        ErrorGroup(
            outcome=outcome,
            code=code,
            text=text,
            count=len(those),
            first=min(one.time for one in those),
            last=max(one.time for one in those),
            methods=list(dict.fromkeys(one.target or one.method for one in those))[:_METHODS],
        )
        for (outcome, code, text), those in found.items()
    ]
    return sorted(groups, key=lambda one: (-one.count, -one.last))
