"""Every step of ours on the way of a call, found by walking a call, and made to raise one by one."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from dragoman import Service

OURS = ("dragoman.rpc.", "dragoman.jsonrpc.")


class StepBroke(Exception):
    """What a broken step raises."""


def broken_service() -> Service:
    """A method of each kind, and `arm`, which breaks a step once, when its own answer is out."""
    api = Service("steps")

    @api.method
    async def later(n: int) -> int:
        await asyncio.sleep(0)
        return n

    @api.method
    def in_thread(n: int) -> int:
        return n

    @api.method(inline=True)
    def inline(n: int) -> int:
        return n

    mend: list[Callable[[], bool]] = []

    @api.method(inline=True)
    def arm(step: str) -> bool:
        def armed() -> None:
            mend.append(arm_step(step))
            print("armed", step, file=sys.stderr, flush=True)

        asyncio.get_running_loop().call_later(0.01, armed)
        return True

    @api.method(inline=True)
    def raised() -> bool:
        return mend.pop()()

    return api


@contextmanager
def walked() -> Iterator[set[str]]:
    """The functions of ours that this thread enters meanwhile, as "module:qualified name"."""
    found: set[str] = set()

    def entered(frame: FrameType, event: str, arg: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith(OURS):
            found.add(f"{module}:{frame.f_code.co_qualname}")

    sys.setprofile(entered)
    try:
        yield found
    finally:
        sys.setprofile(None)


def arm_step(step: str) -> Callable[[], bool]:
    """Make a step raise, once. Gives a function that mends it and says whether it has raised."""
    module, name = step.split(":")
    owner: Any = importlib.import_module(module)
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    whole = vars(owner)[last]
    inner = whole.fget if isinstance(whole, property) else whole
    holders = [(owner, last)]
    if not path:  # other modules have imported it by name
        holders = [
            (other, key)
            for modname, other in list(sys.modules.items())
            if modname.startswith("dragoman.")
            for key, value in list(vars(other).items())
            if value is whole
        ]
    raised = False

    def mend() -> bool:
        for holder, key in holders:
            setattr(holder, key, whole)
        return raised

    def breaking(*arguments: Any, **named: Any) -> Any:
        nonlocal raised
        raised = True
        mend()
        raise StepBroke(step)

    assert callable(inner), step
    for holder, key in holders:
        setattr(holder, key, property(breaking) if isinstance(whole, property) else breaking)
    return mend
