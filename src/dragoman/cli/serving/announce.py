"""Prints what `dragoman serve` serves once it listens: name, URLs, and a command line to try."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET
from rich.text import Text

from ...channel import Caller
from ...console import read_listed
from ...mcp.protocol.revisions import NEWEST
from ...net.scheme import SCHEMES
from ...net.urls import scheme_of
from ...rpc.method import Method
from ...rpc.service import Service
from ...system.words import join_command
from ..fields import resolve_schema
from ..lines import is_json, is_logged, json_line, tell
from ..options import Output
from ..target import Target
from ..terminal import clean, compact, count_of, err, out

if TYPE_CHECKING:
    from ...mcp import Server

Kind: TypeAlias = Literal["tools", "resources", "templates", "prompts"]
KINDS: tuple[tuple[Kind, str], ...] = (
    ("tools", "tool"),
    ("resources", "resource"),
    ("templates", "resource template"),
    ("prompts", "prompt"),
)
MEMBERS = {"templates": "resourceTemplates"}
"""The member of a result that has the list, if it has not the list's own name."""


def as_mcp(served: Target) -> Server | None:
    """The MCP server that is served; None for other objects, without importing MCP for them."""
    module = sys.modules.get("dragoman.mcp.server.server")
    return served if module is not None and isinstance(served, module.Server) else None


def announce(
    served: Target,
    urls: Sequence[str],
    *,
    on_stdio: bool,
    output: Output,
    pages: Sequence[str] = (),
    pid: int | None = None,
) -> None:
    """Print the URLs, a command line to try and the URLs of the page; on stderr when stdout is the wire. Where the log
    is JSON lines, this is one; where only warnings are logged, it is not. `pid`: the process that takes signals; None:
    this one."""
    console = err if on_stdio else out
    facts = {"service": served.name, "urls": urls, "pid": pid or os.getpid()} | ({"pages": pages} if pages else {})
    if output.json:
        print(compact(facts), file=console.file, flush=True)
        return
    if not is_logged("info"):
        return
    if is_json():
        print(json_line("info", "serving", facts), end="", file=console.file, flush=True)
        return
    title = Text.assemble((clean(served.name), "bold"))
    if words := _about(served):
        title.append(f" {clean(words)}", "dim")
    console.print(title)
    for url in urls:
        console.print(Text.assemble("  ", (clean(url), "cyan")), soft_wrap=True)
    reachable = [url for url in urls if not SCHEMES[scheme_of(url)].alone]
    line = _line(served, reachable[0]) if reachable else None
    if line is not None:
        console.print(Text.assemble(("try  ", "dim"), clean(line)), soft_wrap=True)
    for page in pages:
        console.print(Text.assemble(("docs ", "dim"), (clean(page), "cyan")), soft_wrap=True)
    console.file.flush()


def announce_console(url: str) -> None:
    """Print where the console is, on stderr. Its secret is shown to a person at a terminal, and kept out of logs."""
    if sys.stderr.isatty() and not is_json():
        tell(f"console at {url}", "info", always=True)
    else:
        found = any(one.url == url for one in read_listed())  # else a warning has said why not
        how = "; dragoman console prints its URL with the secret" if found else ""
        tell(f"console at {url.partition('#')[0]}{how}", "info")


def _about(served: Target) -> str:
    """Version and contents: `1.0.0, 2 methods`."""
    if isinstance(served, Service):
        return f"{served.version}, {count_of(len(served.methods), 'method')}"
    if (server := as_mcp(served)) is not None:
        counts = [count_of(len(found), name) for kind, name in KINDS if (found := listed(server, kind))]
        return ", ".join([server.version, *counts])
    return ""


def listed(server: Server, kind: Kind) -> list[dict[str, Any]]:
    """All that a server lists, in the newest revision."""
    found: list[dict[str, Any]] = []
    cursor: Any = UNSET
    while True:
        page = msgspec.json.decode(server.__servable__().catalog.page(kind, NEWEST, Caller(), cursor))
        found += page[MEMBERS.get(kind, kind)]
        if (cursor := page.get("nextCursor", UNSET)) is UNSET:
            return found


def _line(served: Target, url: str) -> str | None:
    """A command line to try."""
    if isinstance(served, Service):
        return line_to_try(served, url) if served.methods else None
    if (server := as_mcp(served)) is not None:
        return tool_to_try(listed(server, "tools"), url)
    return None


def line_to_try(service: Service, url: str) -> str:
    """A command line that calls a method of `service` with arguments of the right types: the first method with plain
    arguments."""
    lines = [_words(method) for method in service.methods.values()]
    plain = [words for words in lines if words is not None and len(words) > 1]
    words = next(iter(plain or [words for words in lines if words is not None]), ["rpc.discover"])
    return join_command(["dragoman", "call", url, *words])


def tool_to_try(tools: Sequence[Mapping[str, Any]], url: str) -> str:
    """A command line that calls the first tool with plain arguments; if there is none, one that lists all tools."""
    for tool in tools:
        schema = resolve_schema(tool.get("inputSchema"), tool.get("inputSchema"))
        properties = schema.get("properties", {})
        needed = {name: sample(resolve_schema(properties.get(name), schema)) for name in schema.get("required", [])}
        if None not in needed.values():
            words = [f"{name}={value.strip(chr(34)) if value else value}" for name, value in needed.items()]
            return join_command(["dragoman", "tool", url, tool["name"], *words])
    return join_command(["dragoman", "tools", url])


def _words(method: Method) -> list[str] | None:
    """A method's name and a sample of each required argument; None if a plain value does not fit."""
    needed = [p for p in method.signature.parameters if p.required and p.kind in ("positional", "either", "named")]
    samples = [sample(p.schema) for p in needed]
    by_name = len(needed) > 2 or any(p.kind == "named" for p in needed)
    words = [method.name]
    for parameter, word in zip(needed, samples, strict=True):
        if word is None or (by_name and parameter.kind == "positional"):
            return None
        words.append(f"{parameter.name}={word}" if by_name else word)
    return words


SAMPLES = {
    "integer": "1",
    "number": "1.5",
    "string": "text",
    "boolean": "true",
    "array": "[]",
    "object": "{}",
    "null": "null",
}


def sample(schema: dict[str, Any]) -> str | None:
    """An argument that is a value of a schema; None if the schema is not plain."""
    if schema.get("enum"):
        return msgspec.json.encode(schema["enum"][0]).decode()
    kind = schema.get("type")
    bounds = ("minimum", "exclusiveMinimum", "multipleOf", "pattern", "minLength", "format", "minItems", "required")
    if not isinstance(kind, str) or any(bound in schema for bound in bounds):
        return None
    return SAMPLES.get(kind)
