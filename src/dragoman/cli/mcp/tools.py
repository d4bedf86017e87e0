"""`dragoman tools` and `dragoman tool`: list and call the tools of an MCP server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter
from rich.text import Text

from ...jsonrpc.errors import RpcError
from ...mcp import CallToolResult, Client, Tool
from ..advice import about_name, near, offered, probing
from ..arguments import params_of
from ..calls.methods import kind
from ..content import LEFT_OUT, about, block_text, show_detail, show_result, show_signatures
from ..ends import ANSWERED_WITH_ERROR, FINE, Usage
from ..fields import arguments_of, resolved
from ..options import OUTPUT, Output
from ..progress import Bar
from ..terminal import clean, compact, err, out
from .mcp_server import MCP_OPTIONS, SERVER_WORDS, McpOptions, asked, found, listed, others, plain

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
    host, rest = found(words, options)
    if len(rest) > 1:
        raise Usage(f"{rest[1]!r} is too much: a server and at most one tool")
    there = asked(host, options, "tools", lambda client, _: listed(client.list_tools()))
    if rest:
        there = [tool for tool in there if tool.name == rest[0]] or _nothing(rest[0], there)
    if output.json:
        output.write({"tools": there}, "tools")
    elif rest:
        show_tool(plain(there[0]))
    else:
        show_signatures([(signature(each), about(each)) for each in plain(there)], "tools")
    return FINE


def _nothing(name: str, there: Sequence[Tool]) -> list[Tool]:
    raise Usage(f"the server has no tool {name!r}; {near(name, [tool.name for tool in there]) or 'it has no tools'}")


@tool_app.default
def tool(
    *words: Annotated[str, Parameter(name="SERVER NAME [ARGUMENT=VALUE...]")],
    arguments: Whole = None,
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
    """
    host, rest = found(words, options)
    if not rest:
        raise Usage("say which tool: dragoman tools lists them")
    result = asked(host, options, rest[0], lambda client, bar: _call(client, bar, rest[0], rest[1:], arguments))
    if output.json:
        output.write({"result": result})
    else:
        shown = plain(result)
        if result.is_error is True:
            _show_failure(shown)
        else:
            show_result(shown)
    return ANSWERED_WITH_ERROR if result.is_error is True else FINE


async def _call(client: Client, bar: Bar, name: str, words: Sequence[str], whole: str | None) -> CallToolResult:
    there = {tool.name: tool for tool in await offered(client.list_tools())}
    given = _given(there, name, words, whole, "--arguments")
    try:
        return await client.call_tool(name, given, on_progress=lambda said: bar.show(plain(said)))
    except RpcError as error:
        async with probing():
            about_name(error, "tool", name, there, await others(client, "tool"))
        raise


def _given(
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
    there = {tool.name: tool for tool in await listed(client.list_tools())}
    if name not in there:
        _nothing(name, [*there.values()])
    return _given(there, name, words, whole, "--params")


# -- what is shown --------------------------------------------------------------------------------


def signature(each: Mapping[str, Any]) -> str:
    """A tool in one line: `forecast(city: string, country?: string) -> Forecast`."""
    schema = each.get("inputSchema", {})
    words = [f"{name}{'' if needed else '?'}: {what}" for name, what, needed, _ in parameters(schema)]
    answer = each.get("outputSchema")
    return f"{each.get('name')}({', '.join(words)})" + (f" -> {_answer(answer)}" if isinstance(answer, dict) else "")


def _answer(schema: dict[str, Any]) -> str:
    """The result of a tool in a word: the title of its schema if it has one."""
    title = schema.get("title")
    shape = resolved(schema, schema)
    members = shape.get("properties")
    if isinstance(members, dict) and list(members) == ["result"]:
        return kind(members["result"])
    return title if isinstance(title, str) else kind(schema if "$ref" in schema else shape)


def parameters(schema: Any) -> list[tuple[str, str, bool, Mapping[str, Any]]]:
    """The arguments that a schema describes: name, type in a word, whether it is required, and its own schema."""
    shape = resolved(schema, schema)
    required, properties = shape.get("required"), shape.get("properties")
    if not isinstance(properties, dict):
        return []
    if not isinstance(required, list):
        required = []
    return [(name, kind(one), name in required, resolved(one, schema)) for name, one in properties.items()]


def show_tool(each: Mapping[str, Any]) -> None:
    """One tool in detail."""
    arguments = []
    for name, what, needed, schema in parameters(each.get("inputSchema", {})):
        default = f", default {compact(schema['default'])}" if "default" in schema else ""
        arguments.append((name, what, default or ("" if needed else LEFT_OUT), schema.get("description")))
    show_detail(signature(each), each.get("description"), arguments)
    hints = [name for name, value in (each.get("annotations") or {}).items() if value is True]
    if hints:
        out.print(Text(clean(f"  hints: {', '.join(hints)}"), "dim"), soft_wrap=True)


def _show_failure(result: Mapping[str, Any]) -> None:
    """Print the text of a failed tool on stderr."""
    text = "\n".join(block_text(block) for block in result.get("content", []))
    err.print(Text.assemble(("tool error  ", "bold red"), text or "it gives no reason"), soft_wrap=True)
