"""Lines for a terminal are broken between words."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from rich.text import Text

from dragoman.cli.wrapping import hanging, wrap

URL = "http://127.0.0.1:8000/a/very/long/path/that/is/longer/than/the/line"
SENTENCE = "Book a room for some hours, with the equipment that is wanted there, and tell those who are invited."
CHINESE = "终端里一个汉字占两列，因此换行时要按列数计算，不能按字符数计算。"


@pytest.mark.parametrize("width", [24, 40, 80, 120])
@pytest.mark.parametrize("hang", [0, 4])
@pytest.mark.parametrize(
    "text", [SENTENCE, CHINESE, f"{SENTENCE} {CHINESE} {SENTENCE}", f"{SENTENCE}\n\n{SENTENCE}", ""]
)
def test_no_line_is_wider_and_no_word_is_broken(text: str, width: int, hang: int) -> None:
    lines = [line.plain for line in wrap(Text(text), width, hang)]
    assert all(cell_len(line) <= (width - hang if at else width) for at, line in enumerate(lines))
    assert [word for line in lines for word in line.split() if word.isascii()] == [
        word for word in text.split() if word.isascii()
    ]
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_a_word_that_is_longer_than_a_line_stays_whole() -> None:
    assert [line.plain for line in wrap(Text(f"look at {URL} now"), 40)] == ["look at", URL, "now"]


def test_no_line_begins_with_closing_punctuation() -> None:
    for width in range(24, 60):
        assert not any(line.plain.startswith(("，", "。")) for line in wrap(Text(CHINESE), width))


def test_lines_after_the_first_hang_and_keep_their_styles() -> None:
    text = hanging(Text.assemble(("name  ", "bold"), (SENTENCE, "dim")), 40, 6)
    first, *others = text.split("\n")
    assert first.plain.startswith("name  Book")
    assert all(line.plain.startswith("      ") for line in others)
    assert {str(span.style) for line in others for span in line.spans} == {"dim"}
