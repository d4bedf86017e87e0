"""`dragoman discover` and `dragoman ping`: describe an MCP server, and find out whether it answers."""

from __future__ import annotations

from time import perf_counter
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter
from msgspec import Struct
from rich.text import Text

from ...mcp import Client
from ..exit_status import FINE
from ..options import OUTPUT, Output
from ..progress import Bar
from ..terminal import clean, out, show
from .mcp_server import MCP_OPTIONS, SERVER_WORDS, McpOptions, only_server, plain, with_client

app: App = App(
    name="discover",
    usage="Usage: dragoman discover [OPTIONS] SERVER",
    help_epilogue=f"""\
Examples:

  dragoman discover http://127.0.0.1:8000/mcp
  dragoman discover weather.py
  dragoman discover --config weather --json

{SERVER_WORDS}""",
)
ping_app: App = App(
    name="ping",
    usage="Usage: dragoman ping [OPTIONS] SERVER",
    help_epilogue=f"""\
Examples:

  dragoman ping http://127.0.0.1:8000/mcp
  dragoman ping weather.py
  dragoman ping --config weather --timeout 2

{SERVER_WORDS}

Revisions without ping get server/discover instead.""",
)


ALONE = "only the server is named here"


class ServerAbout(Struct, frozen=True):
    """How a server describes itself."""

    server: dict[str, Any]
    revision: str
    revisions: list[str]
    capabilities: dict[str, Any]
    instructions: str | None


@app.default
def discover(
    *words: Annotated[str, Parameter(name="SERVER")], options: McpOptions = MCP_OPTIONS, output: Output = OUTPUT
) -> int:
    """Show name, revisions and capabilities of an MCP server.

    Parameters
    ----------
    words
        The server.
    """
    about = with_client(only_server(words, options, ALONE), options, "discover", _discover)
    if output.json:
        output.write(msgspec.to_builtins(about))
    else:
        show_server(about)
    return FINE


@ping_app.default
def ping(
    *words: Annotated[str, Parameter(name="SERVER")], options: McpOptions = MCP_OPTIONS, output: Output = OUTPUT
) -> int:
    """See whether an MCP server answers, and how quickly.

    Parameters
    ----------
    words
        The server.
    """
    about, seconds = with_client(only_server(words, options, ALONE), options, "ping", _ping)
    if output.json:
        output.write({"server": about.server, "revision": about.revision, "ms": round(1000 * seconds, 3)})
    else:
        out.print(Text.assemble(_named(about), f"  {about.revision}  {1000 * seconds:.1f} ms"), soft_wrap=True)
    return FINE


async def _discover(client: Client, bar: Bar) -> ServerAbout:
    return about_of(client, (await client.discover()).supported_versions)


async def _ping(client: Client, bar: Bar) -> tuple[ServerAbout, float]:
    started = perf_counter()
    await client.ping()
    return about_of(client, []), perf_counter() - started


def about_of(client: Client, revisions: list[str]) -> ServerAbout:
    """How the server of a client describes itself; `revisions`: all that it speaks."""
    return ServerAbout(
        plain(client.server) or {},
        client.revision.date,
        revisions or [client.revision.date],
        plain(client.capabilities) or {},
        client.instructions if isinstance(client.instructions, str) else None,
    )


def _named(about: ServerAbout) -> Text:
    name = str(about.server.get("title") or about.server.get("name") or "a server without a name")
    return Text.assemble((clean(name), "bold"), (f" {clean(str(about.server.get('version', '')))}", "dim"))


def show_server(about: ServerAbout) -> None:
    """How a server describes itself."""
    show(_named(about))
    for key in ("description", "websiteUrl"):
        if text := about.server.get(key):
            show(str(text), indent=2, hang=0)
    others = [date for date in about.revisions if date != about.revision]
    more = f", and also {', '.join(others)}" if others else ""
    for label, words in (("speaks", about.revision + more), ("offers", _offers(about.capabilities))):
        show(Text.assemble((label, "dim"), f" {clean(words)}"), indent=2, hang=7)
    if about.instructions:
        out.print()
        show(about.instructions.strip(), indent=2, hang=0)


def _offers(capabilities: dict[str, Any]) -> str:
    """The capabilities as text: `tools (listChanged), logging`."""
    words = []
    for name, value in capabilities.items():
        marks = [key for key, one in value.items() if one not in (False, None)] if isinstance(value, dict) else []
        words.append(name + (f" ({', '.join(marks)})" if marks else ""))
    return ", ".join(words) or "nothing"
