"""`python -m bench.hops [WAY ...]`: the hops of one call. What is counted, with `sys.setprofile`, is dragoman's own
Python calls, the files they enter, and how often one file's call follows on another's. After the first calls have
filled what is remembered, the second of two equal calls counts. Both ends of a wire stand in one process; bare ends are
not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import secrets
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import FrameType

import dragoman
from bench.limits.http import Front
from bench.limits.mcp import answer as bare_mcp
from bench.mcp_load import INITIALIZE, INITIALIZED, body, head
from dragoman import Service, connect, serve
from dragoman.auth import Static
from dragoman.channel import ChannelError
from dragoman.mcp import Client, Context, HttpOptions, Server

RABBITMQ = "amqp://127.0.0.1"
ABOUT = {"name": "bare", "version": "1"}
ROOM = str(Path(dragoman.__file__).parent)


class Hops:
    """What one call went through."""

    def __init__(self) -> None:
        self.calls = self.moves = 0
        self.files: dict[str, int] = {}
        self.last = ""

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """The profiler's hook."""
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(ROOM):
            return
        self.calls += 1
        self.files[name] = self.files.get(name, 0) + 1
        self.moves += self.last not in ("", name)
        self.last = name


@contextmanager
def counted(hops: Hops) -> Iterator[None]:
    """Count within."""
    sys.setprofile(hops)
    try:
        yield
    finally:
        sys.setprofile(None)


async def measured(once: Callable[[], Awaitable[object]], settle: float = 0.05) -> Hops:
    """The hops of one call after three that are not counted."""
    for _ in range(3):
        await once()
    await asyncio.sleep(settle)  # what the others left behind is over
    hops = Hops()
    with counted(hops):
        await once()
        await asyncio.sleep(settle)
    return hops


