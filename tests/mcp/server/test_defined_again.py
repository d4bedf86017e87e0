"""A cell that is run again, and a module that is loaded again, replace their tools, prompts, resources and completions:
for open sessions, for servers around theirs, and with one notification."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from dragoman.jsonrpc.errors import LocalError
from dragoman.mcp import Client, Context, Extension, Server
from dragoman.mcp.protocol.methods import Row
from dragoman.mcp.protocol.params import EmptyResult, RequestParams

TOOL = """
@app.tool
def answer({parameter}: int) -> int:
    return {value}
"""
PROMPT = """
@app.prompt
def ask({parameter}: str, tone: str = "") -> str:
    return "{value} " + {parameter}
"""
RESOURCE = """
@app.resource("x://note")
def note() -> str:
    return "{value}"
"""
TEMPLATE = """
@app.resource("x://of/{{name}}")
def of(name: str) -> str:
    return "{value} " + name
"""
COMPLETION = """
@app.completion("ask", "tone")
def tones(typed: str) -> list[str]:
    return ["{value}"]
"""
ALL = TOOL + PROMPT + RESOURCE + TEMPLATE + COMPLETION


def run(
    app: Server, cell: str, value: int, *, parameter: str = "a", name: str = "notes.py", module: str = "notes"
) -> None:
    text = cell.format(value=value, parameter=parameter)
    exec(compile(text, name, "exec"), {"app": app, "__name__": module})


async def shown(client: Client) -> list[Any]:
    """What a client finds out about all of it."""
    [tool] = await client.list_tools()
    [parameter] = tool.input_schema["properties"]
    [prompt] = await client.list_prompts()
    first = (prompt.arguments or [])[0].name
    told = await client.get_prompt(prompt.name, {first: "x"})
    tones = await client.complete(prompt.name, "tone", "")
    return [
        parameter,
        await client.call_tool(tool.name, {parameter: 1}, result=int),
        [first, told.messages[0].content.text],  # type: ignore[union-attr]
        tones.values,
        (await client.read_resource("x://note")).contents[0].text,
        (await client.read_resource("x://of/ada")).contents[0].text,
    ]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_what_is_defined_again_replaces(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.mcp")
    app, outer = Server("notes"), Server("outer")
    run(app, ALL, 1)
    outer.include(app)
    async with Client(app, revision=revision) as client, Client(outer, revision=revision) as around:
        for one in (client, around):
            assert await shown(one) == ["a", 1, ["a", "1 x"], ["1"], "1", "1 ada"]
        run(app, ALL, 2, parameter="b")
        for one in (client, around):
            assert await shown(one) == ["b", 2, ["b", "2 x"], ["2"], "2", "2 ada"]
    assert [one.getMessage() for one in caplog.records if "defined again" in one.getMessage()] == [
        "the tool answer is defined again, and replaced",
        "the prompt ask is defined again, and replaced",
        "the resource x://note is defined again, and replaced",
        "the template x://of/{name} is defined again, and replaced",
        "the completion of tone of ask is defined again, and replaced",
    ]


async def test_a_client_is_told_once_for_each_list() -> None:
    app = Server("notes")
    run(app, ALL, 1)
    told: asyncio.Queue[str] = asyncio.Queue()

    def hear(method: str, params: Any) -> None:
        told.put_nowait(method)

    async with Client(app, revision="2025-11-25", on_notification=hear) as client:
        await client.list_tools()
        run(app, TOOL + PROMPT + RESOURCE + TEMPLATE, 2)
        methods = [await told.get() for _ in range(3)]
        assert sorted(methods) == [f"notifications/{kind}/list_changed" for kind in ("prompts", "resources", "tools")]
        await client.ping()
        assert told.empty()


async def test_a_prompt_keeps_the_completions_of_its_arguments() -> None:
    app, outer = Server("notes"), Server("outer")
    outer.include(app, namespace="n")
    run(app, PROMPT + COMPLETION, 1)
    run(app, PROMPT, 2)
    for server, name in ((app, "ask"), (outer, "n_ask")):
        async with Client(server) as client:
            assert (await client.complete(name, "tone", "")).values == ["1"]
    run(app, "\n" * PROMPT.count("\n") + COMPLETION, 4)  # the same lines
    async with Client(app) as client:
        assert (await client.complete("ask", "tone", "")).values == ["4"]


@pytest.mark.parametrize("cell", [TOOL, PROMPT, RESOURCE, TEMPLATE, PROMPT + COMPLETION])
def test_another_definition_of_the_name_is_refused(cell: str) -> None:
    for other in ({"name": "other.py"}, {"module": "other"}):
        app = Server("notes")
        run(app, cell, 1)
        with pytest.raises(LocalError, match="already"):
            run(app, cell.replace(PROMPT, "\n" * PROMPT.count("\n")) if COMPLETION in cell else cell, 2, **other)


async def test_what_cannot_be_listed_replaces_nothing() -> None:
    app = Server("notes")
    run(app, TOOL, 1)
    with pytest.raises(LocalError):
        run(app, TOOL.replace("@app.tool", "@app.tool(icons=[3])"), 2)
    async with Client(app) as client:
        assert await client.call_tool("answer", {"a": 1}, result=int) == 1


async def names(server: Server) -> list[str]:
    async with Client(server) as client:
        tools = [one.name for one in await client.list_tools()]
        prompts = [one.name for one in await client.list_prompts()]
        return tools + prompts + [one.uri for one in await client.list_resources()]


async def test_what_is_disabled_by_its_name_stays_so_here_and_around() -> None:
    app, outer = Server("notes"), Server("outer")
    outer.include(app)
    run(app, ALL, 1)
    for kind, key in (("tool", "answer"), ("prompt", "ask"), ("resource", "x://note")):
        outer.disable(kind, key)  # type: ignore[arg-type]
    run(app, ALL, 2)
    assert (await names(app), await names(outer)) == (["answer", "ask", "x://note"], [])
    app.disable("tool", "answer")
    run(app, TOOL, 3)
    assert await names(app) == ["ask", "x://note"]
    app.enable("tool", "answer")
    outer.enable("tool", "answer")
    run(app, TOOL, 4)
    assert await names(outer) == ["answer"]
    outer.disable("tool", "answer")
    app.remove_tool("answer")
    run(app, TOOL, 5)
    assert (await names(app), await names(outer)) == (["answer", "ask", "x://note"], [])


async def test_what_was_removed_is_new() -> None:
    app = Server("notes")
    run(app, TOOL, 1)
    app.remove_tool("answer")
    run(app, TOOL, 2, name="other.py")
    async with Client(app) as client:
        assert await client.call_tool("answer", {"a": 1}, result=int) == 2


METHOD = """
@app.method("example/answer")
def answer(params: Params, context: Context) -> Result:
    told.append({value})
    return Result()
"""


async def test_a_method_of_an_extension() -> None:
    app = Server(
        "x", extensions=[Extension(name="example.com/x", methods=(Row("example/answer", RequestParams, EmptyResult),))]
    )
    told: list[int] = []
    names = {
        "app": app,
        "Params": RequestParams,
        "Result": EmptyResult,
        "Context": Context,
        "told": told,
        "__name__": "m",
    }
    for value in (1, 2):
        exec(compile(METHOD.format(value=value), "m.py", "exec"), names)
    with pytest.raises(LocalError, match="answered by a function already"):
        exec(compile(METHOD.format(value=3), "other.py", "exec"), names)
