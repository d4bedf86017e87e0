"""`dragoman doctor`: examines the way to a server step by step, until the first fault.

Rules: a step looks at what really comes; it sends `ping` (which every server knows, or knows that it has not),
`rpc.discover`, and what begins MCP: nothing that changes anything. Nothing is sent to another host than that of the
target.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from typing import cast

from cyclopts import App
from rich.text import Text

from ...jsonrpc.framing import FramingName
from ...net.scheme import SCHEMES, located
from ...net.urls import Url, parse, printable, scheme_of
from ...schemes import known
from ..ends import ANSWERED_WITH_ERROR, FINE, NO_ANSWER
from ..options import LINK, OUTPUT, WIRE, Link, Output, Wire
from ..reach import place_of
from ..terminal import clean, out, show_rows
from . import child, protocol, sockets
from .record import Faulty, Record

app: App = App(
    name="doctor",
    help_epilogue="""\
Examples:

  dragoman doctor http://127.0.0.1:8000/mcp
  dragoman doctor tcp://127.0.0.1:9000
  dragoman doctor 'python server.py'
  dragoman doctor weather.py --json
  dragoman doctor https://example.org/rpc --bearer TOKEN

Exit status: 0 no fault, 1 the far end answers and has a fault, 2 wrong usage,
3 no connection or no answer.""",
)


@app.default
def doctor(target: str, /, *, link: Link = LINK, wire: Wire = WIRE, output: Output = OUTPUT) -> int:
    """Find the first fault on the way to a server, and say how to fix it.

    Parameters
    ----------
    target
        A URL of any wire, or a command to start, in quotes.
    """
    record = asyncio.run(examined(target, link, wire))
    if output.json:
        output.write(record.as_json(), "steps")
    else:
        _show(record)
    if record.fault is None:
        return FINE
    return ANSWERED_WITH_ERROR if record.fault.answers else NO_ANSWER


async def examined(target: str, link: Link, wire: Wire) -> Record:
    """Examine a target. Raises Usage and LocalError for what is not a target."""
    place = place_of(target)
    with contextlib.suppress(Faulty):
        if isinstance(place, str):
            known(place)
            url = parse(place)
            record = Record(url.shown)
            await _by_url(place, url, link, wire, record)
        else:
            record = Record(printable(shlex.join(place), 200))
            await child.examine(place, link.access, wire.framing, record)
            seconds = min(link.access.seconds() or child.START, child.START)
            await protocol.examine(place, None, record.target, link, wire, seconds, record, None)
    return record


async def _by_url(place: str, url: Url, link: Link, wire: Wire, record: Record) -> None:
    access = link.access
    doubt = None
    if located(scheme_of(place)) and url.scheme != "udp":
        await sockets.look_up(url, record)
    if SCHEMES[url.scheme].socket in ("stream", "unix") or (located(url.scheme) and url.scheme != "udp"):
        await sockets.connect(url, access, record)
    if url.plain == "http":
        from . import http  # noqa: PLC0415 - needs the extra "http"

        doubt = await http.examine(url, access, record)
    elif url.plain in ("tcp", "unix"):
        await sockets.answer(url, access, wire.framing or _framing(url), record)
    seconds = sockets.patience(access)
    await protocol.examine(place, url, url.shown, link, wire, seconds, record, doubt)


def _framing(url: Url) -> FramingName | None:
    return cast("FramingName | None", url.query.get("framing"))  # one that does not exist is refused where it is used


def _show(record: Record) -> None:
    show_rows(
        (
            Text("ok", "green") if step.ok else Text("fault", "bold red"),
            step.name,
            Text(f"{step.ms:.1f} ms", "dim"),
            step.said,
        )
        for step in record.steps
    )
    if record.fault is not None:
        out.print(Text(f"what to do: {clean(record.fault.mend)}", "yellow"), soft_wrap=True)
