"""`python -m bench.contestants [uvloop] FILE PART WORD ...`: run a part of a contestant; `uvloop`: on that loop."""

from __future__ import annotations

import asyncio
import inspect
import sys
from importlib import import_module


def main(*words: str) -> None:
    """Run it to its end."""
    name, part, *rest = words[words[0] == "uvloop" :]
    found = getattr(import_module(f"bench.contestants.{name}"), part)(*rest)
    if inspect.iscoroutine(found):
        (import_module("uvloop") if words[0] == "uvloop" else asyncio).run(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
