"""What every client tries at every server, as plain data: standard library only, since peers' interpreters run it.

A client's program is started as `python CLIENT.py ERA TARGET...` (ERA: auto, or legacy for the handshake; TARGET: a URL
or a command) and prints one JSON object: for each feature what came out, or `{"failed": why}`; a feature that it does
not have is not in there. The server offers the tools that are used below.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

PATIENCE = 20.0
"""Seconds for one feature."""

NOTE = "note://today"
COUNT = 3
NAME = {"name": "Ann"}
MODEL_SAYS = "42"
ROOT = "file:///work"

EXPECTED: dict[str, Any] = {
    "list": ["add", "ask_model", "ask_name", "ask_roots", "fail", "started", "steps", "stopped", "touch", "wait"],
    "call": 5,
    "error": "out of stock",
    "progress": [[n + 1, COUNT] for n in range(COUNT)],
    "log": [f"step {n + 1}" for n in range(COUNT)],
    "cancel": 1,
    "resource": "Buy milk",
    "prompt": "Greet Ann",
    "complete": ["Ann", "Anton"],
    "elicit": "Hello, Ann!",
    "sample": "Model: 42",
    "roots": f"Roots: {ROOT}",
    "subscribe": NOTE,
}
"""What must come out, feature by feature."""

Feature = Callable[[], Awaitable[Any]]


async def probe(features: Mapping[str, Feature], only: set[str] | None = None) -> dict[str, Any]:
    """Try each feature; what came out."""
    found: dict[str, Any] = {}
    for name, feature in features.items():
        if only is not None and name not in only:
            continue
        try:
            async with asyncio.timeout(PATIENCE):
                found[name] = await feature()
        except Exception as error:
            found[name] = {"failed": f"{type(error).__name__}: {error}"[:300]}
    return found


def tell(found: Mapping[str, Any]) -> None:
    """Print what was found."""
    print(json.dumps(found), flush=True)
