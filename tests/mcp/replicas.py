"""Several servers that serve the same behind a balancer that goes round: for the tests of replicas."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from dragoman.bus import Bus
from dragoman.bus.memory import MemoryBus
from dragoman.channel import Guard, Options
from dragoman.mcp.protocol.http_options import HttpOptions
from dragoman.mcp.protocol.revisions import R2025_11, Revision
from dragoman.mcp.server.server import Server
from tests.behind import behind
from tests.transports.http.cases import Answered
from tests.transports.http.ends import face

from .http_tools import Stage, tools
from .http_wire import Place, Sitting

KEYS = ("a key that all replicas have",)
_names = itertools.count()


class Ring:
    """Replicas. `ask` and `stream` go to one after the other."""

    def __init__(self, places: Sequence[Place], stages: Sequence[Stage], buses: Sequence[Bus]) -> None:
        self.places, self.stages, self.buses = list(places), list(stages), list(buses)
        self._turn = itertools.cycle(range(len(places)))

    @property
    def servers(self) -> list[Server]:
        return [place.server for place in self.places]

    def next(self) -> Place:
        """Whose turn it is."""
        return self.places[next(self._turn)]

    def ask(
        self,
        raw: bytes = b"",
        headers: Mapping[str, str | None] | None = None,
        *,
        method: str = "POST",
        path: str = "/mcp",
    ) -> Awaitable[Answered]:
        """As `Place.ask`, wherever it goes."""
        return self.next().ask(raw, headers, method=method, path=path)

    def stream(
        self,
        raw: bytes = b"",
        headers: Mapping[str, str | None] | None = None,
        *,
        method: str = "POST",
        path: str = "/mcp",
    ) -> Any:
        """As `Place.stream`."""
        return self.next().stream(raw, headers, method=method, path=path)

    async def begin(self, revision: Revision = R2025_11, capabilities: Any = None) -> Sitting:
        """A session, begun at one replica, initialized at the next."""
        return await Place.begin(self, revision, capabilities)  # type: ignore[arg-type]

    def at(self, number: int, sitting: Sitting) -> Sitting:
        """The same session, all of it at one replica."""
        return Sitting(self.places[number], sitting.id, sitting.revision)


@asynccontextmanager
async def ring(
    count: int = 3,
    *,
    kind: str = "native",
    make: Callable[..., tuple[Server, Stage]] = tools,
    join: Callable[[], Awaitable[Bus]] | None = None,
    http: HttpOptions | None = None,
    keys: Any = KEYS,
    guard: Guard | None = None,
    **more: Any,
) -> AsyncIterator[Ring]:
    """Replicas in one process, each with a bus of its own; by default the memory's."""
    name = f"ring{next(_names)}"
    async with AsyncExitStack() as stack:
        buses: list[Bus] = []
        places: list[Place] = []
        stages: list[Stage] = []
        for _ in range(count):
            bus: Bus = MemoryBus(name) if join is None else await join()
            stack.push_async_callback(bus.close)
            buses.append(bus)
        for bus in buses:
            server, stage = make(http=http, keys=keys, **more)
            await behind(server).join(bus)
            port = await stack.enter_async_context(face(kind, {"/mcp": behind(server)}, Options(guard=guard)))
            stack.push_async_callback(behind(server).stop)
            places.append(Place(port, server))
            stages.append(stage)
        yield Ring(places, stages, buses)


@asynccontextmanager
async def sessions(kind: str, **options: Any) -> AsyncIterator[Ring]:
    """Sessions kept in this process ("memory": one server without a bus) or shared by two replicas ("replica")."""
    if kind == "replica":
        async with ring(2, **options) as found:
            yield found
        return
    guard = options.pop("guard", None)
    server, stage = options.pop("make", tools)(**options)
    async with face("native", {"/mcp": behind(server)}, Options(guard=guard)) as port:
        yield Ring([Place(port, server)], [stage], [])


@asynccontextmanager
async def kept(server: Server, shared: bool) -> AsyncIterator[None]:
    """Keep a server's sessions in a store, or (`shared=False`) in this process."""
    if not shared:
        yield
        return
    bus = MemoryBus(f"kept{next(_names)}")
    await behind(server).join(bus)
    yield
    await behind(server).stop()
    await bus.close()


KINDS = pytest.mark.parametrize("kind", ["memory", "replica"])
"""A test that holds of sessions wherever they are kept."""


def with_files(**more: Any) -> tuple[Server, Stage]:
    """The tools, and files."""
    server, stage = tools(**more)

    @server.resource("file:///{path}")
    def read(path: str) -> str:
        return path

    return server, stage


def text(message: Any) -> str:
    """The text of a tool's result."""
    found: str = message["result"]["content"][0]["text"]
    return found


def accepted(id: Any, **content: Any) -> bytes:
    """The answer to an elicitation."""
    result = {"action": "accept", "content": content}
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()


async def settled() -> None:
    """Let what is on its way within the process arrive."""
    for _ in range(50):
        await asyncio.sleep(0)
