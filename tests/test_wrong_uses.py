"""Every wrong use of the library gets an error that says what was wrong, where, and what would be right."""

from __future__ import annotations

import ast
import inspect
from types import CodeType
from typing import Any

import pytest

from .wrong_uses import USES, WORLD


async def done(code: CodeType, world: dict[str, Any]) -> None:
    """Run the code, and what it awaits."""
    running = eval(code, world)
    if inspect.iscoroutine(running):
        await running


@pytest.mark.parametrize(("code", "what", "where", "right"), USES, ids=[use[0] for use in USES])
async def test_an_error_has_three_parts(code: str, what: str, where: str, right: str) -> None:
    world: dict[str, Any] = {}
    exec(WORLD, world)
    runs = compile(code, "wrong_use", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with pytest.raises(Exception, match=r".") as caught:
        await done(runs, world)
    said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    for part in (what, where, right):
        assert part in said, said
    assert caught.type.__module__.startswith("dragoman") or caught.type is AttributeError, caught.type
