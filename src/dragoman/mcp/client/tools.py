"""A server's tools as a client knows them: which arguments go into HTTP headers, and their output schemas.

Rules:

- A tool whose `x-mcp-header` breaks the rules is left out with a warning where headers are sent ("Clients using the
  Streamable HTTP transport MUST reject tool definitions", basic/transports/streamable-http).
- A schema is compiled when its first result comes, and nothing is fetched for it.
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
"""Tools of one page whose faults the log has."""


class KnownTool(Struct):
    """One tool."""

    marked: tuple[HeaderParam, ...]
    schema: Mapping[str, Any] | None
    check: Validate | None = None


class KnownTools:
    """The listed tools, by name."""

    def __init__(self) -> None:
        self._tools: dict[str, KnownTool] = {}
        self.get: Callable[[str], KnownTool | None] = self._tools.get
        """A tool by its name, or None."""
        self.listed: bool = False
        """Whether the tools were listed since the last notification that they changed."""

    def learn(self, tools: Iterable[Tool], *, headers: bool) -> list[Tool]:
        """Store a page of tools, and return those that can be called. `headers`: arguments go into HTTP headers."""
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
            self._tools[tool.name] = KnownTool(found, schema, check)
            fine.append(tool)
        if bad:
            # "Clients SHOULD log a warning when rejecting a tool definition"
            more = f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
            repeats.warning("%s%s", "; ".join(bad[:_SHOWN]), more)
        return fine

    def complete(self, tools: Collection[Tool]) -> None:
        """These are all: what was learnt of others is forgotten."""
        self.listed = True
        if len(self._tools) > len(tools):
            for name in self._tools.keys() - {tool.name for tool in tools}:
                del self._tools[name]

    def changed(self) -> None:
        """The server notified that its tools changed."""
        self.listed = False

    def headers(self, name: str, arguments: Mapping[str, Any] | None) -> dict[str, str] | None:
        """Return the `Mcp-Param-*` headers of a call; None for none."""
        known = self._tools.get(name)
        if known is None or not known.marked:
            return None
        return mirror(known.marked, arguments)

    def verify(self, name: str, found: CallToolResult) -> None:
        """Raise BadAnswer when a structured result does not conform to the tool's output schema ("Clients SHOULD
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
    """Return a tool's result as `kind`: its structured content (also wrapped as `{"result": ...}`), otherwise its text
    as JSON, otherwise its text. Raises BadAnswer when none fits."""
    read = result_decoder(kind)
    structured = decode(raw, _Structured).structured_content
    if structured is UNSET:
        said = result.text
        try:
            return read(said.encode())
        except BadAnswer as error:
            if kind is str:
                return said
            words = f"the tool's result is the text {said[:60]!r}, which does not fit: {error}; ask for result=str"
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
