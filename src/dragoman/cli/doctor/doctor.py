"""`dragoman doctor`: examines the way to a server step by step, until the first fault.

Rules: a step looks at what really comes; it sends `ping` (which every server knows, or knows that it has not),
`rpc.discover`, and what begins MCP: nothing that changes anything. Nothing is sent to another host than that of the
target.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Annotated, cast

from cyclopts import App, Parameter
from rich.text import Text

from ...jsonrpc.framing import FramingName
from ...net.scheme import SCHEMES, has_host
from ...net.urls import Url, mask_url, parse, printable, scheme_of
from ...schemes import known
from ...system.words import join_command
from ..exit_status import ANSWERED_WITH_ERROR, FINE, NO_ANSWER
from ..faults import BROKERS, diagnose_silence
from ..options import LINK_GROUP, OUTPUT, WIRE, AccessOptions, LinkOptions, Output, WireOptions
from ..reach import target_of
from ..terminal import clean, say, show, show_rows
from . import brokers, child, protocol, sockets
from .namesake import find_namesake
from .record import PATIENCE, Examination, ExaminationStep, FaultFound, Patience

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
3 no connection or no answer. All of it takes as long as --timeout says, 10 s
without it, and 1.5 s for a last look.""",
)


@Parameter(name="*", group=LINK_GROUP, show_default=False)
@dataclass(frozen=True, kw_only=True)
class DoctorAccess(AccessOptions):
    """Options of the calling end; the time-out is for the whole examination."""

    timeout: Annotated[float, Parameter(alias="-t", metavar="SECONDS", show_default=True)] = PATIENCE
    """Seconds for the whole examination."""


@Parameter(name="*", group=LINK_GROUP, show_default=False)
@dataclass(frozen=True, kw_only=True)
class DoctorLink(LinkOptions):
    """Options of the calling end."""

    access: DoctorAccess = DoctorAccess()


DOCTOR_LINK: DoctorLink = DoctorLink()


@app.default
def doctor(target: str, /, *, link: DoctorLink = DOCTOR_LINK, wire: WireOptions = WIRE, output: Output = OUTPUT) -> int:
    """Find the first fault on the way to a server, and say how to fix it.

    Parameters
    ----------
    target
        A URL of any wire, or a command to start, in quotes.
    """
    if (namesake := find_namesake()) is not None:
        say(namesake, "yellow")
    record = asyncio.run(run_examination(target, link, wire))
    if output.json:
        output.write(record.as_json(), "steps")
    else:
        _show(record)
    if record.fault is None:
        return FINE
    return ANSWERED_WITH_ERROR if record.fault.answers else NO_ANSWER


async def run_examination(target: str, link: LinkOptions, wire: WireOptions) -> Examination:
    """Examine a target. Raises Usage and LocalError for what is not a target."""
    where = target_of(target)
    patience = Patience(link.access.seconds())
    if isinstance(where, str):
        known(where)
        url = parse(where)
        record = Examination(url.shown, patience.total)
        work = _by_url(where, url, link, wire, record, patience)
    else:
        record = Examination(printable(join_command(where), 200), patience.total)
        work = _by_command(where, link, wire, record, patience)
    try:
        async with asyncio.timeout(patience.total + 2 * patience.look):
            with contextlib.suppress(FaultFound):
                await work
    except TimeoutError:
        if record.fault is None:
            step = record.steps[-1].name if record.steps else "the first step"
            record.fail(diagnose_silence(record.target, patience.total, f"the step {step} has not ended"))
    return record


async def _by_command(
    command: list[str], link: LinkOptions, wire: WireOptions, record: Examination, patience: Patience
) -> None:
    program = child.Program(command, link.access)
    try:
        await child.examine(program, wire.framing, record, patience)
        async with program.offer() as url:
            await protocol.examine(
                protocol.Target(url, None, program.name, target=record.target), link, wire, record, patience
            )
    finally:
        await program.end()


async def _by_url(
    where: str, url: Url, link: LinkOptions, wire: WireOptions, record: Examination, patience: Patience
) -> None:
    access = link.access
    doubt = None
    if has_host(scheme_of(where)) and url.scheme != "udp":
        await sockets.look_up(url, record)
    if SCHEMES[url.scheme].socket in ("stream", "unix") or (has_host(url.scheme) and url.scheme != "udp"):
        await sockets.connect(url, access, record, patience)
    framing_name = wire.framing or _framing(url)
    if url.plain == "http":
        from . import http  # noqa: PLC0415 - needs the extra "http"

        doubt = await http.examine(url, access, record, patience)
    elif url.plain in BROKERS:
        await brokers.greet(url, access, record, patience)
    elif url.plain in ("tcp", "unix"):
        await sockets.answer(url, access, framing_name, record, patience)
    target = protocol.Target(where, url, url.shown, target=mask_url(where), doubt=doubt, framing=framing_name)
    await protocol.examine(target, link, wire, record, patience)


def _framing(url: Url) -> FramingName | None:
    return cast("FramingName | None", url.query.get("framing"))  # one that does not exist is refused where it is used


def _word(step: ExaminationStep, record: Examination) -> Text:
    """A step in a word."""
    if not step.ok:
        return Text("fault", "bold red") if record.verdict == "faulty" else Text(record.verdict, "yellow")
    return Text("slow", "yellow") if step.slow else Text("ok", "green")


def _show(record: Examination) -> None:
    show_rows(
        (
            _word(step, record),
            step.name,
            Text(f"{step.ms:.1f} ms".rjust(widest), "dim"),
            step.said,
        )
        for widest in [max(len(f"{step.ms:.1f} ms") for step in record.steps)]
        for step in record.steps
    )
    if record.fault is not None:
        show(f"what to do: {record.fault.fix}", "yellow")
    else:
        style = "bold green" if record.verdict == "healthy" else "bold yellow"
        show(Text.assemble((record.verdict, style), f"  {clean(record.found)}"))
