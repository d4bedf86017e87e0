"""What breaks servers and clients: noise on the wire, handlers that end oddly, values that are none, sloppy far
ends."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dragoman.jsonrpc.errors import BadAnswer, LocalError
from dragoman.jsonrpc.limits import CLIENT
from dragoman.mcp import Client, Context, Icon, Server, ToolError
from dragoman.mcp.protocol.revisions import NEWEST, R2025_06, R2025_11, R2026_07, Revision
from dragoman.transports.memory import pair
from tests.behind import behind

from .asking_server import Wire
from .calling import Calls, calling
from .http_tools import City
from .scripted import Message, Result, modern

META = "io.modelcontextprotocol/"
STATELESS = {f"{META}protocolVersion": NEWEST.date, f"{META}clientCapabilities": {}}

NOISY = """
import os, subprocess, sys
from contextlib import asynccontextmanager

print("imported")
os.system("echo a child of the import")
old = sys.stdout
old.write("in a buffer")

from dragoman.mcp import Server


@asynccontextmanager
async def life(server):
    print("begun")
    yield
    print("ended")
    old.write("in the buffer again")


app = Server("noisy", lifespan=life)


@app.tool
def loud() -> str:
    print("printed")
    os.write(1, b"by number\\n")
    subprocess.run([sys.executable, "-c", "print('by a child')"], check=True)
    sys.__stdout__.write("to the first one\\n")
    return sys.stdin.read() + "done"


async def main():
    import dragoman

    await dragoman.serve(app, urls=["stdio:"])
