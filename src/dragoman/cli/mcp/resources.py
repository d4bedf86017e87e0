"""`dragoman resources` and `dragoman read`: list and read the resources of an MCP server."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.text import Text

from ...jsonrpc.errors import RpcError
from ...mcp import Client, ReadResourceResult, Resource, ResourceTemplate
from ..advice import about_name, probing
from ..content import blob_of, contents_text, first_line, show_about, show_row
from ..ends import FINE, Usage
from ..options import OUTPUT, Output
from ..progress import Bar
from ..terminal import clean, err, out
from .mcp_server import MCP_OPTIONS, SERVER_WORDS, McpOptions, asked, found, listed, only, others, plain

app: App = App(
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
read_app: App = App(
    name="read",
    usage="Usage: dragoman read [OPTIONS] SERVER URI",
    help_epilogue=f"""\
Examples:

  dragoman read http://127.0.0.1:8000/mcp config://app
  dragoman read files.py file:///notes/today.txt
  dragoman read files.py file:///logo.png > logo.png
  dragoman read config://app -- python weather.py

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
    host = only(words, options, "to read a resource use dragoman read")
    there, templates = asked(host, options, "resources", _list)
    if output.json:
        output.write({"resources": there, "resourceTemplates": templates}, "resources", "resourceTemplates")
    else:
        show_resources([plain(one) for one in [*there, *templates]])
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
    result = asked(host, options, rest[0], lambda client, _: _read(client, rest[0]))
    if output.json:
        output.write({"result": result})
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


async def _read(client: Client, uri: str) -> ReadResourceResult:
    try:
        return await client.read_resource(uri)
    except RpcError as error:
        async with probing():
            there, templates = await _list(client, None)
            known = [str(one.uri) for one in there] + [one.uri_template for one in templates]
            about_name(error, "resource", uri, known, await others(client, "resource"))
        raise


async def _list(client: Client, bar: Bar | None) -> tuple[list[Resource], list[ResourceTemplate]]:
    return await listed(client.list_resources()), await listed(client.list_resource_templates())


def show_resources(there: Sequence[Mapping[str, Any]]) -> None:
    """Resources and templates, an entry each."""
    for each in there:
        uri = str(each.get("uri") or each.get("uriTemplate", ""))
        name, kind = str(each.get("title") or each.get("name", "")), str(each.get("mimeType") or "")
        about = first_line(each.get("description"))
        if not out.is_terminal:
            show_row(uri, name, kind, about)
            continue
        out.print(
            Text.assemble((clean(uri), "cyan"), f"  {clean(name)}", (f"  {clean(kind)}" if kind else "", "dim")),
            soft_wrap=True,
        )
        show_about(clean(about))
    if not there:
        err.print(Text("the server has no resources", "dim"))
