"""`dragoman serve --workers N`: the same command line in N processes, and their supervisor in this one.

The supervisor never imports what is served; each worker imports it, again at each reload.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from ...workers.supervisor import Supervisor, run_workers
from ..lines import tell
from .admin import Place, admin
from .looking import WorkersSource
from .metrics import Sums, page
from .reload import changes


def supervise(
    folder: Path,
    urls: Sequence[str],
    *,
    workers: int,
    bus: str | None,
    reload: bool,
    quiet: bool,
    loop: Callable[[], asyncio.AbstractEventLoop] | None,
    metrics: str | None = None,
    place: Place | None = None,
    may_reload: Callable[[], bool] | None = None,
) -> int:
    """Serve with the arguments of this process in several worker processes, until a signal. Returns the exit status."""

    def told(text: str, grave: bool) -> None:
        if grave or not quiet:
            tell(text, "warning" if grave else "info")

    async def run() -> int:
        found: AsyncIterator[str] | None = None
        if reload:
            found = changes(folder)
            tell(f"watching {folder}", "info")
        return await run_workers(
            [sys.executable, *(["-B"] if reload else []), "-m", "dragoman", *sys.argv[1:]],
            urls,
            workers=workers,
            bus=bus or os.environ.get("DRAGOMAN_BUS") or None,
            changes=found,
            may_reload=may_reload,
            say=told,
            beside=lambda supervisor: _beside(supervisor, metrics, place, quiet=quiet),
        )

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(run())


@asynccontextmanager
async def _beside(
    supervisor: Supervisor, metrics: str | None, place: Place | None, *, quiet: bool
) -> AsyncIterator[None]:
    """What tells of all workers: the metrics and the socket of `--admin`, if they are asked for."""
    sums = Sums(supervisor)
    async with AsyncExitStack() as beside:
        if metrics is not None:
            await beside.enter_async_context(page(metrics, sums.text, quiet=quiet))
        if place is not None:
            await beside.enter_async_context(admin(place, WorkersSource(supervisor, sums)))
        yield
