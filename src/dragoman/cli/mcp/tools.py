"""`dragoman tools` and `dragoman tool`: list and call the tools of an MCP server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter

from ...jsonrpc.errors import RpcError
from ...mcp import CallToolResult, Client, Tool
from ..advice import about_name, list_offered, probing, suggest
from ..arguments import params_of
from ..content import show_tool_result
from ..exit_status import FINE, MissingArgument, Usage
from ..fields import arguments_of
from ..options import OUTPUT, Output
from ..progress import Bar
from .listing import KINDS, list_command
from .mcp_server import (
    MCP_OPTIONS,
    SERVER_WORDS,
    McpOptions,
    as_written,
    list_or_empty,
    list_others,
    plain,
    server_and_rest,
    with_client,
)
from .tasks import begin

app: App = App(
    name="tools",
    usage="Usage: dragoman tools [OPTIONS] SERVER [NAME]",
    help_epilogue=f"""\
Examples:

  dragoman tools http://127.0.0.1:8000/mcp
  dragoman tools weather.py
  dragoman tools weather.py forecast              one tool in detail
  dragoman tools 'npx -y @modelcontextprotocol/server-everything'
  dragoman tools -- npx -y @modelcontextprotocol/server-everything
  dragoman tools --config weather                 from mcp.json
  dragoman tools weather.py --json | jq '.tools[].name'

{SERVER_WORDS}""",
)
tool_app: App = App(
    name="tool",
    usage="Usage: dragoman tool [OPTIONS] SERVER NAME [ARGUMENT=VALUE...]",
    help_epilogue=f"""\
Examples:

  dragoman tool http://127.0.0.1:8000/mcp forecast city=Beijing
  dragoman tool weather.py forecast city=Beijing country=CN
  dragoman tool weather.py forecast --arguments '{{"city": "Beijing"}}'
  dragoman tool forecast city=Beijing --config weather
  dragoman tool forecast city=Beijing -- python weather.py
  dragoman tool shop.py order item=tea count=3 'tags=["hot"]' gift=yes
  dragoman tool shop.py order item=tea --answer confirm=yes
  dragoman tool lab.py train rows=3 --task            print the task's id
  dragoman tool lab.py train rows=3 --task --wait     and wait for its result

{SERVER_WORDS}

A value is typed by the tool's own schema: strings are taken as they are,
everything else is JSON. Questions of the server are answered at the terminal
or by --answer; where there is neither they are declined.

Exit status: 0 success, 1 the tool failed or the server answered with an error,
2 wrong usage, 3 no connection or no answer in time.""",
)

Whole = Annotated[str | None, Parameter(metavar="JSON", allow_leading_hyphen=True, show_default=False)]


@app.default
def tools(
    *words: Annotated[str, Parameter(name="SERVER [NAME]")], options: McpOptions = MCP_OPTIONS, output: Output = OUTPUT
) -> int:
    """List the tools of an MCP server, or show one of them in detail.

    Parameters
    ----------
    words
        The server, and the name of a tool to show in detail.
    """
    host, rest = server_and_rest(words, options)
    if len(rest) > 1:
        raise Usage(f"{rest[1]!r} is too much: a server and at most one tool")
    if not rest:
        return list_command(host, options, output, "tools")
    there = with_client(host, options, "tools", lambda client, _: list_or_empty(client.list_tools()))
    there = [tool for tool in there if tool.name == rest[0]] or _raise_unknown(rest[0], there)
    if output.json:
        output.write({"tools": there}, "tools")
    else:
        KINDS["tools"].show(plain(there[0]))
    return FINE


def _raise_unknown(name: str, there: Sequence[Tool]) -> list[Tool]:
    raise Usage(f"the server has no tool {name!r}; {suggest(name, [tool.name for tool in there]) or 'it has no tools'}")


@tool_app.default
def tool(
    *words: Annotated[str, Parameter(name="SERVER NAME [ARGUMENT=VALUE...]")],
    arguments: Whole = None,
    task: bool = False,
    wait: bool = False,
    options: McpOptions = MCP_OPTIONS,
    output: Output = OUTPUT,
) -> int:
    """Call a tool of an MCP server and print its result.

    Parameters
    ----------
    words
        The server, the tool's name, and the arguments as name=value.
    arguments
        All arguments at once: JSON, @FILE, or - for stdin.
    task
        Print the id of the task that the call becomes, and end; dragoman tasks has the rest.
    wait
        With --task: say the id on stderr, wait for the result, and print that; Ctrl-C lets the task go on.
    """
    host, rest = server_and_rest(words, options)
    if not rest:
        raise MissingArgument(f"say which tool: dragoman tools {as_written(words, options)} lists them")
    if wait and not task:
        raise Usage("--wait needs --task: without it the result is waited for anyway")
    name, given = rest[0], (rest[1:], arguments)

    async def work(client: Client, bar: Bar) -> CallToolResult | None:
        async with _named(client, name, given) as typed:
            if task:
                return await begin(client, bar, host, name, typed, wait=wait, output=output)
            return await client.call_tool(name, typed, on_progress=lambda said: bar.show(plain(said)))

    result = with_client(host, options, name, work)
    return FINE if result is None else show_tool_result(plain(result), output)


@asynccontextmanager
async def _named(client: Client, name: str, given: tuple[Sequence[str], str | None]) -> AsyncIterator[dict[str, Any]]:
    """The arguments of a tool, typed by its schema; an error of its call gets advice, if it is about the name."""
    there = {tool.name: tool for tool in await list_offered(client.list_tools())}
    typed = _typed_arguments(there, name, *given, "--arguments")
    try:
        yield typed
    except RpcError as error:
        async with probing():
            about_name(error, "tool", name, there, await list_others(client, "tool"))
        raise


def _typed_arguments(
    there: Mapping[str, Tool], name: str, words: Sequence[str], whole: str | None, option: str
) -> dict[str, Any]:
    if whole is None:
        return arguments_of(words, plain(there[name].input_schema) if name in there else {}, name)
    given = msgspec.json.decode(params_of(words, whole, option) or b"{}")
    if not isinstance(given, dict):
        raise Usage(f"{option}: write an object, the arguments by name")
    return given


async def arguments_for(client: Client, name: str, words: Sequence[str], whole: str | None) -> dict[str, Any]:
    """The arguments of a tool that a command line gives, typed by the tool's schema. Raises Usage, also for a tool that
    is not there."""
    there = {tool.name: tool for tool in await list_or_empty(client.list_tools())}
    if name not in there:
        _raise_unknown(name, [*there.values()])
    return _typed_arguments(there, name, words, whole, "--params")
