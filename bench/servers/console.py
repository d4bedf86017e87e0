"""dragoman serving one URL with a console or without: `plain|mcp MANNER URL [PORT]` (`%` in the URL stands for the
port). Manners: `none`; `console`; `reading` and `hung`, with a browser of that kind (`bench.browser`)."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from bench.servers.calculator import RAISED, calculator
from bench.servers.mcp import server
from dragoman import serve


async def main(kind: str, manner: str, url: str) -> None:
    """Until SIGTERM."""
    console = None if manner == "none" else 0
    if kind == "plain":
        serving = serve(calculator(), urls=url, limits=RAISED, console=console)
    else:
        serving = serve(server(), urls=url, console=console)
    async with serving:
        if manner in ("reading", "hung"):
            assert serving.console is not None
            argv = [sys.executable, "-m", "bench.browser", serving.console, manner]
            await asyncio.create_subprocess_exec(*argv, stdin=subprocess.PIPE)  # its stdin ends with this process
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3].replace("%", "".join(sys.argv[4:]))))
