"""`dragoman serve --workers N`: the same command line in N processes, and their supervisor in this one.

The supervisor never imports what is served; each worker imports it, again at each reload.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from ... import console
from ...workers.supervisor import Supervisor, run_workers
from ..lines import tell
from .admin import admin, endpoint_of
from .announce import announce_console
from .metrics import metrics_url, page
from .reload import changes
from .settings import ServeOptions


async def supervise(
    folder: Path, urls: Sequence[str], workers: int, options: ServeOptions, *, may_reload: Callable[[], bool]
) -> int:
    """Serve with the arguments of this process in several worker processes, until a signal. Returns the exit status."""

    def log_line(text: str, grave: bool) -> None:
        if grave or not options.quiet:
            tell(text, "warning" if grave else "info")

    bus = options.bus or os.environ.get("DRAGOMAN_BUS") or None

    @asynccontextmanager
    async def beside(supervisor: Supervisor) -> AsyncIterator[None]:
        async with AsyncExitStack() as opened:
            sums, far = console.Sums(supervisor), None
            if bus is not None and options.console is not None:
                far = await opened.enter_async_context(console.ask_replicas(bus, supervisor.group))
            workers, me = console.WorkerProcesses(supervisor), "" if far is None else far.me
            source = console.GatheredConsole(workers, sums=sums, far=far, me=me)
            await opened.enter_async_context(places_beside(options, sums.text, source))
            if options.console is not None:
                address, tls, auth = console.read_address(options.console, "--console"), options.tls(), options.auth()
                name = " ".join(urls)
                announce_console(
                    await opened.enter_async_context(console.open_console(address, source, name, tls=tls, auth=auth))
                )
            yield

    found: AsyncIterator[str] | None = None
    if options.reload:
        found = changes(folder)
        tell(f"watching {folder}", "info")
    return await run_workers(
        [sys.executable, *(["-B"] if options.reload else []), "-m", "dragoman", *sys.argv[1:]],
        urls,
        workers=workers,
        bus=bus,
        changes=found,
        may_reload=may_reload,
        say=log_line,
        beside=beside,
    )


@asynccontextmanager
async def places_beside(
    options: ServeOptions,
    text: Callable[[], bytes] | Callable[[], Awaitable[bytes]],
    source: console.ConsoleSource | None,
) -> AsyncIterator[None]:
    """The metrics and the socket of `--admin` while the block runs, if there are such options."""
    async with AsyncExitStack() as beside:
        if options.metrics is not None:
            await beside.enter_async_context(page(metrics_url(options.metrics), text, quiet=options.quiet))
        if options.admin is not None and source is not None:
            await beside.enter_async_context(admin(endpoint_of(options.admin), source))
        yield
