"""`python -m tests.interop.mcp [PAIR ...]`: let the pairs meet; with all of them, write docs/mcp/interop.md.

Exit status 1 when something did not work.
"""

from __future__ import annotations

import sys
from typing import Any

from .environments import Missing
from .page import PAGE, faults, page
from .pairs import PAIRS
from .running import Failed, meet


def main(chosen: list[str]) -> int:
    """Meet and tell."""
    unknown = [name for name in chosen if name not in PAIRS]
    if unknown:
        print(f"no such pair: {', '.join(unknown)}; there are {', '.join(PAIRS)}", file=sys.stderr)
        return 2
    found: dict[str, dict[str, Any]] = {}
    bad = 0
    for name in chosen or PAIRS:
        try:
            found[name] = meet(PAIRS[name])
        except (Missing, Failed) as error:
            print(f"{name}: {error}")
            found[name], bad = {}, 1
            continue
        wrong = faults(PAIRS[name], found[name])
        bad = bad or int(bool(wrong))
        print(f"{name}: {wrong or 'all works'}", flush=True)
    if not chosen and not bad:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(found), encoding="utf-8")
        print(f"wrote {PAGE}")
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
