"""The parts of a server that its extensions may use while it is served."""

from __future__ import annotations

from .surroundings import Surroundings


class ServerHome:
    """A server, as `ServerExtension.open` gets it, on one event loop."""

    def __init__(self, surroundings: Surroundings) -> None:
        self.surroundings: Surroundings = surroundings
        """The settings of the server: its stamp, its seal, its options and limits."""

    @property
    def name(self) -> str:
        """The server's name."""
        return self.surroundings.service.name
