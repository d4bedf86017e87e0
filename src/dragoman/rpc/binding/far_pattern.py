"""Runs regular expressions that a far end wrote, in a bounded number of steps.

They run in jsonschema-rs's engine without backtracking, whose work is at most the states of the pattern times the
characters of the text. A pattern that the engine does not support (look-around, a back reference) is never run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from ...jsonrpc.errors import LocalError
from .compiled_schema import compile_schema

STEPS: Final = 100_000
"""Steps that one check may take, each some 5 to 10 microseconds. That is enough for some 30,000 values with a recursive
schema, which is checked step by step, and for a hundred times as many with others, which jsonschema-rs checks."""
STATES: Final = 20_000
"""How many characters the patterns of one schema may stand for: `a{10}` stands for 10."""
TEXT: Final = 512
"""How many characters of a text, times the states of a pattern, the engine reads in the time of one step."""


class Pattern(Struct, frozen=True):
    """A regular expression that a far end wrote. `states`: how many characters it stands for (`states_of`); `search`:
    whether a text has a match; None: the engine without backtracking does not support the pattern, so it is not run."""

    states: int
    search: Callable[[str], bool] | None

    def steps(self, text: str) -> int:
        """Return how many steps one search of this text costs."""
        return 1 + self.states * len(text) // TEXT

    def runs(self, text: str) -> bool:
        """Return whether the pattern is run at this text: the engine supports it, and a search takes at most
        `STEPS`."""
        return self.search is not None and self.steps(text) <= STEPS

    def matches(self, text: str) -> bool:
        """Return whether the text has a match; True also if the pattern is not run."""
        return self.search is None or not self.runs(text) or self.search(text)


@functools.lru_cache(1024)
def far_pattern(pattern: str) -> Pattern:
    """Compile a pattern that a far end wrote, for the engine without backtracking. If jsonschema-rs is not installed,
    no pattern is run."""
    states = states_of(pattern)
    if states > STATES:
        return Pattern(states, None)
    try:
        return Pattern(states, compile_schema({"pattern": pattern}, "this pattern", linear=True).is_valid)
    except LocalError:
        return Pattern(states, None)


def states_of(pattern: str) -> int:
    """Return for how many characters a pattern stands, at most: `(a{10}b){10}` for 110. Counting ends beyond
    `STATES`."""
    sums, last, at, inside = [0], 0, 0, False
    while at < len(pattern) and sums[0] <= STATES:
        sign = pattern[at]
        at += 2 if sign == "\\" else 1
        if inside:
            inside = sign != "]"
        elif sign == "(":
            sums.append(0)
        elif sign == ")" and len(sums) > 1:
            last = sums.pop()
            sums[-1] += last
        elif sign == "{" and (most := _repeated(pattern, at)) is not None:
            sums[-1] += last * max(most - 1, 0)
            last *= max(most, 1)
        else:
            inside, last = sign == "[", 1
            sums[-1] += 1
    return sum(sums)


def _repeated(pattern: str, at: int) -> int | None:
    """Return the upper bound of the counted repetition whose braces begin before `at`; None if there is none."""
    text = pattern[at : at + 24].partition("}")[0]
    least, _, most = text.replace(" ", "").partition(",")
    digits = most or least
    return int(digits) if least.isdecimal() and digits.isdecimal() else None
