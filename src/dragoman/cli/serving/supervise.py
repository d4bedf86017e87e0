"""`dragoman serve --workers N`: the same command line in N processes, and their supervisor in this one.

The supervisor never imports what is served; each worker imports it, again at each reload.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from ...workers.supervisor import run_workers
from ..lines import tell
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
) -> int:
    """Serve with the arguments of this process in several worker processes, until a signal. Returns the exit status."""

    def told(text: str, grave: bool) -> None:
        if grave or not quiet:
            tell(text, "yellow" if grave else "dim")

    async def run() -> int:
        found: AsyncIterator[str] | None = None
        if reload:
            found = changes(folder)
            tell(f"watching {folder}", "dim")
        return await run_workers(
            [sys.executable, *(["-B"] if reload else []), "-m", "dragoman", *sys.argv[1:]],
            urls,
            workers=workers,
            bus=bus or os.environ.get("DRAGOMAN_BUS") or None,
            changes=found,
            say=told,
        )

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(run())
