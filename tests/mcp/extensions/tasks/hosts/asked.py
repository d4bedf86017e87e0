# mypy: ignore-errors
"""What the hosts on Python SDKs do alike: `SCRIPT ERA LIMIT SECONDS COUNT TARGET...` prints the results as JSON."""

from __future__ import annotations

import asyncio
import json
import re
import sys


async def use(call, number: int, seconds: float) -> dict:
    """Use the tool as a model does. `call(name, arguments, progress)` returns a text and the structured content."""
    handles, progress = 0, []
    text, structured = await call("work_0", {"number": number, "seconds": seconds}, progress)
    while (told := re.search(r"call (\w+) with (\{.*?\})", text)) is not None:
        handles += 1
        text, structured = await call(told[1], json.loads(told[2]), progress)
    return {"structured": structured, "handles": handles, "progress": len(progress)}


async def tell(call, seconds: str, count: str) -> None:
    """Use the tool so often at once, and print what came of it."""
    found = await asyncio.gather(*(use(call, number, float(seconds)) for number in range(int(count))))
    print(json.dumps(found))


def words() -> tuple[str, float, str, str, list[str]]:
    """The arguments of a script."""
    era, limit, seconds, count, *target = sys.argv[1:]
    return era, float(limit), seconds, count, target