"""


# -- the server's standard output -----------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "dragoman", "serve", "noisy:app", "stdio:"],
        ["-c", "import asyncio, dragoman, noisy; asyncio.run(noisy.main())"],
    ],
    ids=["command", "library"],
)
def test_nothing_but_messages_is_on_standard_output(tmp_path: Path, command: list[str]) -> None:
    """basic/transports/stdio: "The server MUST NOT write anything to its `stdout` that is not a valid MCP message"."""
    (tmp_path / "noisy.py").write_text(NOISY)
    params = {"name": "loud", "_meta": STATELESS}
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    run = [sys.executable, *command]
    done = subprocess.run(run, cwd=tmp_path, input=call + "\n", capture_output=True, text=True, timeout=60, check=True)
    lines = done.stdout.splitlines()
    if command[0] == "-c":  # what ran before anything was served is the script's own
        lines = [line for line in lines if line not in ("imported", "a child of the import")]
        assert lines[0].startswith("in a buffer") or lines[0].startswith("{")
        lines = [line.removeprefix("in a buffer") for line in lines]
    (answer,) = [json.loads(line) for line in lines]
    assert answer["result"]["structuredContent" if "structuredContent" in answer["result"] else "content"]
    assert answer["id"] == 1
    for noise in ("begun", "printed", "by number", "by a child", "to the first one", "ended", "again"):
        assert noise in done.stderr


# -- handlers that end oddly ----------------------------------------------------------------------


class Odd(BaseException):
    """No Exception."""


ENDS: list[Callable[[], BaseException]] = [
    lambda: Odd("odd"),
    lambda: SystemExit(3),
    lambda: GeneratorExit(),
    lambda: asyncio.CancelledError("by itself"),
    lambda: StopIteration(1),
    lambda: StopAsyncIteration(1),
    lambda: RecursionError("deep"),
    lambda: MemoryError(),
    lambda: ExceptionGroup("both", [ToolError("one"), ToolError("two")]),
    lambda: BaseExceptionGroup("both", [Odd("one"), ToolError("two")]),
]


@pytest.mark.parametrize("make", ENDS, ids=lambda make: type(make()).__name__)
@pytest.mark.parametrize("kind", ["async", "thread", "inline"])
async def test_every_call_is_answered_however_it_ends(make: Callable[[], BaseException], kind: str) -> None:
    """JSON-RPC 2.0: "the Server MUST reply with a Response"; what is in it says nothing of the inside."""
    server = Server("odd")
    if kind == "async":

        @server.tool
        async def ends() -> str:
            await asyncio.sleep(0)
            raise make()
    else:

        @server.tool("ends", inline=kind == "inline")
        def ends_here() -> str:
            raise make()

    async with calling(server, R2026_07) as client:
        answer = await client.ask("tools/call", name="ends")
        assert "secret" not in str(answer)
        if "error" in answer:
            assert answer["error"]["code"] == -32603
        else:
            assert answer["result"]["isError"] is True
        assert (await client.result("tools/list"))["tools"]


async def test_the_one_error_in_a_group_is_the_error() -> None:
    """A TaskGroup wraps what was meant for the model (server/tools, Error Handling)."""
    server = Server("groups")

    @server.tool
    async def groups() -> str:
        async def inner() -> None:
            raise ToolError("say a city")

        async with asyncio.TaskGroup() as outer:
            outer.create_task(inner())
        return ""

    async with calling(server, R2026_07) as client:
        assert await client.refusal("groups") == "say a city"


@pytest.mark.parametrize("revision", [R2025_06, R2025_11])
async def test_a_cancelled_question_of_a_thread_is_not_a_failure(
    revision: Revision, caplog: pytest.LogCaptureFixture
) -> None:
    """basic/utilities/cancellation: the handler stops, and the client hears that its question is taken back."""
    server = Server("asks")
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    @server.tool
    def ask(ctx: Context) -> str:
        try:
            return str(ctx.elicit("Which city?", City))
        finally:
            loop.call_soon_threadsafe(ended.set)

    near, far = pair()
    behind(server).attach(far)
    wire = Wire(near)
    client = {"name": "test", "version": "1"}
    wire.send(
        {
            "id": "begin",
            "method": "initialize",
            "params": {
                "protocolVersion": revision.date,
                "capabilities": {"elicitation": {}},
                "clientInfo": client,
            },
        }
    )
    assert (await wire.next())["id"] == "begin"
    wire.send({"method": "notifications/initialized"})
    wire.send({"id": "call", "method": "tools/call", "params": {"name": "ask"}})
    question = await wire.next()
    assert question["method"] == "elicitation/create"
    wire.send({"method": "notifications/cancelled", "params": {"requestId": "call"}})
    taken_back = await wire.next()
    assert taken_back["method"] == "notifications/cancelled"
    assert taken_back["params"]["requestId"] == question["id"]
    await asyncio.wait_for(ended.wait(), 10)
    wire.send({"id": question["id"], "result": {"action": "accept", "content": {"city": "late"}}})
    assert await wire.quiet()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    await near.close()


# -- what handlers tell ---------------------------------------------------------------------------


async def told(tool: Callable[..., Any], revision: Revision = R2026_07) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A tool's answer, and what came ahead of it."""
    server = Server("tells")
    server.add_tool(tool, name="tell")
    async with calling(server, revision) as client:
        client.told.clear()
        params: dict[str, Any] = {"name": "tell"}
        sent = _with_meta(client, params, progressToken="t", **{f"{META}logLevel": "debug"})
        answer = await sent
        return answer, client.told


async def _with_meta(client: Calls, params: dict[str, Any], **members: Any) -> dict[str, Any]:
    waiting = client._answers["own"] = asyncio.get_running_loop().create_future()  # type: ignore[index]
    meta = STATELESS | members
    message = {"jsonrpc": "2.0", "id": "own", "method": "tools/call", "params": params | {"_meta": meta}}
    client.channel.send(json.dumps(message).encode())
    return await asyncio.wait_for(waiting, 20)


