"""Every pair meets: everything that the peer has must work, and docs/mcp/interop.md must say what came of it."""

from __future__ import annotations

import asyncio

import pytest

from tests import skips

from .environments import Missing
from .page import PAGE, faults, line, page
from .pairs import PAIRS
from .peers.probe import EXPECTED
from .running import meet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]


@pytest.mark.parametrize("name", PAIRS)
async def test_a_pair(name: str) -> None:
    pair = PAIRS[name]
    try:
        found = await asyncio.to_thread(meet, pair)
    except Missing as missing:
        skips.missing(f"{name}: {missing}")
    assert faults(pair, found) == {}
    assert line(pair, found) in PAGE.read_text(encoding="utf-8").splitlines()


def test_the_page_has_these_pairs_and_no_other() -> None:
    all_well = {name: EXPECTED | {"revision": pair.revision} for name, pair in PAIRS.items()}
    assert PAGE.read_text(encoding="utf-8") == page(all_well)
