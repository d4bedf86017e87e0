"""`dragoman call` and `dragoman notify`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, Parameter
from msgspec import Raw, UnsetType

from ...jsonrpc.errors import InvalidParams, MethodNotFound
from ..advice import about_method
from ..arguments import about_dotted, params_of
from ..exit_status import FINE
from ..options import LINK, OUTPUT, WIRE, LinkOptions, Output, WireOptions
from ..progress import Bar
from ..reach import connect_peer
from ..terminal import err, escape_json, show_json

ABOUT_WORDS = """\
An argument that is JSON is that value, any other is text; name=value gives
arguments by name. Text that looks like JSON or has a "=" in it is quoted as
JSON, inside the shell's quotes: '"42"' or '"a=b"'."""

app: App = App(
    name="call",
    usage="Usage: dragoman call [OPTIONS] URL METHOD [ARGUMENT...]",
    help_epilogue=f"""\
Examples:

  dragoman call http://127.0.0.1:8000 subtract 42 23
  dragoman call tcp://127.0.0.1:9000 subtract minuend=42 subtrahend=23
  dragoman call unix:calc.sock sum 1 2.5 -3
  dragoman call ws://127.0.0.1:8001 greet name=Ada 'tags=["x", "y"]'
  dragoman call https://example.org/rpc report --params @report.json
  dragoman call redis://127.0.0.1/calculator subtract 42 23
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
notify_app: App = App(
    name="notify",
    usage="Usage: dragoman notify [OPTIONS] URL METHOD [ARGUMENT...]",
    help_epilogue=f"""\
Examples:

  dragoman notify tcp://127.0.0.1:9000 update 1 2 3
  dragoman notify http://127.0.0.1:8000 moved x=1 y=2
  dragoman notify udp://127.0.0.1:9001 tick

{ABOUT_WORDS}

Exit status 0 says that the message was sent, not that anyone received it.""",
)

Params = Annotated[str | None, Parameter(metavar="JSON", allow_leading_hyphen=True, show_default=False)]


@app.default
def call(
    url: str,
    method: str,
    /,
    *args: Annotated[str, Parameter(name="ARGUMENT")],
    params: Params = None,
    link: LinkOptions = LINK,
    wire: WireOptions = WIRE,
    output: Output = OUTPUT,
) -> int:
    """Call a method and print its result as JSON.

    Parameters
    ----------
    url
        The server's URL (http, https, ws, wss, tcp, tls, unix, udp, amqp, mqtt, nats or redis), or a command to start.
    method
        The method's name.
    args
        The arguments, by position or as name=value.
    params
        All params at once: JSON, @FILE, or - for stdin.
    """
    given = params_of(args, params)
    result = asyncio.run(_call(url, method, given, link, wire, args))
    if output.json:
        print(f'{{"result":{escape_json(bytes(result).decode())}}}')
    else:
        show_json(bytes(result))
    return FINE


@notify_app.default
def notify(
    url: str,
    method: str,
    /,
    *args: Annotated[str, Parameter(name="ARGUMENT")],
    params: Params = None,
    link: LinkOptions = LINK,
    wire: WireOptions = WIRE,
    output: Output = OUTPUT,
) -> int:
    """Send a notification, which has no answer.

    Parameters
    ----------
    url
        The server's URL (http, https, ws, wss, tcp, tls, unix, udp, amqp, mqtt, nats or redis), or a command to start.
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


async def _call(
    url: str, method: str, params: Raw | UnsetType, link: LinkOptions, wire: WireOptions, words: Sequence[str] = ()
) -> Raw:
    async with connect_peer(url, link, wire) as peer:
        with Bar(method) as bar:
            try:
                return await peer.call(method, params, result=Raw, on_progress=bar.show if err.is_interactive else None)
            except MethodNotFound as error:
                await about_method(error, peer, url, method)
                raise
            except InvalidParams as error:
                about_dotted(error, words)
                raise


async def _notify(url: str, method: str, params: Raw | UnsetType, link: LinkOptions, wire: WireOptions) -> None:
    async with connect_peer(url, link, wire) as peer:
        await peer.notify(method, params)
