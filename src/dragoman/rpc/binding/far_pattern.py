"""Regular expressions of a far end, run in a bounded number of steps.

They run in jsonschema-rs's engine without backtracking, whose work is at most the states of the pattern times the
characters of the text. A pattern that it does not take (look-around, a back reference) is never run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from ...jsonrpc.errors import LocalError
from .compiled_schema import compile_schema

STEPS: Final = 100_000
"""Steps of one check, each some 5 to 10 microseconds. A schema that leads to itself is walked step by step: 30,000
values; with one that does not, jsonschema-rs takes a hundred times as many."""
STATES: Final = 20_000
"""Characters that the patterns of one schema stand for, repetitions counted out."""
TEXT: Final = 512
"""Characters of a text, times the states of a pattern, that a library takes in the time of one step."""


class Pattern(Struct, frozen=True):
    """A regular expression of a far end. `states`: what it stands for, repetitions counted out; `search` None: the
    engine without backtracking does not take it, so it is not run."""

    states: int
    search: Callable[[str], bool] | None

    def steps(self, text: str) -> int:
        """What one search costs."""
        return 1 + self.states * len(text) // TEXT

    def runs(self, text: str) -> bool:
        """Whether it can be searched for in a bounded number of steps."""
        return self.search is not None and self.steps(text) <= STEPS

    def matches(self, text: str) -> bool:
        """Whether the text has a match; also True where the pattern is not run."""
        return self.search is None or not self.runs(text) or self.search(text)


@functools.lru_cache(1024)
def far_pattern(pattern: str) -> Pattern:
    """A far end's pattern, compiled without backtracking; without jsonschema-rs none is run."""
    states = states_of(pattern)
    if states > STATES:
        return Pattern(states, None)
    try:
        return Pattern(states, compile_schema({"pattern": pattern}, "this pattern", linear=True).is_valid)
    except LocalError:
        return Pattern(states, None)


def states_of(pattern: str) -> int:
    """For how many characters a pattern stands, at most: `(a{10}b){10}` for 110."""
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
    """The most of a counted repetition that begins here; None if there is none."""
    text = pattern[at : at + 24].partition("}")[0]
    least, _, most = text.replace(" ", "").partition(",")
    digits = most or least
    return int(digits) if least.isdecimal() and digits.isdecimal() else None
