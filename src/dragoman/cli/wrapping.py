"""Breaks lines for a terminal: at words, and never inside one.

A word that is longer than a line, such as a URL, stays whole, so that it can be copied. Text of scripts without spaces
is broken between their characters, but not before closing punctuation.
"""

from __future__ import annotations

import re

from rich.cells import cell_len
from rich.text import Text

_WIDE = "\u2e80-\u303e\u3041-\ua4cf\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\U00020000-\U0003fffd"
_CLOSING = "、。，．：；？！）」』】》〉〕］｝"
_WORD = re.compile(rf"[{_WIDE}][{_CLOSING}]*\s*|[^\s{_WIDE}]+\s*|\s+")


def wrap(text: Text, width: int, hang: int = 0) -> list[Text]:
    """Return the lines of a text, each at most `width` columns wide. `hang`: columns by which those after the first are
    narrower."""
    lines: list[Text] = []
    for line in text.split("\n", allow_blank=True):
        parts = line.divide(_cuts(line.plain, width - hang if lines else width, width - hang))
        for part in parts:
            part.rstrip()
        lines += parts
    return lines


def hanging(text: Text, width: int, hang: int) -> Text:
    """Return the text wrapped to `width` columns, its lines after the first moved in by `hang`."""
    return Text("\n" + " " * hang).join(wrap(text, width, hang))


def _cuts(line: str, first: int, other: int) -> list[int]:
    """Where a line of the text is cut: the first part has `first` columns, the others have `other`."""
    cuts: list[int] = []
    used, room = 0, first
    for word in _WORD.finditer(line):
        if used and used + cell_len(word[0].rstrip()) > room:
            cuts.append(word.start())
            used, room = 0, other
        used += cell_len(word[0])
    return cuts
