"""For the tests of buses: nothing that a connection does may end in the handler of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio


@pytest_asyncio.fixture
async def quiet_loop() -> AsyncIterator[None]:
    """Fails the test if an exception reached the loop: one that a protocol raised ends its connection, so that the
    connection looks as if it had been closed properly."""
    reached: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reached.append(context))
    yield
    assert reached == []
