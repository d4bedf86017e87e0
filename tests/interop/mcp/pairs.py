"""The pairs: a peer in one role, dragoman in the other, on one wire, in one era."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .peers.probe import EXPECTED

Wire = Literal["stdio", "http", "sse"]
Era = Literal["auto", "legacy"]
FEATURES = tuple(EXPECTED)

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
OLDEST = "2024-11-05"


PEERS = {
    "mcp2": "Python SDK 2",
    "mcp1": "Python SDK 1",
    "fastmcp": "FastMCP",
    "ts2": "TypeScript SDK 2",
    "ts1": "TypeScript SDK 1",
    "everything": "server-everything",
}
"""The third parties: what they are called, by the name of their environment and programs."""


@dataclass(frozen=True)
class Pair:
    """One meeting. `role` is the peer's. `lacks`: what the peer does not have, and why; everything else must work."""

    peer: str
    role: Literal["client", "server"]
    wire: Wire
    era: Era
    revision: str
    lacks: dict[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """For pytest, and for the command line."""
        return f"{self.peer}-{self.role}-{self.wire}-{self.era}"


def pairs() -> list[Pair]:
    """All of them, in the order of the table."""
    both: list[tuple[Wire, Era, str]] = [
        ("http", "auto", MODERN),
        ("http", "legacy", HANDSHAKE),
        ("stdio", "auto", MODERN),
        ("stdio", "legacy", HANDSHAKE),
    ]
    handshake: list[tuple[Wire, Era, str]] = [("http", "auto", HANDSHAKE), ("stdio", "auto", HANDSHAKE)]
    listed: list[Pair] = []
    for peer in ("mcp2", "fastmcp", "ts2"):
        for role in ("client", "server"):
            listed += [Pair(peer, role, wire, era, said, lacks(peer, role, said)) for wire, era, said in both]
    for peer in ("mcp1", "ts1"):
        listed += [Pair(peer, "client", wire, era, said) for wire, era, said in handshake]
        listed.append(Pair(peer, "client", "sse", "auto", HANDSHAKE))
        listed += [Pair(peer, "server", wire, era, said) for wire, era, said in handshake]
    listed.append(Pair("mcp1", "server", "sse", "auto", HANDSHAKE))
    lacking = lacks("everything", "server", HANDSHAKE)
    for wire in ("http", "stdio", "sse"):
        listed.append(Pair("everything", "server", wire, "auto", HANDSHAKE, lacking))
    return listed


def lacks(peer: str, role: str, revision: str) -> dict[str, str]:
    """What a peer does not have."""
    if peer == "fastmcp" and role == "server":
        return {"subscribe": "FastMCP's server takes no subscriptions"}
    if peer == "fastmcp" and revision == MODERN:
        return {"subscribe": "FastMCP's client has no subscriptions/listen"}
    if peer == "everything":
        return {"error": "server-everything has no tool that fails"}
    return {}


PAIRS = {pair.id: pair for pair in pairs()}
