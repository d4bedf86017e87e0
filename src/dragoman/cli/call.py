"""`dragoman call` and `dragoman notify`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Annotated

import msgspec
from cyclopts import App, Parameter
from msgspec import Raw, UnsetType
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from .arguments import params_of
from .ends import FINE
from .options import LINK, OUTPUT, WIRE, Link, Output, Wire
from .reach import reached
from .terminal import clean, err, show_json

ABOUT_WORDS = """\
A word that is JSON is that value, any other is text; name=word gives
arguments by name. Text that looks like JSON or has a "=" in it is quoted as
JSON, inside the shell's quotes: '"42"' or '"a=b"'."""

app = App(
    name="call",
    help_epilogue=f"""\
Examples:

  dragoman call http://127.0.0.1:8000 subtract 42 23
  dragoman call tcp://127.0.0.1:9000 subtract minuend=42 subtrahend=23
  dragoman call unix:calc.sock sum 1 2.5 -3
  dragoman call ws://127.0.0.1:8001 greet name=Ada 'tags=["x", "y"]'
  dragoman call https://example.org/rpc report --params @report.json
  dragoman call http://127.0.0.1:8000 subtract 42 23 --json   {{"result":19}}

A child process, over its stdin and stdout; here the second is a language
server:

  dragoman call 'python server.py' subtract 42 23
  dragoman call pylsp shutdown --framing content-length

Bitcoin Core speaks JSON-RPC 1.0 and wants a password:

  export DRAGOMAN_USER=name:password
  dragoman call http://127.0.0.1:8332 getblockcount --1.0

{ABOUT_WORDS}

Exit status: 0 fine, 1 the peer answered with an error, 2 wrong usage,
3 no connection or no answer in time.""",
)
notify_app = App(
    name="notify",
    help_epilogue=f"""\
Examples:

  dragoman notify tcp://127.0.0.1:9000 update 1 2 3
  dragoman notify http://127.0.0.1:8000 moved x=1 y=2
  dragoman notify udp://127.0.0.1:9001 tick

{ABOUT_WORDS}

Exit status 0 says that the message was sent, not that anybody heard it.""",
)

Params = Annotated[str | None, Parameter(metavar="JSON", allow_leading_hyphen=True, show_default=False)]


@app.default
def call(
    url: str,
    method: str,
    /,
    *args: str,
    params: Params = None,
    link: Link = LINK,
    wire: Wire = WIRE,
    output: Output = OUTPUT,
) -> int:
    """Call a method and print its result as JSON.

    Parameters
    ----------
    url
        Where: http, https, ws, wss, tcp, tls, unix or udp; or a command to start.
    method
        The method's name.
    args
        The arguments, by position or as name=value.
    params
        All params at once: JSON, @FILE, or - for stdin.
    """
    given = params_of(args, params)
    result = asyncio.run(_call(url, method, given, link, wire))
    if output.json:
        print(f'{{"result":{bytes(result).decode()}}}')
    else:
        show_json(bytes(result))
    return FINE


@notify_app.default
def notify(
    url: str,
    method: str,
    /,
    *args: str,
    params: Params = None,
    link: Link = LINK,
    wire: Wire = WIRE,
    output: Output = OUTPUT,
) -> int:
    """Send a notification: nobody answers.

    Parameters
    ----------
    url
        Where: http, https, ws, wss, tcp, tls, unix or udp; or a command to start.
    method
        The method's name.
    args
        The arguments, by position or as name=value.
    params
        All params at once: JSON, @FILE, or - for stdin.
    """
    asyncio.run(_notify(url, method, params_of(args, params), link, wire))
    if output.json:
        print('{"sent":true}')
    return FINE


async def _call(url: str, method: str, params: Raw | UnsetType, link: Link, wire: Wire) -> Raw:
    async with reached(url, link, wire) as peer:
        with progress_on_stderr(method) as show:
            return await peer.call(method, params, result=Raw, on_progress=show)


async def _notify(url: str, method: str, params: Raw | UnsetType, link: Link, wire: Wire) -> None:
    async with reached(url, link, wire) as peer:
        await peer.notify(method, params)


# -- progress -------------------------------------------------------------------------------------


class Told(msgspec.Struct):
    """What a progress value says, in whichever of the usual shapes it comes."""

    done: float | None
    total: float | None
    text: str


def told(value: object) -> Told:
    """Read a progress value: a number (a share of 1), [done, total], or an object as LSP and MCP send it."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Told(float(value), 1.0, "") if 0 <= value <= 1 else Told(float(value), None, f"{value:g}")
    if isinstance(value, list) and len(value) == 2 and all(isinstance(part, (int, float)) for part in value):
        return Told(float(value[0]), float(value[1]), "")
    if not isinstance(value, dict):
        return Told(None, None, value if isinstance(value, str) else msgspec.json.encode(value).decode())
    text = next((value[key] for key in ("message", "title", "text") if isinstance(value.get(key), str)), "")
    if isinstance(share := value.get("percentage"), (int, float)):
        return Told(float(share), 100.0, text)
    done = next((value[key] for key in ("progress", "done", "value") if isinstance(value.get(key), (int, float))), None)
    total = value.get("total")
    return Told(done, float(total) if isinstance(total, (int, float)) else None, text)


@contextlib.contextmanager
def progress_on_stderr(title: str) -> Iterator[Callable[[object], None] | None]:
    """A line on stderr that follows a call's progress, once there is any; None when stderr is no terminal."""
    if not err.is_terminal:
        yield None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(24),
        TextColumn("{task.fields[text]}", markup=False),
    )
    with contextlib.ExitStack() as shown:
        line = Progress(*columns, TimeElapsedColumn(), console=err, transient=True)
        task = line.add_task(clean(title), total=None, text="")

        def show(value: object) -> None:
            if not line.live.is_started:
                shown.enter_context(line)
            said = told(value)
            line.update(task, completed=said.done or 0.0, total=said.total, text=clean(said.text)[:60])

        yield show
