"""`dragoman resources` and `dragoman read`: list and read the resources of an MCP server."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.text import Text

from ..mcp import Client, Resource, ResourceTemplate
from .content import blob_of, contents_text, first_line, show_about
from .ends import FINE, Usage
from .mcp_server import MCP_OPTIONS, SERVER_WORDS, McpOptions, asked, found, plain
from .options import OUTPUT, Output
from .progress import Bar
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

Templates contain {{names}}: replace them with values and read that URI.""",
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

Text is printed; binary content is written to a file or a pipe, but not to a
terminal.""",
)


@app.default
def resources(
    *words: Annotated[str, Parameter(name="SERVER")], options: McpOptions = MCP_OPTIONS, output: Output = OUTPUT
) -> int:
    """List the resources of an MCP server, then its resource templates.

    Parameters
    ----------
    words
        The server.
    """
    host, rest = found(words, options)
    if rest:
        raise Usage(f"{rest[0]!r} is too much: to read a resource use dragoman read")
    listed, templates = asked(host, options, "resources", _list)
    if output.json:
        print(compact({"resources": listed, "resourceTemplates": templates}))
    else:
        _show([plain(one) for one in [*listed, *templates]])
    return FINE


@read_app.default
def read(
    *words: Annotated[str, Parameter(name="SERVER URI")], options: McpOptions = MCP_OPTIONS, output: Output = OUTPUT
) -> int:
    """Read a resource of an MCP server and print it.

    Parameters
    ----------
    words
        The server, and the resource's URI.
    """
    host, rest = found(words, options)
    if len(rest) != 1:
        raise Usage("say which resource, by its URI: dragoman resources lists them")
    result = asked(host, options, rest[0], lambda client, _: client.read_resource(rest[0]))
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


async def _list(client: Client, bar: Bar) -> tuple[list[Resource], list[ResourceTemplate]]:
    return await client.list_resources(), await client.list_resource_templates()


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
