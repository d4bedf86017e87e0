"""dragoman serving one URL (`%` in it stands for the second argument: a port or a path; a third, `uvloop`, is the
loop)."""

from __future__ import annotations

import sys

from bench.limits.loops import run
from bench.servers.calculator import RAISED, calculator
from dragoman import serve


async def main(url: str) -> None:
    """Until SIGTERM; on stdio until end of file."""
    await serve(calculator(), urls=[url], limits=RAISED)


if __name__ == "__main__":
    where = sys.argv[1].replace("%", sys.argv[2] if len(sys.argv) > 2 else "")
    run(main(where), uvloop=sys.argv[3:] == ["uvloop"])
