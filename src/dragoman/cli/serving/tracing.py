"""`dragoman serve --traces URL`: spans of calls go to a collector, by OpenTelemetry's protocol OTLP over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from ...jsonrpc.errors import LocalError
from ...net.urls import parse
from ..exit_status import Usage
from ..target import Target

if TYPE_CHECKING:
    from ...telemetry import Traces

PATH: Final = "/v1/traces"
"""Where a collector takes spans, by OTLP's specification."""


def traces_url(text: str) -> str:
    """The URL of a collector, with the usual path where it has none. Raises Usage."""
    try:
        url = parse(text)
    except LocalError as fault:
        raise Usage(f"--traces {text}: {fault}") from None
    if url.plain != "http":
        raise Usage(f"--traces {text}: write http://HOST:PORT or https://..., where a collector takes OTLP over HTTP")
    return text.rstrip("/") + PATH if url.path in ("", "/") else text


@asynccontextmanager
async def tracing(url: str | None, served: Target) -> AsyncIterator[Traces | None]:
    """The observer that makes spans while the block runs, after which those that are left are sent; None without a
    URL. Raises LocalError, which names the extra, where OpenTelemetry lacks."""
    if url is None:
        yield None
        return
    from ...telemetry.collector import traces_for  # noqa: PLC0415  (an optional extra)

    traces, end = traces_for(traces_url(url), served.name, getattr(served, "version", ""))
    try:
        yield traces
    finally:
        await asyncio.to_thread(end)