async def test_progress_is_a_growing_number() -> None:
    """basic/patterns/progress: "The `progress` value MUST increase with each notification"; a number in the schema."""
    sent: list[bool] = []

    async def tell(ctx: Context) -> str:
        for value in (1, 1, 0.5, float("nan"), float("inf"), True, Decimal("1.5"), 10**300, 10**301):
            sent.append(bool(await ctx.progress(value, total=float("nan"), message="on")))  # type: ignore[arg-type]
        for wrong in ("2", None, 10**400):
            with pytest.raises(LocalError, match="progress is a number"):
                ctx.progress(wrong)  # type: ignore[arg-type]
        return "done"

    answer, steps = await told(tell)
    assert "error" not in answer
    assert sent == [True, False, False, False, False, False, True, True, True]
    assert [step["params"]["progress"] for step in steps] == [1, 1.5, 1e300, 1e301]
    assert all(
        step["params"] | {"progress": 0} == {"progressToken": "t", "progress": 0, "message": "on"} for step in steps
    )


async def test_what_is_logged_fails_no_call() -> None:
    """server/utilities/logging: `data` is "any JSON serializable value"; another is told as its `repr`."""

    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError

    circle: list[Any] = []
    circle.append(circle)

    async def tell(ctx: Context) -> str:
        for data in ({1, 2}, object, "\ud800", ValueError("no"), circle, Rude(), float("nan")):
            assert await ctx.error(data)
        return "done"

    answer, logs = await told(tell)
    assert answer["result"].get("isError") is not True, answer
    data = [one["params"]["data"] for one in logs]
    assert data[:5] == [[1, 2], "<class 'object'>", "'\\ud800'", "ValueError('no')", "[[...]]"]
    assert "Rude object" in data[5]
    assert data[6] is None


async def test_nothing_is_told_behind_the_answer() -> None:
    """basic/patterns/progress: "Progress notifications MUST stop after completion"."""
    contexts: list[Context] = []

    async def tell(ctx: Context) -> str:
        contexts.append(ctx)
        return "done"

    server = Server("tells")
    server.add_tool(tell)
    async with calling(server, R2026_07) as client:
        await _with_meta(client, {"name": "tell"}, progressToken="t", **{f"{META}logLevel": "debug"})
        assert not await contexts[0].progress(1)
        assert not await contexts[0].error("late")
        await client.result("tools/list")
        assert client.told == []


# -- servers that are called wrongly --------------------------------------------------------------


def _function() -> str:
    return ""


