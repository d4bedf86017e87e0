"""`python -m bench [ROW ...] [--rounds N] [--quick] [--no-peers] [--write] [--json] [--check]`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from bench.figures import Row
from bench.referee import Referee
from bench.rows import ROWS
from bench.table import filled, markdown, plain, short, text

ROOT = Path(__file__).parent.parent


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="dragoman beside its peers and the machine's limit"
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of: {', '.join(ROWS)} (all by default)")
    parser.add_argument("--rounds", type=int, default=0, help="rounds of each row (5; with --quick 3)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and calls: a look, not a figure")
    parser.add_argument("--no-peers", action="store_true", help="only dragoman and the limits; nothing is installed")
    parser.add_argument("--write", action="store_true", help="write docs/figures.md and the READMEs' tables")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--check", action="store_true", help="exit status 1 when a goal was missed")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.rows if name not in ROWS]
    if unknown:
        parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join(ROWS)}")
    return chosen


def main() -> int:
    """Measure and print. With `--check` exit status 1 says that a goal was missed."""
    chosen = arguments()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or ours is compiled anew each time, the peers not
    rounds = chosen.rounds or (3 if chosen.quick else 5)
    referee = Referee(rounds, scale=0.2 if chosen.quick else 1.0, peers=not chosen.no_peers)
    rows: list[Row] = []
    for name in chosen.rows or ROWS:
        began = time.monotonic()
        for row in ROWS[name]:
            referee.measure(row)
            rows.append(row)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(json.dumps(plain(rows), indent=2) if chosen.json else text(rows))
    if chosen.write:
        results = ROOT / "bench" / "results"
        results.mkdir(exist_ok=True)
        (results / "last.json").write_text(json.dumps(plain(rows), indent=2) + "\n")
        (ROOT / "docs" / "figures.md").write_text(markdown(rows))
        if not chosen.rows:
            for language, name in enumerate(("README.md", "README.zh-CN.md")):
                page = ROOT / name
                page.write_text(filled(page.read_text(encoding="utf-8"), short(rows, language)), encoding="utf-8")
    return 1 if chosen.check and any(goal.judge(row)[1] is False for row in rows for goal in row.goals) else 0


if __name__ == "__main__":
    sys.exit(main())