def api() -> Service:
    """`subtract` four ways; `subtract` itself waits for a turn of the loop, as most `async def` do."""
    service = Service("hops")

    @service.method(inline=True)
    def subtract_inline(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    @service.method
    async def subtract(minuend: int, subtrahend: int) -> int:
        await asyncio.sleep(0)
        return minuend - subtrahend

    @service.method
    async def subtract_ready(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    @service.method
    def subtract_plain(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    return service


def tools(auth: Static | None = None) -> Server:
    """The same as tools, and one that asks."""
    keys = ["a key that all replicas have"]
    app = Server("hops", version="1.0.0", http=HttpOptions(json=True), keys=keys, auth=auth)

    @app.tool(inline=True)
    def subtract_inline(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    @app.tool
    async def subtract(minuend: int, subtrahend: int) -> int:
        await asyncio.sleep(0)
        return minuend - subtrahend

    @app.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Which city?", str)
        return str(answer.action)

    return app


def request(method: str) -> bytes:
    """One JSON-RPC request."""
    return b'{"jsonrpc":"2.0","method":"%s","params":[42,23],"id":1}' % method.encode()


class Bare:
    """A stream end that is not dragoman's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def dial(cls, url: str) -> Bare:
        """Connect to the host and port of a URL."""
        host, _, port = url.partition("://")[2].partition("/")[0].rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def line(self, raw: bytes) -> bytes:
        """A line there, a line back."""
        self.writer.write(raw + b"\n")
        return await self.reader.readline()

    async def post(self, lines: str, text: str) -> tuple[str, bytes]:
        """A POST and its answer: head and body; of a stream the body is its first chunk."""
        self.writer.write(f"{lines}\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
        said = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        if "chunked" in said.lower():
            size = int(await self.reader.readline(), 16)
            return said, (await self.reader.readexactly(size + 2))[:-2]
        return said, await self.reader.readexactly(length(said))

    async def chunks(self) -> bytes:
        """The rest of a stream."""
        found = b""
        while size := int(await self.reader.readline(), 16):
            found += (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readline()
        return found


def length(said: str) -> int:
    """The length that a head names."""
    for line in said.lower().split("\r\n"):
        if line.startswith("content-length:"):
            return int(line.partition(":")[2])
    return 0


# -- the ways -------------------------------------------------------------------------------------


async def tcp(ends: AsyncExitStack, method: str) -> Hops:
    """A bare line on TCP."""
    served = await ends.enter_async_context(serve(api(), urls="tcp://127.0.0.1:0"))
    bare = await Bare.dial(served.urls[0])
    return await measured(lambda: bare.line(request(method)))


async def answering(method: str) -> Hops:
    """`Service.answer`; no loop runs in its thread."""
    service = api()
    raw = request(method)
    hops = Hops()

    def run() -> None:
        for _ in range(3):
            service.answer(raw)
        with counted(hops):
            service.answer(raw)

    await asyncio.to_thread(run)
    return hops


async def peers(ends: AsyncExitStack) -> Hops:
    """`Peer.call` to another peer in memory."""
    await ends.enter_async_context(serve(api(), urls="memory:hops"))
    peer = await ends.enter_async_context(connect("memory:hops"))
    return await measured(lambda: peer.call("subtract_ready", [42, 23]))


async def mcp_tcp(ends: AsyncExitStack) -> Hops:
    """A bare `tools/call` of 2026-07-28 on TCP."""
    served = await ends.enter_async_context(serve(tools(), urls="tcp://127.0.0.1:0"))
    bare = await Bare.dial(served.urls[0])
    raw = body("2026", "tools/call", "subtract", 7).encode()
    return await measured(lambda: bare.line(raw))


async def mcp_http(ends: AsyncExitStack, era: str, tool: str, token: str = "") -> Hops:
    """A bare `tools/call` over HTTP, in a session where the era has them, with a token where one is given."""
    app = tools(Static({token: "ada"}) if token else None)
    served = await ends.enter_async_context(serve(app, urls="http://127.0.0.1:0/mcp"))
    bare = await Bare.dial(served.urls[0])
    port = int(served.urls[0].partition("://")[2].partition("/")[0].rpartition(":")[2])
    session = await begin(bare, port) if era == "2025" else ""
    lines = head(port, era, "tools/call", tool, session)
    if token:
        lines += f"\r\nAuthorization: Bearer {token}"
    return await measured(lambda: bare.post(lines, body(era, "tools/call", tool, 7)))


async def begin(bare: Bare, port: int, capabilities: str = "{}") -> str:
    """A session's id."""
    hello = INITIALIZE.replace('"capabilities":{}', f'"capabilities":{capabilities}')
    said, _ = await bare.post(head(port, "", "initialize", "", ""), hello)
    session = next(
        line.partition(":")[2].strip() for line in said.split("\r\n") if line.lower().startswith("mcp-session-id")
    )
    await bare.post(head(port, "2025", "", "", session), INITIALIZED)
    return session


async def elicitation(ends: AsyncExitStack, replicas: bool) -> Hops:
    """A bare `tools/call` of 2025-11-25 that asks once; the answer comes by another POST."""
    bus = "memory:hops" if replicas else None
    served = await ends.enter_async_context(serve(tools(), urls="http://127.0.0.1:0/mcp", bus=bus))
    asking, answering = await Bare.dial(served.urls[0]), await Bare.dial(served.urls[0])
    port = int(served.urls[0].partition("://")[2].partition("/")[0].rpartition(":")[2])
    session = await begin(asking, port, '{"elicitation":{}}')
    lines = head(port, "2025", "tools/call", "ask", session)
    call = '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ask","arguments":{}}}'

    async def once() -> None:
        found = b""
        _, found = await asking.post(lines, call)
        while b"elicitation/create" not in found:
            size = int(await asking.reader.readline(), 16)
            found += (await asking.reader.readexactly(size + 2))[:-2]
        line = next(line for line in found.split(b"\n") if b"elicitation/create" in line)
        number = json.dumps(json.loads(line.partition(b":")[2])["id"])
        result = '{"action":"accept","content":{"value":"Rome"}}'
        await answering.post(
            head(port, "2025", "", "", session), f'{{"jsonrpc":"2.0","id":{number},"result":{result}}}'
        )
        if b"accept" not in await asking.chunks():
            raise RuntimeError("the tool was not answered")

    return await measured(once)


def bare_2025(raw: bytes) -> bytes:
    """What the least server of 2025-11-25 answers."""
    if b'"initialize"' in raw:
        about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": ABOUT}
        return json.dumps({"jsonrpc": "2.0", "id": json.loads(raw)["id"], "result": about}).encode()
    return bare_mcp(raw) if b'"tools/' in raw else b""


async def client(ends: AsyncExitStack, era: str) -> Hops:
    """Our client over HTTP, at a bare server."""
    answer = bare_mcp if era == "2026" else bare_2025
    bare = await asyncio.get_running_loop().create_server(lambda: Front(answer), "127.0.0.1", 0)
    ends.callback(bare.close)
    url = f"http://127.0.0.1:{bare.sockets[0].getsockname()[1]}/mcp"
    revision = "2026-07-28" if era == "2026" else "2025-11-25"
    one = await ends.enter_async_context(Client(url, revision=revision))
    return await measured(lambda: one.call_tool("subtract", {"minuend": 42, "subtrahend": 23}))


async def mcp_memory(ends: AsyncExitStack) -> Hops:
    """Our client of a server in this process, both ends."""
    one = await ends.enter_async_context(Client(tools()))
    return await measured(lambda: one.call_tool("subtract_inline", {"minuend": 42, "subtrahend": 23}))


async def amqp(ends: AsyncExitStack) -> Hops:
    """A delivery of RabbitMQ, from a bare client of aiormq; the queue is the test's own."""
    import aiormq

    queue = f"hops-{secrets.token_hex(4)}"
    await ends.enter_async_context(serve(api(), urls=f"{RABBITMQ}/{queue}"))
    connection = await aiormq.connect(RABBITMQ)
    ends.push_async_callback(connection.close)
    channel = await connection.channel()
    ends.push_async_callback(channel.queue_delete, queue)
    answers = (await channel.queue_declare(exclusive=True)).queue or ""
    answered: asyncio.Queue[bytes] = asyncio.Queue()

    async def receive(message: aiormq.abc.DeliveredMessage) -> None:
        answered.put_nowait(message.body)

    await channel.basic_consume(answers, receive, no_ack=True)

    async def once() -> None:
        properties = aiormq.spec.Basic.Properties(reply_to=answers, correlation_id="1", content_type="application/json")
        await channel.basic_publish(request("subtract_inline"), routing_key=queue, properties=properties)
        if b'"result":19' not in await asyncio.wait_for(answered.get(), 10):
            raise RuntimeError("the call was not answered")

    return await measured(once)


Way = Callable[[AsyncExitStack], Awaitable[Hops]]

WAYS: dict[str, Way] = {
    "TCP call, `async def`": lambda ends: tcp(ends, "subtract"),
    "TCP call, inline": lambda ends: tcp(ends, "subtract_inline"),
    "`Service.answer`, inline": lambda ends: answering("subtract_inline"),
    "`Service.answer`, plain": lambda ends: answering("subtract_plain"),
    "`Peer.call`, both ends": peers,
    "MCP `tools/call`, TCP": mcp_tcp,
    "MCP, HTTP 2026-07-28, `async def`": lambda ends: mcp_http(ends, "2026", "subtract"),
    "MCP, HTTP 2026-07-28, `async def`, with a token": lambda ends: mcp_http(ends, "2026", "subtract", "token-of-ada"),
    "MCP, HTTP 2026-07-28, inline": lambda ends: mcp_http(ends, "2026", "subtract_inline"),
    "MCP, HTTP 2025-11-25": lambda ends: mcp_http(ends, "2025", "subtract"),
    "MCP, HTTP 2025-11-25, with an elicitation": lambda ends: elicitation(ends, False),
    "the same on replicas": lambda ends: elicitation(ends, True),
    "RabbitMQ, a delivery, inline": amqp,
    "MCP client to server in memory, inline": mcp_memory,
    "MCP client over HTTP, 2026-07-28": lambda ends: client(ends, "2026"),
    "MCP client over HTTP, 2025-11-25": lambda ends: client(ends, "2025"),
}


def main() -> None:
    """Count and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.hops", description="the hops of one call")
    parser.add_argument("ways", nargs="*", metavar="WAY", help="words of the ways to walk (all by default)")
    parser.add_argument("--files", action="store_true", help="name the files and their calls")
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)  # a bare server has no home stream
    print("| way | calls | files | moves |\n|---|---|---|---|")
    for name, way in WAYS.items():
        if all(word.lower() in name.lower() for word in chosen.ways):
            try:
                hops = asyncio.run(walk(way))
            except (ChannelError, OSError) as error:
                print(f"| {name} | not walked: {error} | | |")
                continue
            print(f"| {name} | {hops.calls} | {len(hops.files)} | {hops.moves} |")
            for path in hops.files if chosen.files else ():
                print(f"    {hops.files[path]:4} {Path(path).relative_to(ROOM)}")


async def walk(way: Way) -> Hops:
    """One way, and the end of what it used."""
    async with AsyncExitStack() as ends:
        return await way(ends)


if __name__ == "__main__":
    main()
