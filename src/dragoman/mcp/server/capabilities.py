"""What a server declares that it can do, by what is registered with it now."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from ..protocol.encoding import encode, splice
from ..protocol.extension import Extensions
from ..protocol.revisions import Revision
from ..protocol.types import PromptsCapability, ResourcesCapability, ServerCapabilities, ToolsCapability
from .registry import Registry


class Capabilities:
    """The present capabilities of one server."""

    def __init__(self, registry: Registry, extensions: Extensions) -> None:
        self._registry = registry
        self._declared = registry.surroundings.options.declared
        self._extensions = extensions

    def stateful(self) -> ServerCapabilities:
        """Return the capabilities for the stateful era. `encode` leaves out those that a revision does not have."""

        def has(kind: str) -> bool:
            return kind in self._declared or self._registry.has(kind)

        return ServerCapabilities(
            logging={},
            completions={} if has("completions") else UNSET,
            prompts=PromptsCapability(True) if has("prompts") else UNSET,
            resources=ResourcesCapability(True, True) if has("resources") else UNSET,
            tools=ToolsCapability(True) if has("tools") else UNSET,
            extensions=self._extensions.declared,
        )

    def written_for(self, revision: Revision) -> Any:
        """Return the capabilities for a revision, as a result contains them: with the members that extensions
        declare beside the protocol's."""
        found = self.stateful() if revision.stateful else self.stateless()
        others = self._extensions.capabilities(revision)
        return Raw(splice(encode(found, revision), others)) if others else found

    def stateless(self) -> ServerCapabilities:
        """Return the capabilities for the stateless era: with logging, which is deprecated there, only if a function
        may log."""
        found = self.stateful()
        if "logging" in self._declared or self._registry.contextual:
            return found
        return msgspec.structs.replace(found, logging=UNSET)
