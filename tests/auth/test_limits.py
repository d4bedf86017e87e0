"""The limits of authorization: what the page says of them is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dragoman.auth import AuthLimits
from dragoman.jsonrpc.errors import LocalError

PAGE = Path(__file__).parents[2] / "docs" / "auth" / "issuers" / "index.md"
UNITS = {"KiB": 1024, "": 1}


def test_the_page_has_each_limit_and_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) ?(KiB)? \| .+ \|$", PAGE.read_text(), re.MULTILINE)
    said = {name: int(number.replace(",", "")) * UNITS[unit] for name, number, unit in rows}
    defaults = AuthLimits()
    assert said == {name: getattr(defaults, name) for name in AuthLimits.__struct_fields__}


@pytest.mark.parametrize("name", AuthLimits.__struct_fields__)
@pytest.mark.parametrize("value", [0, -1, 1.5, "1", None, True])
def test_a_limit_is_a_whole_number(name: str, value: object) -> None:
    with pytest.raises(LocalError, match=f"AuthLimits: {name} is a whole number"):
        AuthLimits(**{name: value})  # type: ignore[arg-type]
