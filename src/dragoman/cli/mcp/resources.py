"""`dragoman resources` and `dragoman read`: list and read the resources of an MCP server."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import App, Parameter
from rich.text import Text

from ...jsonrpc.errors import LocalError, RpcError
from ...mcp import Client, ReadResourceResult
from ...mcp.protocol.uri import normal
from ...mcp.protocol.uri_template import is_template, parse
from ..advice import about_name, probing
from ..content import blob_of, contents_text
from ..exit_status import FINE, MissingArgument
from ..options import OUTPUT, Output
from ..terminal import out
from .listing import KINDS, list_all, list_command
from .mcp_server import (
    MCP_OPTIONS,
    SERVER_WORDS,
    McpOptions,
    as_written,
    list_others,
    only_server,
    plain,
    server_and_rest,
    with_client,
)

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
    host = only_server(words, options, "to read a resource use dragoman read")
    return list_command(host, options, output, "resources", "resourceTemplates")


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
    host, rest = server_and_rest(words, options)
    if len(rest) != 1:
        raise MissingArgument(
            f"say which resource, by its URI: dragoman resources {as_written(words, options)} lists them"
        )
    result = with_client(host, options, rest[0], lambda client, _: _read(client, rest[0]))
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
            lists = plain(await list_all(client, "resources", "resourceTemplates"))
            known = [each[KINDS[name].key] for name, entries in lists.items() for each in entries]
            if not any(_has(template, uri) for template in known):  # else its function says what is wrong
                about_name(error, "resource", uri, known, await list_others(client, "resource"))
        raise


def _has(template: str, uri: str) -> bool:
    """Whether a URI is one of a template's; False for a text that is no template that we know."""
    try:
        return is_template(template) and parse(template).match(normal(uri)) is not None
    except LocalError:
        return False
