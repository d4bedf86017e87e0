"""`dragoman serve --metrics`: serves the metrics of this process, or of all its workers, at an address of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from ...channel import Options
from ...schemes import listen
from ...telemetry.page import PATH, MetricsPage
from ..arguments import address_of
from ..exit_status import Usage
from ..lines import tell


def metrics_url(text: str) -> str:
    """The URL of an address as `--metrics` takes it: `:9090` is loopback, another host is written out. Raises Usage."""
    found = address_of(text)
    if found is None or found[1] > 65535:
        raise Usage(f"--metrics {text}: write :9090 for loopback, or HOST:PORT, as in 0.0.0.0:9090")
    return f"http://{found[0]}:{found[1]}"


@asynccontextmanager
async def page(
    url: str, text: Callable[[], bytes] | Callable[[], Awaitable[bytes]], *, quiet: bool
) -> AsyncIterator[None]:
    """Serve the metrics at `url` while the block runs. `quiet`: do not say where. Raises LocalError if that is not
    possible."""
    served = MetricsPage(text)
    listener = await listen(url, {"": served}, Options())
    try:
        if not quiet:
            tell(f"metrics at {listener.url}{PATH}", "info")
        yield
    finally:
        await listener.close()
        await served.drain(1)
        await listener.closed()
