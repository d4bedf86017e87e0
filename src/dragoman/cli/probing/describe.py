"""`dragoman describe`: what a far end is and offers, or one of its methods, tools, prompts or resources in detail."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter
from msgspec import Raw

from ...mcp import Client
from ..advice import suggest
from ..calls.methods import description, document_of, show_method, show_methods
from ..exit_status import FINE, Usage
from ..mcp.discover import ServerAbout, about_of, show_server
from ..mcp.listing import KINDS, list_all, show_lists
from ..mcp.mcp_server import MCP_OPTIONS, SERVER_WORDS, McpOptions, plain, server_and_rest
from ..options import OUTPUT, Output
from ..terminal import out
from .either import either

app: App = App(
    name="describe",
    usage="Usage: dragoman describe [OPTIONS] SERVER [NAME]",
    help_epilogue=f"""\
Examples:

  dragoman describe calculator.py
  dragoman describe calculator.py subtract            one method
  dragoman describe weather.py                        an MCP server
  dragoman describe weather.py forecast               one of its tools
  dragoman describe http://127.0.0.1:8000/mcp --json

{SERVER_WORDS}""",
)


@app.default
def describe(
    *words: Annotated[str, Parameter(name="SERVER [NAME]")], options: McpOptions = MCP_OPTIONS, output: Output = OUTPUT
) -> int:
    """Show what a server is and offers, or one of its methods, tools, prompts or resources.

    Parameters
    ----------
    words
        The server, and the name of what to show in detail.
    """
    host, rest = server_and_rest(words, options)
    if len(rest) > 1:
        raise Usage(f"{rest[1]!r} is too much: a server and at most one name")
    name = rest[0] if rest else None
    where = words[0] if words else "it"

    async def run() -> dict[str, Any] | Raw:
        async with either(host, options, "describe") as far:
            return await _of_mcp(far) if isinstance(far, Client) else await description(far, where)

    there = asyncio.run(run())
    if isinstance(there, dict):
        _show_mcp(there, name, output)
    elif name is None:
        show_methods(where, there, output)
    else:
        _show_method(where, there, name, output)
    return FINE


async def _of_mcp(client: Client) -> dict[str, Any]:
    about: dict[str, Any] = msgspec.to_builtins(about_of(client, (await client.discover()).supported_versions))
    about.update(plain(await list_all(client, *KINDS)))
    return about


def _show_method(where: str, raw: Raw, name: str, output: Output) -> None:
    document = document_of(where, raw)
    known = [one.name for one in document.methods]
    if name not in known:
        raise Usage(f"there is no method {name!r}; {suggest(name, known) or 'it has no methods'}")
    if output.json:
        output.write(next(one for one in msgspec.json.decode(raw)["methods"] if one["name"] == name))
    else:
        show_method(next(one for one in document.methods if one.name == name))


def _show_mcp(there: dict[str, Any], name: str | None, output: Output) -> None:
    if name is not None:
        _show_one(there, name, output)
    elif output.json:
        output.write(there, *KINDS)
    else:
        show_server(msgspec.convert({key: there[key] for key in ServerAbout.__struct_fields__}, ServerAbout))
        out.print()
        show_lists({name: there[name] for name in KINDS}, "tools, prompts or resources", headings=True)


def _show_one(there: dict[str, Any], name: str, output: Output) -> None:
    """Show one entry, of any kind."""
    for member, kind in KINDS.items():
        for each in there[member]:
            if name not in (each.get(kind.key), each.get("name")):
                continue
            if output.json:
                output.write(each)
            else:
                kind.show(each)
            return
    known = [str(each[kind.key]) for member, kind in KINDS.items() for each in there[member]]
    raise Usage(f"the server has nothing named {name!r}; {suggest(name, known) or 'it offers nothing'}")
