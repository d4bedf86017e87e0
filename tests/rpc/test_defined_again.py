"""A cell that is run again, and a module that is loaded again, replace their functions; other names that are taken are
refused."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from dragoman import Service
from dragoman.jsonrpc.errors import LocalError
from dragoman.rpc.background import needs_asyncio

CELL = """
@api.method(inline=True)
def answer() -> int:
    return {value}
"""


def run_cell(api: Service, value: int, name: str, module: str = "shop") -> None:
    exec(compile(CELL.format(value=value), name, "exec"), {"api": api, "__name__": module})


CALL = b'{"jsonrpc":"2.0","method":"answer","id":1}'


def test_a_definition_that_is_run_again_replaces(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman")
    api, outer = Service("notebook"), Service("outer")
    outer.include(api)
    run_cell(api, 1, "shop.py")
    run_cell(api, 2, "shop.py")
    assert api.answer(CALL) == outer.answer(CALL) == b'{"jsonrpc":"2.0","result":2,"id":1}'
    assert [record.getMessage() for record in caplog.records] == [
        "notebook: the method answer is defined again, and replaced"
    ]


def test_another_definition_of_the_name_is_refused() -> None:
    api = Service("shop")
    run_cell(api, 1, "shop.py")
    with pytest.raises(LocalError, match="has a method 'answer' already"):
        run_cell(api, 2, "other.py")
    with pytest.raises(LocalError, match="has a method 'answer' already"):
        run_cell(api, 2, "shop.py", module="other")
    assert api.answer(CALL) == b'{"jsonrpc":"2.0","result":1,"id":1}'


def test_in_a_session_any_definition_of_the_module_replaces() -> None:
    program = f"""
from dragoman import Service
api = Service("session")
exec(compile({CELL.format(value=1)!r}, "cell 1", "exec"))
exec(compile({CELL.format(value=2)!r}, "cell 2", "exec"))
print(api.answer({CALL!r}).decode())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == '{"jsonrpc":"2.0","result":2,"id":1}'


def test_without_a_loop_of_asyncio_it_is_said() -> None:
    with pytest.raises(LocalError, match=r"connect\(\.\.\.\) needs a running event loop of asyncio.*trio"):
        needs_asyncio("connect(...)")


async def test_a_blocking_call_on_the_loop_of_its_server_says_why() -> None:
    from dragoman import serve, sync

    api = Service("same loop")
    api.method("ping", inline=True)(lambda: 1)
    async with serve(api, urls="tcp://127.0.0.1:0") as serving:

        def block(call: Callable[..., Any]) -> None:
            call("ping", timeout=0.05)

        with sync.connect(serving.urls[0]) as peer:
            with pytest.raises(TimeoutError) as found:
                block(peer.call)
            assert "held up the event loop of its own thread" in found.value.__notes__[0]
        await asyncio.sleep(0)


DECORATED = """
from functools import wraps

def kept(function):
    @wraps(function)
    def wrapper():
        return function()
    return wrapper
"""
decorators: dict[str, Any] = {"__name__": "decorators"}
exec(compile(DECORATED, "decorators.py", "exec"), decorators)
TWO = """
@api.method(inline=True)
@kept
def answer() -> int:
    return {value}
"""
LOOP = """
for number in (1, 2):
    @api.method(inline=True)
    def answer(number: int = number) -> int:
        return number
"""


def run_decorated(api: Service, value: int, lines: int = 0) -> None:
    text = "\n" * lines + TWO.format(value=value)
    exec(compile(text, "shop.py", "exec"), {"api": api, "__name__": "shop", "kept": decorators["kept"]})


def test_a_decorator_hides_neither_that_it_is_the_same_nor_that_it_is_another() -> None:
    """The code of each function that it wraps is the decorator's own."""
    api = Service("shop")
    run_decorated(api, 1)
    run_decorated(api, 2)
    assert api.answer(CALL) == b'{"jsonrpc":"2.0","result":2,"id":1}'
    with pytest.raises(LocalError, match="has a method 'answer' already"):
        run_decorated(api, 3, lines=20)
    assert api.answer(CALL) == b'{"jsonrpc":"2.0","result":2,"id":1}'


def test_a_loop_that_registers_twice_is_refused_and_may_be_run_again() -> None:
    api = Service("shop")
    for _ in range(2):
        with pytest.raises(LocalError, match="has a method 'answer' already"):
            exec(compile(LOOP, "shop.py", "exec"), {"api": api, "__name__": "shop"})
        assert api.answer(CALL) == b'{"jsonrpc":"2.0","result":1,"id":1}'


def test_a_decorator_that_wraps_itself_is_met_once() -> None:
    api = Service("shop")
    function: Any = lambda: 1  # noqa: E731
    function.__wrapped__ = function
    api.method("answer")(lambda: 0)
    with pytest.raises((LocalError, ValueError)):
        api.method("answer")(function)
