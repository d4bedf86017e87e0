"""One browser for all tests of a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from .browsing import browser


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running() -> AsyncIterator[Any]:
    async with browser() as one:
        yield one
