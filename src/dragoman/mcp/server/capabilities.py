"""The capabilities that a server declares: kinds of which something is registered, and those that its options name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from ..protocol.extension import Extensions
from ..protocol.types import PromptsCapability, ResourcesCapability, ServerCapabilities, ToolsCapability
from .registry import Registry


class Capabilities:
    """The capabilities of one server, now. `declared`: "tools", "resources", "prompts", "completions" or "logging" that
    are declared beforehand."""

    def __init__(self, registry: Registry, declared: Collection[str], extensions: Extensions) -> None:
        self._registry = registry
        self._declared = frozenset(declared)
        self._extensions = extensions

    def stateful(self) -> ServerCapabilities:
        """Return those of the stateful era. `encode` leaves out what a revision does not know."""

        def has(kind: str) -> bool:
            return kind in self._declared or self._registry.has(kind)

        extensions: Any = self._extensions.declared
        return ServerCapabilities(
            logging={},
            completions={} if has("completions") else UNSET,
            prompts=PromptsCapability(True) if has("prompts") else UNSET,
            resources=ResourcesCapability(True, True) if has("resources") else UNSET,
            tools=ToolsCapability(True) if has("tools") else UNSET,
            extensions=extensions,
        )

    def stateless(self) -> ServerCapabilities:
        """Return those of the stateless era: logging, which is deprecated there, only where a function may log."""
        found = self.stateful()
        return found if "logging" in self._declared or self._registry.contextual else replace(found, logging=UNSET)
