"""The server of the HTTP tests, as fixtures."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from .http_tools import Stage, tools
from .http_wire import Place, served


@pytest.fixture(params=["native", "asgi"])
async def both(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Place, Stage]]:
    """The server on either face."""
    server, stage = tools()
    async with served(server, request.param) as place:
        yield place, stage


@pytest.fixture
async def there() -> AsyncIterator[tuple[Place, Stage]]:
    """The server on the native front."""
    server, stage = tools()
    async with served(server) as place:
        yield place, stage
