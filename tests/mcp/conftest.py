"""The server of the HTTP tests, as fixtures."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from .http_tools import Stage, tools
from .http_wire import Place, served
from .replicas import KEYS, kept


@pytest.fixture(params=["native", "asgi", "replica"])
async def both(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Place, Stage]]:
    """The server on either face, and as one that shares its sessions with others."""
    server, stage = tools(keys=KEYS)
    async with (
        kept(server, request.param == "replica"),
        served(server, "asgi" if request.param == "asgi" else "native") as place,
    ):
        yield place, stage


@pytest.fixture(params=["memory", "replica"])
async def there(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Place, Stage]]:
    """The server on the native front; its sessions in this process, or in a store."""
    server, stage = tools(keys=KEYS)
    async with kept(server, request.param == "replica"), served(server) as place:
        yield place, stage
