"""`dragoman prompts` and `dragoman prompt`: list and get the prompts of an MCP server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, Parameter
from rich.text import Text

from ...jsonrpc.errors import RpcError
from ...mcp import Client, GetPromptResult
from ..advice import about_name, list_offered, probing
from ..arguments import NAMED
from ..content import block_text
from ..exit_status import FINE, MissingArgument, Usage, suggest_name
from ..options import OUTPUT, Output
from ..terminal import clean, out
from .listing import list_command
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
    name="prompts",
    usage="Usage: dragoman prompts [OPTIONS] SERVER",
    help_epilogue=f"""\
Examples:

  dragoman prompts http://127.0.0.1:8000/mcp
  dragoman prompts review.py
  dragoman prompts --config review --json

{SERVER_WORDS}""",
)
prompt_app: App = App(
    name="prompt",
    usage="Usage: dragoman prompt [OPTIONS] SERVER NAME [ARGUMENT=TEXT...]",
    help_epilogue=f"""\
Examples:

  dragoman prompt http://127.0.0.1:8000/mcp review language=python
  dragoman prompt review.py review language=python code='print(1)'
  dragoman prompt review language=python -- python review.py

{SERVER_WORDS}

All arguments of prompts are texts.""",
)


@app.default
def prompts(
    *words: Annotated[str, Parameter(name="SERVER")], options: McpOptions = MCP_OPTIONS, output: Output = OUTPUT
) -> int:
    """List the prompts of an MCP server.

    Parameters
    ----------
    words
        The server.
    """
    host = only_server(words, options, "to get a prompt use dragoman prompt")
    return list_command(host, options, output, "prompts")


@prompt_app.default
def prompt(
    *words: Annotated[str, Parameter(name="SERVER NAME [ARGUMENT=TEXT...]")],
    options: McpOptions = MCP_OPTIONS,
    output: Output = OUTPUT,
) -> int:
    """Get a prompt of an MCP server and print its messages.

    Parameters
    ----------
    words
        The server, the prompt's name, and the arguments as name=text.
    """
    host, rest = server_and_rest(words, options)
    if not rest:
        raise MissingArgument(f"say which prompt: dragoman prompts {as_written(words, options)} lists them")
    given = texts(rest[1:])
    result = with_client(host, options, rest[0], lambda client, _: _get(client, rest[0], given))
    if output.json:
        output.write({"result": plain(result)})
        return FINE
    for message in plain(result).get("messages", []):
        role = clean(str(message.get("role", "")))
        out.print(Text.assemble((f"{role}: ", "bold"), block_text(message.get("content", {}))), soft_wrap=True)
    return FINE


def texts(words: Sequence[str]) -> dict[str, str]:
    """`name=text` arguments by name. Raises Usage for a mistake."""
    given: dict[str, str] = {}
    for word in words:
        match = NAMED.fullmatch(word)
        if match is None:
            raise Usage(f"{word!r}: write the arguments by name, as in language=python")
        if match[1] in given:
            raise Usage(f"the argument {match[1]!r} is given twice")
        given[match[1]] = match[2]
    return given


async def _get(client: Client, name: str, arguments: dict[str, str]) -> GetPromptResult:
    known = {one.name: plain(one) for one in await list_offered(client.list_prompts())}
    allowed = [argument["name"] for argument in known.get(name, {}).get("arguments", [])]
    for given in arguments:
        if name in known and given not in allowed:
            there = suggest_name(given, allowed, f"it takes {', '.join(allowed) or 'none'}")
            raise Usage(f"{name} has no argument {given!r}; {there}")
    try:
        return await client.get_prompt(name, arguments)
    except RpcError as error:
        async with probing():
            about_name(error, "prompt", name, known, await list_others(client, "prompt"))
        raise
