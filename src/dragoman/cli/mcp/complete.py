"""`dragoman complete`: asks an MCP server for values of an argument of a prompt or a resource template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.text import Text

from ...jsonrpc.errors import MethodNotFound, RpcError
from ...mcp import Client
from ..advice import suggest
from ..exit_status import FINE, MissingArgument
from ..options import OUTPUT, Output
from ..terminal import clean, err, out
from .mcp_server import MCP_OPTIONS, SERVER_WORDS, McpOptions, list_or_empty, plain, server_and_rest, with_client
from .prompts import texts

app: App = App(
    name="complete",
    usage="Usage: dragoman complete [OPTIONS] SERVER NAME ARGUMENT=BEGINNING [ARGUMENT=TEXT...]",
    help_epilogue=f"""\
Examples:

  dragoman complete review.py review language=py
  dragoman complete review.py review framework=f language=python
  dragoman complete files.py 'file:///{{path}}' path=read --json

NAME is a prompt, or the URI template of a resource. The first argument is
completed; the others are what is known already.

{SERVER_WORDS}""",
)


@app.default
def complete(
    *words: Annotated[str, Parameter(name="SERVER NAME ARGUMENT=BEGINNING")],
    options: McpOptions = MCP_OPTIONS,
    output: Output = OUTPUT,
) -> int:
    """Ask an MCP server to complete an argument.

    Parameters
    ----------
    words
        The server, a prompt or a URI template, and the arguments; the first one is completed.
    """
    host, rest = server_and_rest(words, options)
    if len(rest) < 2:
        raise MissingArgument("say what to complete: a prompt or a URI template, and ARGUMENT=BEGINNING")
    given = texts(rest[1:])
    values = with_client(host, options, rest[0], lambda client, _: _complete(client, rest[0], given))
    if output.json:
        lines = output.output == "ndjson"
        output.write(values if lines else {"completion": values}, "values")
        return FINE
    for value in values["values"]:
        out.print(Text(clean(value)), soft_wrap=True)
    if not values["values"]:
        err.print(Text("the server proposes nothing", "dim"))
    elif values.get("hasMore"):
        err.print(Text(f"and more: {values.get('total', 'it does not say how many')} in all", "dim"))
    return FINE


async def _complete(client: Client, name: str, given: Mapping[str, str]) -> dict[str, Any]:
    argument, value = next(iter(given.items()))
    context = {key: text for key, text in given.items() if key != argument}
    try:
        found: dict[str, Any] = plain(await client.complete(name, argument, value, context or None))
    except MethodNotFound as error:
        error.add_note("the server completes nothing: its capabilities have no completions")
        raise
    except RpcError as error:
        known = [one.name for one in await list_or_empty(client.list_prompts())]
        known += [one.uri_template for one in await list_or_empty(client.list_resource_templates())]
        if name not in known:
            error.add_note(
                f"the server has no prompt and no template {name!r}; {suggest(name, known) or 'it has none'}"
            )
        raise
    return found
