"""What third parties call: the calculator, and methods that wait and that call back. `python -m tests.interop.served`
serves it on standard input and output with Content-Length framing, as an editor's child."""

from __future__ import annotations

import asyncio

from dragoman import Context, Service, serve
from tests.calculator import calculator


def interop() -> Service:
    """The calculator with `ask`, `wait`, `started` and `stopped`."""
    api = calculator()
    started = asyncio.Event()
    stopped: list[bool] = []

    @api.method
    async def ask(number: int, context: Context) -> int:
        """One more than what the caller's `double` makes of `number`; tells it `told` as well."""
        await context.notify("told", [number, "number"])
        double: int = await context.call("double", [number], result=int)
        return 1 + double

    @api.method
    async def wait() -> None:
        """Wait until it is cancelled."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)

    @api.method("started")
    async def has_started() -> bool:
        """Answers once `wait` runs."""
        await started.wait()
        return True

    @api.method("stopped")
    async def how_often_stopped() -> int:
        """How many calls of `wait` were really stopped."""
        return len(stopped)

    return api


def caller() -> Service:
    """What third parties that we call may call back."""
    api = Service("caller")

    @api.method(inline=True)
    def double(number: int) -> int:
        return 2 * number

    return api


async def main() -> None:
    await serve(interop(), urls=["stdio:?framing=content-length"])


if __name__ == "__main__":
    asyncio.run(main())
