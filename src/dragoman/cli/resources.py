"""`dragoman resources` and `dragoman read`: what an MCP server lets be read, and reading it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from cyclopts import App
from rich.text import Text

from ..mcp import ReadResourceResult, Resource, ResourceTemplate
from .content import blob_of, contents_text, first_line, show_about
from .ends import FINE, Usage
from .far import FAR, SERVER_WORDS, Far, found, plain, server_at
from .options import OUTPUT, Output
from .serving.hosts import Host
from .terminal import clean, compact, err, out

app = App(
    name="resources",
    usage="Usage: dragoman resources [OPTIONS] SERVER",
    help_epilogue=f"""\
Examples:

  dragoman resources http://127.0.0.1:8000/mcp
  dragoman resources files.py
  dragoman resources --config files --json | jq '.resources[].uri'

{SERVER_WORDS}

Templates have {{names}} in them: put values there and read that.""",
)
read_app = App(
    name="read",
    usage="Usage: dragoman read [OPTIONS] SERVER URI",
    help_epilogue=f"""\
Examples:

  dragoman read http://127.0.0.1:8000/mcp config://app
  dragoman read files.py file:///notes/today.txt
  dragoman read files.py file:///logo.png > logo.png
  dragoman read config://app -- python server.py

{SERVER_WORDS}

Text is printed; what is binary is written only to where it can go: a file or
a pipe, not a terminal.""",
)


@app.default
def resources(*words: str, far: Far = FAR, output: Output = OUTPUT) -> int:
    """List the resources of an MCP server, and the templates of more.

    Parameters
    ----------
    words
        The server.
    """
    host, rest = found(words, far)
    if rest:
        raise Usage(f"{rest[0]!r} is too much: to read a resource it is dragoman read")
    listed, templates = asyncio.run(_list(host, far))
    if output.json:
        print(compact({"resources": listed, "resourceTemplates": templates}))
    else:
        _show([plain(one) for one in [*listed, *templates]])
    return FINE


@read_app.default
def read(*words: str, far: Far = FAR, output: Output = OUTPUT) -> int:
    """Read a resource of an MCP server and print it.

    Parameters
    ----------
    words
        The server, and the resource's URI.
    """
    host, rest = found(words, far)
    if len(rest) != 1:
        raise Usage("say which resource, by its URI: dragoman resources lists those there are")
    result = asyncio.run(_read(host, far, rest[0]))
    if output.json:
        print(compact({"result": result}))
        return FINE
    for contents in plain(result).get("contents", []):
        blob = blob_of(contents)
        if blob is None or out.is_terminal:
            out.print(
                Text(contents_text(contents)),
                soft_wrap=True,
                end="" if str(contents.get("text", "")).endswith("\n") else "\n",
            )
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(blob)
    return FINE


async def _list(host: Host, far: Far) -> tuple[list[Resource], list[ResourceTemplate]]:
    async with server_at(host, far, "resources") as (client, _):
        return list(await client.list_resources()), list(await client.list_resource_templates())


async def _read(host: Host, far: Far, uri: str) -> ReadResourceResult:
    async with server_at(host, far, uri) as (client, _):
        return await client.read_resource(uri)


def _show(listed: Sequence[Mapping[str, Any]]) -> None:
    for each in listed:
        uri = str(each.get("uri") or each.get("uriTemplate", ""))
        name, kind = str(each.get("title") or each.get("name", "")), str(each.get("mimeType") or "")
        about = first_line(each.get("description"))
        if not out.is_terminal:
            print(clean(uri), clean(name), clean(kind), clean(about), sep="\t")
            continue
        out.print(
            Text.assemble((clean(uri), "cyan"), f"  {clean(name)}", (f"  {clean(kind)}" if kind else "", "dim")),
            soft_wrap=True,
        )
        show_about(clean(about))
    if not listed and out.is_terminal:
        err.print(Text("the server has no resources", "dim"))
