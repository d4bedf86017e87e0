"""Where a call runs that has no wire and no loop: in the calling thread, with nobody to call back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..channel import Caller
from ..jsonrpc.errors import LocalError
from .context import Context


class Here:
    """The site of a call that is answered without a wire and without a loop."""

    caller = Caller()
    peer = None

    def progress(self, message: Any, value: Any) -> bool:
        return False

    def ask(self, context: Context, method: str, params: Any, result: Any, timeout: Any) -> Any:
        raise LocalError(f"{context.method}: there is no wire to call back on")

    def tell(self, context: Context, method: str, params: Any) -> Any:
        raise LocalError(f"{context.method}: there is no wire to notify on")

    def left(self) -> float | None:
        return None

    async def thread(self, context: Context, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        return function(*arguments)


HERE = Here()


def inside_a_loop() -> bool:
    """Whether a loop runs in this thread; imports no asyncio to find out."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None
