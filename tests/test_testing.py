"""What `dragoman.testing` gives to tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dragoman import LocalError, Service
from dragoman.mcp import Client, Context, Server
from dragoman.testing import Answers, Clock, assert_contract, contract


def desk() -> Server:
    app = Server("desk")

    @app.tool
    async def stamp(paper: str) -> str:
        return paper

    @app.resource("file:///{name}")
    def read(name: str) -> str:
        return name

    @app.prompt
    def greet(name: str) -> str:
        return name

    return app


async def test_a_changed_contract_shows_the_lines(tmp_path: Path) -> None:
    path = tmp_path / "contract.json"
    with pytest.raises(AssertionError, match="is not there"):
        await assert_contract(desk(), path)
    await assert_contract(desk(), path, update=True)
    await assert_contract(desk(), path)
    found = json.loads(path.read_text())
    assert [list(found[kind]) for kind in ("tools", "resources", "resourceTemplates", "prompts")] == [
        ["stamp"],
        [],
        ["read"],
        ["greet"],
    ]
    changed = desk()
    changed.add_tool(lambda: "x", name="erase")
    with pytest.raises(AssertionError, match=r'(?s)has changed.*\n\+    "erase"'):
        await assert_contract(changed, path)


async def test_the_contract_of_a_service_is_its_openrpc_document() -> None:
    api = Service("x")
    before = await contract(api)

    @api.method
    def twice(a: int) -> int:
        return 2 * a

    assert json.loads(before)["methods"] == []
    assert [one["name"] for one in json.loads(await contract(api))["methods"]] == ["twice"]


async def test_questions_are_answered_in_turn() -> None:
    app = Server("desk")

    @app.tool
    async def book(ctx: Context) -> str:
        return str((await ctx.elicit("Which seat?", str)).content)

    answers = Answers({"value": "window"}, {"value": "aisle"})
    async with Client(app, revision="2025-11-25", on_elicit=answers) as client:
        assert await client.call_tool("book", result=str) == "window"
        assert (answers.left, answers.asked[0].message) == (1, "Which seat?")


async def test_a_question_without_an_answer_and_an_answer_that_raises() -> None:
    answers = Answers(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await answers("first")
    with pytest.raises(AssertionError, match="question 2 has no answer: 'second'"):
        await answers("second")


def test_a_clock_moves_forward_alone() -> None:
    clock = Clock(5)
    clock.advance(2.5)
    assert clock() == 7.5
    with pytest.raises(LocalError, match="0 or more"):
        clock.advance(-1)
