"""What a client remembers of a server's tools: which arguments are sent as HTTP headers, and the output schemas.

Rules:

- A tool whose `x-mcp-header` breaks the rules is left out with a warning where headers are sent ("Clients using the
  Streamable HTTP transport MUST reject tool definitions", basic/transports/streamable-http).
- A schema is compiled when the first result comes; it may not refer to another document.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...jsonrpc.errors import BadAnswer
from ...repeats import Repeats
from ...rpc.binding.json_schema import Validate
from ...rpc.binding.results import result_decoder
from ..protocol.encoding import decode
from ..protocol.headers import HeaderParam, marked, mirror
from ..protocol.params import CallToolResult
from ..protocol.types import Tool
from .checking import checker

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)


_SHOWN = 10
"""Tools of one page whose faults are logged at most."""


class KnownTool(Struct):
    """What is remembered of one tool: its marked arguments, its output schema, and the check made from that."""

    marked: tuple[HeaderParam, ...]
    schema: Mapping[str, Any] | None
    check: Validate | None = None
    tool: Tool | None = None
    """The tool as it was listed, if extensions need it."""


class KnownTools:
    """The listed tools, by name. `whole`: whether extensions need them as they were listed."""

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole
        self._tools: dict[str, KnownTool] = {}
        self.get: Callable[[str], KnownTool | None] = self._tools.get
        """Return a tool by its name, or None."""
        self.listed: bool = False
        """Whether the tools were listed since the last notification that they changed."""

    def learn(self, tools: Iterable[Tool], *, headers: bool) -> list[Tool]:
        """Store a page of tools, and return those that can be called. `headers`: whether arguments are sent as HTTP
        headers."""
        fine, bad = [], []
        for tool in tools:
            try:
                found = marked(tool.input_schema) if headers else ()
            except ValueError as error:
                bad.append(f"the tool {tool.name!r} is left out: {error}")
                self._tools.pop(tool.name, None)
                continue
            schema = tool.output_schema if isinstance(tool.output_schema, dict) else None
            old = self._tools.get(tool.name)
            check = old.check if old is not None and old.schema == schema else None
            self._tools[tool.name] = KnownTool(found, schema, check, tool if self._whole else None)
            fine.append(tool)
        if bad:
            # "Clients SHOULD log a warning when rejecting a tool definition"
            more = f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
            repeats.warning("%s%s", "; ".join(bad[:_SHOWN]), more)
        return fine

    def complete(self, tools: Collection[Tool]) -> None:
        """Forget all other tools: the list is complete."""
        self.listed = True
        if len(self._tools) > len(tools):
            for name in self._tools.keys() - {tool.name for tool in tools}:
                del self._tools[name]

    def changed(self) -> None:
        """Note that the server's tools have changed."""
        self.listed = False

    def headers(self, name: str, arguments: Mapping[str, Any] | None) -> dict[str, str] | None:
        """Return the `Mcp-Param-*` headers of a call; None if it has none. Raises LocalError for an argument that no
        header can hold."""
        known = self._tools.get(name)
        if known is None or not known.marked:
            return None
        return mirror(known.marked, arguments)

    def verify(self, name: str, found: CallToolResult) -> None:
        """Raise BadAnswer if a structured result does not conform to the tool's output schema ("Clients SHOULD
        validate structured results against this schema", server/tools)."""
        known = self._tools.get(name)
        if known is None or known.schema is None or found.is_error is True:
            return
        if found.structured_content is UNSET:
            raise BadAnswer(f"tools/call: {name} has an output schema, and its result has no structuredContent")
        check = known.check
        if check is None:
            check = known.check = checker(known.schema)
        faults = check(found.structured_content)
        if faults:
            texts = "; ".join(f"{one.field}: {one.message}" if one.field else one.message for one in faults[:5])
            raise BadAnswer(f"tools/call: the structured result of {name} does not fit its output schema: {texts}")


class _Structured(Struct, rename="camel"):
    structured_content: Raw | UnsetType = UNSET


class _Wrapped(Struct, forbid_unknown_fields=True):
    result: Raw


def convert_result(kind: Any, raw: Raw, result: CallToolResult) -> Any:
    """Return a tool's result as `kind`: its structured content (also wrapped as `{"result": ...}`), or else its text
    read as JSON, or else its text. Raises BadAnswer if none fits."""
    read = result_decoder(kind)
    structured = decode(raw, _Structured).structured_content
    if structured is UNSET:
        text = result.text
        try:
            return read(text.encode())
        except BadAnswer as error:
            if kind is str:
                return text
            words = f"the tool's result is the text {text[:60]!r}, which does not fit: {error}; ask for result=str"
            raise BadAnswer(words) from error
    try:
        return read(structured)
    except BadAnswer:
        try:
            wrapped = decode(structured, _Wrapped)
        except msgspec.DecodeError:
            pass
        else:
            return read(wrapped.result)
        raise