WRONG: list[tuple[Callable[[Server], Any], str]] = [
    (lambda server: Server("a", ttl=-1), "ttl is a number of seconds"),
    (lambda server: Server("a", ttl=float("nan")), "ttl is a number of seconds"),
    (lambda server: Server("a", cache_scope="world"), "cache_scope is 'private' or 'public'"),  # type: ignore[arg-type]
    (lambda server: Server("a", revisions=[]), "revisions are records"),
    (lambda server: Server("a", revisions=["2025-11-25"]), "revisions is a list, of which each is a record"),  # type: ignore[list-item]
    (lambda server: Server(5), "name is text that is not empty"),  # type: ignore[arg-type]
    (lambda server: Server("a", icons=["x.png"]), "icons is a list"),  # type: ignore[list-item]
    (lambda server: Server("a", icons=[Icon(5)]), "a server cannot be called so"),  # type: ignore[arg-type]
    (lambda server: server.resource(_function), "a resource has a URI"),  # type: ignore[arg-type]
    (lambda server: server.add_resource(_function, "a:b", ttl=-1), "ttl is a number of seconds"),
    (lambda server: server.add_resource(_function, "a:b", cache_scope="x"), "cache_scope is"),  # type: ignore[arg-type]
    (lambda server: server.add_tool(_function, title=5), "tool _function: title is text, or None, not 5"),  # type: ignore[arg-type]
    (lambda server: server.add_tool(_function, icons=["x"]), "each is an Icon"),  # type: ignore[list-item]
    (lambda server: server.add_tool(_function, meta={"a": object()}), "it cannot be listed so"),
    (lambda server: server.add_tool(_function, timeout=0), "timeout is a number of seconds above 0"),
    (lambda server: server.add_prompt(_function, icons=[Icon(5)]), "it cannot be listed so"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("wrong", "words"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_what_cannot_be_said_on_the_wire_is_refused_at_once(wrong: Callable[[Server], Any], words: str) -> None:
    """ "Servers MUST provide a `ttlMs` value that is `>= 0`" (server/utilities/caching); and every list is what the
    schema says, or registering it raises an error."""
    server = Server("right")
    with pytest.raises(LocalError, match=words):
        wrong(server)
    assert not behind(server).catalog.entries("tools")


async def test_a_tool_may_go_while_it_is_called() -> None:
    server = Server("goes")

    @server.tool
    async def leaves() -> str:
        server.remove_tool("leaves")
        await asyncio.sleep(0)
        return "still here"

    async with calling(server, R2026_07) as client:
        assert (await client.call("leaves"))["content"] == [{"type": "text", "text": "still here"}]
        assert (await client.error("tools/call", name="leaves"))["code"] == -32602


# -- sloppy servers, seen from the client ---------------------------------------------------------


def answering(value: Any) -> Callable[[Message], Iterable[Any]]:
    return lambda message: [Result(value)] if "id" in message else []


TOOL: dict[str, Any] = {"name": "x", "inputSchema": {"type": "object", "default": None}}


@pytest.mark.parametrize(
    "page",
    [
        {"tools": [TOOL], "nextCursor": None},
        {"tools": [TOOL | {"title": None, "description": None, "icons": None, "_meta": None}]},
        {"tools": [TOOL | {"annotations": {"readOnlyHint": None}, "outputSchema": None}], "_meta": None},
    ],
)
async def test_null_is_what_is_not_said(page: dict[str, Any]) -> None:
    """server/utilities/pagination: no "determination based on cursor value other than whether a non-null value was
    provided"."""
    async with Client(modern(answering(page), tools={})) as client:
        (tool,) = await client.list_tools()
    assert tool.name == "x"
    assert tool.input_schema == {"type": "object", "default": None}


async def test_null_that_is_a_value_stays() -> None:
    result = {
        "content": [{"type": "text", "text": "", "annotations": None}],
        "isError": None,
        "structuredContent": None,
    }
    async with Client(modern(answering(result | {"_meta": {"a": None}}), tools={})) as client:
        found = await client.call_tool("x")
    assert found.structured_content is None
    assert found.meta == {"a": None}


@pytest.mark.parametrize(
    "result",
    [
        {"content": None},
        {"content": "x"},
        {"content": [{"text": "x"}]},
        {"content": [], "isError": "yes"},
        {"content": [], "resultType": None},
    ],
)
async def test_a_result_that_is_none_fails_its_call_and_no_other(result: Any) -> None:
    """basic/index: "Result responses MUST ..."; what is not a result is said to be none, with the place."""
    answers = iter([result, {"content": [{"type": "text", "text": "fine"}]}])
    async with Client(modern(lambda message: [Result(next(answers))], tools={})) as client:
        with pytest.raises(BadAnswer, match=r"tools/call: the result"):
            await client.call_tool("x")
        assert (await client.call_tool("x")).text == "fine"


LONG = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "server/discover":
        result = {"resultType": "complete", "supportedVersions": ["%s"], "capabilities": {"tools": {}}}
    else:
        text = "x" * 3_000_000 if message["params"]["name"] == "long" else "short"
        result = {"content": [{"type": "text", "text": text}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


async def test_an_answer_beyond_the_limit_fails_its_call_at_once() -> None:
    """Our own rule: nonsense fails the call that it answers, and the next one works."""
    limits = CLIENT.but(message_size=1_000_000)
    async with Client([sys.executable, "-c", LONG % NEWEST.date], limits=limits, timeout=None) as client:
        with pytest.raises(BadAnswer, match="message_size allows 1000000 bytes"):
            await asyncio.wait_for(client.call_tool("long"), 30)
        assert (await client.call_tool("short")).text == "short"
