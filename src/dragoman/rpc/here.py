"""Where a call runs that is answered in place: without a wire in the calling thread, with nobody to call back; or on
a wire, between two messages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from ..channel import Caller
from ..jsonrpc.errors import LocalError
from ..jsonrpc.messages import Notification
from .context import Context


class Here:
    """The site of a call that is answered without a wire and without a loop."""

    caller = Caller()
    peer = None

    def progress(self, message: Any, value: Any) -> bool:
        return False

    def speak(self, raw: bytes) -> bool:
        return False

    def ask(self, context: Context, method: str, params: Any, result: Any, timeout: Any) -> Any:
        raise LocalError(f"{context.method}: there is no wire to call back on")

    def ask_all(self, context: Context, calls: Sequence[tuple[str, Any]], result: Any, timeout: Any) -> Any:
        raise LocalError(f"{context.method}: there is no wire to call back on")

    def tell(self, context: Context, method: str, params: Any) -> Any:
        raise LocalError(f"{context.method}: there is no wire to notify on")

    def left(self) -> float | None:
        return None

    async def thread(self, context: Context, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        return function(*arguments)


HERE = Here()


class InPlace:
    """The site of a call that came over a wire and ends in its first step: it may tell, and cannot ask."""

    __slots__ = ("caller", "over", "peer", "via")

    def __init__(self, caller: Caller, peer: Any = None, via: Callable[[bytes], bool] | None = None) -> None:
        self.caller = caller
        self.peer = peer
        self.via = via
        self.over = False
        """It is answered: nothing may follow."""

    def progress(self, message: Any, value: Any) -> bool:
        if self.over or self.peer is None or self.via is not None or isinstance(message, Notification):
            return False
        return bool(self.peer.inbox.tell_progress(message.id, value))

    def speak(self, raw: bytes) -> bool:
        if self.over or (self.via is None and self.peer is None):
            return False
        return self.via(raw) if self.via is not None else bool(self.peer.inbox.tell(raw))

    def ask(self, context: Context, method: str, params: Any, result: Any, timeout: Any) -> Any:
        raise LocalError(f"{context.method}: a call that awaits nothing cannot ask: `await ctx.call(...)`")

    def ask_all(self, context: Context, calls: Sequence[tuple[str, Any]], result: Any, timeout: Any) -> Any:
        raise LocalError(f"{context.method}: a call that awaits nothing cannot ask: `await ctx.ask(...)`")

    def tell(self, context: Context, method: str, params: Any) -> Any:
        raise LocalError(f"{context.method}: a call that awaits nothing cannot notify: `await ctx.notify(...)`")

    def left(self) -> float | None:
        return None

    async def thread(self, context: Context, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        return function(*arguments)


def inside_a_loop() -> bool:
    """Whether a loop runs in this thread; imports no asyncio to find out."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None
