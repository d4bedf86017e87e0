"""The methods of the admin socket: what the console shows and does."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

from ...console import (
    BY,
    ROWS,
    SECONDS,
    Connections,
    ConsoleSource,
    EndedCall,
    KeptError,
    Machines,
    MethodRow,
    Overview,
)
from ...rpc.service import Service

Limit: TypeAlias = Annotated[int, Meta(ge=1, le=ROWS)]
Seconds: TypeAlias = Annotated[int, Meta(ge=1, le=SECONDS)]


def admin_service(source: ConsoleSource) -> Service:
    """The methods of the socket: what the console shows and does."""
    service = Service("admin")

    @service.method
    async def look(where: bool = False) -> Overview:
        """What goes on: calls in flight, methods, services, workers, gauges; `where`: and where each call is."""
        return await source.look(where)

    @service.method
    async def kill(id: str) -> None:
        """End the call with that id of `look`."""
        await source.kill(id)

    @service.method
    async def timeline(filter: str = "", limit: Limit = 200, before: float | None = None) -> list[EndedCall]:
        """What has ended and fits the filter, the newest first; `before`: before this time, in Unix seconds."""
        return await source.timeline(filter, limit, before)

    @service.method
    async def methods(seconds: Seconds = SECONDS, step: Seconds = 10) -> list[MethodRow]:
        """What each method did in the last seconds, by steps of `step` seconds."""
        return await source.methods(seconds, step)

    @service.method
    async def errors() -> list[KeptError]:
        """The last errors, the newest first."""
        return await source.errors()

    @service.method
    async def connections() -> Connections:
        """Channels, sessions, subscriptions and streams."""
        return await source.connections()

    @service.method
    async def end(id: str) -> None:
        """Begin to end the connection with that id of `connections`."""
        await source.end(id, BY)

    @service.method
    async def machine() -> Machines:
        """The processes, and which are missing."""
        return await source.machine()

    return service
