"""`docs/mcp/interop.md`: the table of all pairs, made from what their meetings gave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from textwrap import fill
from typing import Any

from .environments import ROOT, version
from .pairs import FEATURES, PAIRS, PEERS, Pair
from .peers.probe import EXPECTED

PAGE = ROOT / "docs" / "mcp" / "interop.md"
WIRES = {"http": "HTTP", "stdio": "stdio", "sse": "HTTP+SSE"}
YES, LACKING, NO = "✓", "–", "✗"


def faults(pair: Pair, found: Mapping[str, Any]) -> dict[str, Any]:
    """What did not come out as it must, by feature; empty where all is well."""
    wrong = {
        name: found.get(name, "not tried")
        for name in FEATURES
        if name not in pair.lacks and found.get(name) != EXPECTED[name]
    }
    if found.get("revision") != pair.revision:
        wrong["revision"] = found.get("revision")
    return wrong


def line(pair: Pair, found: Mapping[str, Any]) -> str:
    """A row of the table."""
    wrong = faults(pair, found)
    cells = [LACKING if name in pair.lacks else NO if name in wrong else YES for name in FEATURES]
    said = found.get("revision") or "?"
    return f"| {PEERS[pair.peer]} | {WIRES[pair.wire]} | {said} | " + " | ".join(cells) + " |"


def head() -> str:
    """What stands above the tables."""
    versions = ", ".join(f"{name} {version(peer)}" for peer, name in PEERS.items())
    return f"""# Who speaks with whom

<!-- written by `python -m tests.interop.mcp`; do not edit -->

Real peers in real processes, installed from the registries, with dragoman on the other end; the tests let each pair
meet and hold this page to what came of it. {YES} works, {LACKING} the peer has no such thing, {NO} does not work.

{fill(versions + ".", 120, break_on_hyphens=False)}

*list* tools, *call* one with a structured result, *error*: a tool that fails, *progress* and *log* messages while a
tool runs, *cancel* a call and stop its handler, read a *resource*, get a *prompt*, *complete* an argument; the tool
asks the user (*elicit*), the model (*sample*), the client (*roots*); *subscribe* to a resource and hear of its change.
"""


def table(role: str, lines: Iterable[str]) -> str:
    """One of the two tables."""
    titles = {"client": "## Their client, our server", "server": "## Our client, their server"}
    header = "| peer | wire | revision | " + " | ".join(FEATURES) + " |"
    rule = "|---|---|---|" + ":-:|" * len(FEATURES)
    return "\n".join([titles[role], "", header, rule, *lines, ""])


def notes() -> str:
    """Why what is missing is missing."""
    reasons = dict.fromkeys(reason for pair in PAIRS.values() for reason in pair.lacks.values())
    return "\n".join(["## What the peers lack", "", *[f"- {reason}." for reason in reasons], ""])


def page(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The whole page."""
    tables = [
        table(role, [line(pair, found[key]) for key, pair in PAIRS.items() if pair.role == role])
        for role in ("client", "server")
    ]
    return "\n".join([head(), *tables, notes()])
