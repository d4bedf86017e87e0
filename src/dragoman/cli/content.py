"""Shows what MCP servers answer: content blocks, messages, resources. Values are plain JSON here.

Rules: text is printed as it is, made safe for a terminal; binary content is shown by its type and size;
structured content equal to the text is printed once.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from rich.text import Text

from .exit_status import ANSWERED_WITH_ERROR, FINE
from .options import Output
from .terminal import clean, err, out, show, show_json, show_rows


def safe(text: str) -> str:
    """Text from a peer, made safe for a terminal; tabs are kept."""
    return "\t".join(map(clean, text.split("\t")))


def show_tool_result(result: dict[str, Any], output: Output) -> int:
    """The result of a tool on stdout, the text of one that failed on stderr; the exit status."""
    failed = result.get("isError") is True
    if output.json:
        output.write({"result": result})
    elif failed:
        text = "\n".join(block_text(block) for block in result.get("content", []))
        show(Text.assemble(("tool error  ", "bold red"), text or "it gives no reason"), hang=0, console=err)
    else:
        show_result(result)
    return ANSWERED_WITH_ERROR if failed else FINE


def show_result(result: dict[str, Any]) -> None:
    """The result of a tool on stdout."""
    blocks = result.get("content", [])
    if "structuredContent" not in result:
        show_blocks(blocks)
        return
    structured = result["structuredContent"]
    texts = [block.get("text", "") for block in blocks if block.get("type") == "text"]
    others = [block for block in blocks if block.get("type") != "text"]
    said = any(_same(text, structured) for text in texts)
    if blocks and not said:
        show_blocks(blocks)
    elif _is_wrapped(structured) and isinstance(structured["result"], str):
        out.print(Text(safe(structured["result"])), soft_wrap=True)
    else:
        show_json(msgspec.json.encode(structured["result"] if _is_wrapped(structured) else structured))
    if said:
        show_blocks(others)


def _is_wrapped(structured: Any) -> bool:
    """Whether a value is wrapped as `{"result": value}`, as servers do for clients that need an object."""
    return isinstance(structured, dict) and list(structured) == ["result"]


def _same(text: str, structured: Any) -> bool:
    """True if a text is the structured content as JSON."""
    wrapped = structured["result"] if _is_wrapped(structured) else structured
    if text == wrapped:
        return True
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return value in (structured, wrapped)


def show_blocks(blocks: list[dict[str, Any]]) -> None:
    """Content blocks on stdout, one below the other."""
    for block in blocks:
        out.print(Text(block_text(block)), soft_wrap=True)


def block_text(block: dict[str, Any]) -> str:
    """A content block as text."""
    kind = block.get("type")
    if kind == "text":
        return safe(str(block.get("text", "")))
    if kind in ("image", "audio"):
        return f"[{clean(str(block.get('mimeType', kind)))}, {_size(block.get('data', ''))}]"
    if kind == "resource_link":
        return safe(f"{block.get('title') or block.get('name', '')} <{block.get('uri', '')}>")
    if kind == "resource":
        return contents_text(block.get("resource", {}))
    return safe(msgspec.json.encode(block).decode())


def contents_text(contents: dict[str, Any]) -> str:
    """A resource's contents as text."""
    if "text" in contents:
        return safe(str(contents["text"]))
    kind = clean(str(contents.get("mimeType", "binary")))
    return f"[{clean(str(contents.get('uri', '')))}: {kind}, {_size(contents.get('blob', ''))}]"


def blob_of(contents: dict[str, Any]) -> bytes | None:
    """The bytes of binary contents; None for text and for invalid base64."""
    if "blob" not in contents:
        return None
    try:
        return base64.b64decode(contents["blob"], validate=True)
    except (binascii.Error, ValueError, TypeError):
        return None


def _size(encoded: object) -> str:
    size = len(str(encoded).rstrip("=")) * 3 // 4
    return f"{size:,} byte{'' if size == 1 else 's'}"


class EntryRow(Struct, frozen=True):
    """An entry that a server lists: its name, what follows it directly, a line about it, and further columns."""

    name: str
    tail: str
    about: str
    columns: tuple[str, ...] = ()


def signature_row(signature: str, about: str) -> EntryRow:
    """The row of an entry that is shown as `name(arguments)`."""
    name, bracket, rest = signature.partition("(")
    return EntryRow(name, bracket + rest, about)


def show_entries(rows: Sequence[EntryRow], what: str, title: str = "") -> None:
    """Show entries: at a terminal with the line about each below it, in a pipe a line each with tabs
    between the columns. `what` names their kind, for a server that has none; `title`: the heading, if they have one."""
    if not rows:
        err.print(Text(f"the server has no {what}", "dim"))
        return
    if title:
        show_heading(title, len(rows))
    if not out.is_terminal:
        for row in rows:
            print("\t".join(map(clean, (row.name + row.tail, *row.columns, row.about))).rstrip("\t"))
        return
    indent = 2 if title else 0
    for row in rows:
        line = Text.assemble((clean(row.name), "cyan"), clean(row.tail))
        for column, style in zip(row.columns, ("", "dim"), strict=False):
            line.append(f"  {clean(column)}" if column else "", style)
        show(line, indent=indent, hang=4)
        if row.about:
            show(row.about, "dim", indent=indent + 2, hang=0)


def show_heading(title: str, count: int | None = None) -> None:
    """Show the heading of what follows, with the number of its entries."""
    out.print(Text.assemble((title, "bold"), ("" if count is None else f"  {count}", "dim")))


LEFT_OUT = ", may be left out"
"""The note of an argument that is not required."""


def show_detail(line: str, text: object, arguments: Iterable[tuple[str, str, str, object]]) -> None:
    """One entry: its signature, its whole description, and each argument: name, type, note, and a line about it."""
    show(line, "cyan", hang=4)
    if description := str(text or "").strip():
        show(description, indent=2, hang=0)
    rows = [(name, kind + note, first_line(words)) for name, kind, note, words in arguments]
    if not rows:
        return
    if not out.is_terminal:
        for name, kind, words in rows:
            what = f"{name}{'' if kind.startswith(',') else '  '}{kind}" if kind else name
            show("  ".join(filter(None, (what, words))), indent=2)
        return
    out.print()
    show_heading("Arguments")
    show_rows(
        ((Text(clean(name), "cyan"), _about(kind.removeprefix(", "), words)) for name, kind, words in rows), indent=2
    )


def _about(kind: str, words: str) -> Text:
    """Type and note of an argument, and below them what is said about it."""
    return Text("\n").join(Text(clean(one), style) for one, style in ((kind, ""), (words, "dim")) if one)


def first_line(text: object) -> str:
    """The first line of a description."""
    lines = str(text or "").strip().splitlines()
    return lines[0] if lines else ""
