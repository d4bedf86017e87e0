"""The calculator of the wire cases as a child process: `python -m tests.stdio_calculator [URL]`."""

from __future__ import annotations

import asyncio
import sys

from dragoman import serve
from tests.calculator import calculator


async def main() -> None:
    await serve(calculator(), urls=sys.argv[1:] or ["stdio:"])


if __name__ == "__main__":
    asyncio.run(main())
