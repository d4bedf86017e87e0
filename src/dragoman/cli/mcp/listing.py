"""Lists what MCP servers offer: tools, prompts, resources and templates. Each kind is a row of `KINDS`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from ...mcp import Client
from ..calls.methods import kind
from ..content import LEFT_OUT, EntryRow, first_line, show_detail, show_entries, signature_row
from ..exit_status import FINE
from ..fields import resolve_schema
from ..options import Output
from ..serving.hosts import HostServer
from ..terminal import compact, out, show
from .mcp_server import McpOptions, list_or_empty, plain, with_client


async def list_all(client: Client, *names: str) -> dict[str, list[Any]]:
    """Return the entries of these kinds, by kind; none of a kind that the server does not know."""
    return {name: await list_or_empty(KINDS[name].list_all(client)) for name in names}


def list_command(host: HostServer, options: McpOptions, output: Output, *names: str) -> int:
    """Run a command that lists these kinds of entries."""
    lists = with_client(host, options, names[0], lambda client, _: list_all(client, *names))
    if output.json:
        output.write(lists, *names)
    else:
        show_lists(plain(lists), names[0], headings=out.is_terminal)
    return FINE


def show_lists(lists: Mapping[str, Sequence[Mapping[str, Any]]], what: str, *, headings: bool) -> None:
    """Show entries, those of each kind below its heading, or that the server has none; `what` names them."""
    filled = {name: entries for name, entries in lists.items() if entries}
    for at, (name, entries) in enumerate(filled.items()):
        if at and headings:
            out.print()
        show_entries([KINDS[name].row(each) for each in entries], what, KINDS[name].title if headings else "")
    if not filled:
        show_entries([], what)


def tool_signature(each: Mapping[str, Any]) -> str:
    """A tool in one line: `forecast(city: string, country?: string) -> Forecast`."""
    schema = each.get("inputSchema", {})
    words = [f"{name}{'' if needed else '?'}: {what}" for name, what, needed, _ in parameters(schema)]
    answer = each.get("outputSchema")
    return f"{each.get('name')}({', '.join(words)})" + (f" -> {_answer(answer)}" if isinstance(answer, dict) else "")


def _answer(schema: dict[str, Any]) -> str:
    """The result of a tool in a word: the title of its schema if it has one."""
    title = schema.get("title")
    shape = resolve_schema(schema, schema)
    members = shape.get("properties")
    if isinstance(members, dict) and list(members) == ["result"]:
        return kind(members["result"])
    return title if isinstance(title, str) else kind(schema if "$ref" in schema else shape)


def parameters(schema: Any) -> list[tuple[str, str, bool, Mapping[str, Any]]]:
    """The arguments that a schema describes: name, type in a word, whether it is required, and its own schema."""
    shape = resolve_schema(schema, schema)
    required, properties = shape.get("required"), shape.get("properties")
    if not isinstance(properties, dict):
        return []
    if not isinstance(required, list):
        required = []
    return [(name, kind(one), name in required, resolve_schema(one, schema)) for name, one in properties.items()]


def argument_rows(schema: Any) -> list[tuple[str, str, str, object]]:
    """The arguments that a schema describes, for `show_detail`."""
    rows = []
    for name, what, needed, one in parameters(schema):
        default = f", default {compact(one['default'])}" if "default" in one else ""
        rows.append((name, what, default or ("" if needed else LEFT_OUT), one.get("description")))
    return rows


def _show_tool(each: Mapping[str, Any]) -> None:
    show_detail(tool_signature(each), each.get("description"), argument_rows(each.get("inputSchema", {})))
    hints = [name for name, value in (each.get("annotations") or {}).items() if value is True]
    if hints:
        show(f"hints: {', '.join(hints)}", "dim", indent=2)


def _prompt_signature(each: Mapping[str, Any]) -> str:
    """A prompt in one line: `review(language, code?)`."""
    arguments = [f"{one['name']}{'' if one.get('required') else '?'}" for one in each.get("arguments", [])]
    return f"{each.get('name')}({', '.join(arguments)})"


def _show_prompt(each: Mapping[str, Any]) -> None:
    arguments = [
        (one["name"], "", "" if one.get("required") else LEFT_OUT, one.get("description"))
        for one in each.get("arguments", [])
    ]
    show_detail(_prompt_signature(each), each.get("description"), arguments)


def _resource_row(each: Mapping[str, Any]) -> EntryRow:
    name = str(each.get("title") or each.get("name", ""))
    uri, kind = str(each.get("uri") or each.get("uriTemplate", "")), str(each.get("mimeType") or "")
    return EntryRow(uri, "", first_line(each.get("description")), (name, kind))


def _show_resource(each: Mapping[str, Any]) -> None:
    show_entries([_resource_row(each)], "resources")


def _about(each: Mapping[str, Any]) -> str:
    return first_line(each.get("description") or each.get("title"))


class ListedKind(Struct, frozen=True):
    """One kind of entries. `title`: its heading; `key`: the member that identifies an entry; `row`, `show`: an entry in
    a list, in detail."""

    title: str
    key: str
    list_all: Callable[[Client], Awaitable[list[Any]]]
    row: Callable[[Mapping[str, Any]], EntryRow]
    show: Callable[[Mapping[str, Any]], None]


KINDS: Final = {
    "tools": ListedKind(
        "Tools", "name", Client.list_tools, lambda each: signature_row(tool_signature(each), _about(each)), _show_tool
    ),
    "prompts": ListedKind(
        "Prompts",
        "name",
        Client.list_prompts,
        lambda each: signature_row(_prompt_signature(each), _about(each)),
        _show_prompt,
    ),
    "resources": ListedKind("Resources", "uri", Client.list_resources, _resource_row, _show_resource),
    "resourceTemplates": ListedKind(
        "Resource templates", "uriTemplate", Client.list_resource_templates, _resource_row, _show_resource
    ),
}
"""The kinds by the member of a result that has them."""
