"""The blocking client, against a real server in a process of its own and over HTTP."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dragoman.jsonrpc.errors import CallTimeout, LocalError
from dragoman.mcp.client.blocking import connect
from dragoman.mcp.client.subscriptions import Changed
from dragoman.mcp.protocol.params import ElicitRequestParams, ProgressNotificationParams

SERVER = """
import asyncio
from dragoman import serve
from dragoman.mcp import Context, Server

app = Server("blocking")

@app.tool
async def add(a: int, b: int) -> int:
    return a + b

@app.tool
async def counts(ctx: Context, to: int) -> str:
    for step in range(to):
        await ctx.progress(step + 1, to)
    return "counted"

@app.tool
async def asks(ctx: Context) -> str:
    answer = await ctx.elicit("name?", {"type": "object", "properties": {"name": {"type": "string", "default": "Ada"}}})
    return answer.content["name"]

@app.tool
async def hangs() -> str:
    await asyncio.Event().wait()

@app.tool
async def forgets() -> str:
    app.remove_tool("add")
    return "gone"

async def main():
    await serve(app, urls="stdio:")

asyncio.run(main())
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    return [sys.executable, str(script)]


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
def test_calls_block(command: list[str], revision: str) -> None:
    steps: list[ProgressNotificationParams] = []

    def answer(question: ElicitRequestParams) -> bool:
        assert threading.current_thread() is not threading.main_thread()
        return True

    with connect(command, revision=revision, on_elicit=answer) as client:
        assert client.revision.date == revision
        assert client.server is not None
        assert "add" in [tool.name for tool in client.list_tools()]
        assert client.call_tool("add", {"a": 2, "b": 3}, result=int) == 5
        assert client.call_tool("counts", {"to": 2}, on_progress=steps.append).text == "counted"
        assert [one.progress for one in steps] == [1, 2]
        assert client.call_tool("asks").text == "Ada"
        with pytest.raises(CallTimeout):
            client.call_tool("hangs", timeout=0.05)
        client.ping()
        with client.subscribe(tools=True) as changes:
            assert changes.granted.tools_list_changed is True
            client.call_tool("forgets")
            assert next(changes) == Changed("tools")


def test_many_threads_may_call_at_once(command: list[str]) -> None:
    found: list[int] = []
    with connect(command) as client:

        def work(n: int) -> None:
            found.append(client.call_tool("add", {"a": n, "b": n}, result=int))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(found) == [2 * n for n in range(8)]


def test_a_blocking_call_on_the_loop_itself_is_refused(command: list[str]) -> None:
    faults: list[Exception] = []
    with connect(command) as client:

        def told(step: ProgressNotificationParams) -> None:
            try:
                client.ping()
            except LocalError as error:
                faults.append(error)

        client.call_tool("counts", {"to": 1}, on_progress=told)
    assert "wait for itself" in str(faults[0])


def test_a_client_left_open_does_not_keep_the_interpreter(command: list[str], tmp_path: Path) -> None:
    script = tmp_path / "left.py"
    script.write_text(
        f"from dragoman.mcp.client.blocking import connect\nclient = connect({command!r})\nprint(client.revision.date)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "2026-07-28\n"
    assert done.stderr == ""


def test_a_client_that_is_collected_is_closed(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(SERVER + "\nimport sys\nprint('over', file=sys.stderr)\n")
    over = threading.Event()
    client = connect([sys.executable, str(script)], stderr=lambda line: over.set() if line == "over" else None)
    client.ping()
    del client
    gc.collect()
    assert over.wait(20)
