"""What a run of the tests left out, and why: said at the end of `make test`; where CI=true some of it is a failure.

python -m tests.skips FILE [--short]     print what the runs that had DRAGOMAN_SKIPPED=FILE left out
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import NoReturn

import pytest

VARIABLE = "DRAGOMAN_SKIPPED"
"""Names the file to which each run adds what it left out."""
BESIDE = Path(__file__).parents[2] / "shared"
"""What is not part of the project and lies beside it where the project is made: the official schemas, the suite's
script. A public fork has none of it, and skips what needs it, with CI=true too; where the folder is, all of it must be
there."""
SCHEMAS = BESIDE / "mcp-schema"
SUITE = BESIDE / "conformance.sh"


def missing(why: str) -> NoReturn:
    """Skip the test, or fail it where CI=true: something is not on this machine that a complete run needs."""
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


def note(reports: list[pytest.TestReport | pytest.CollectReport]) -> None:
    """Add the reports of skipped tests to the file, a line each: where, a tab, why."""
    place = os.environ.get(VARIABLE)
    if not place:
        return
    with Path(place).open("a", encoding="utf-8") as file:
        for report in reports:
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            why = " ".join(why.removeprefix("Skipped: ").split())
            file.write(f"{report.nodeid.partition('::')[0]}\t{why}\n")


def said(lines: list[str]) -> str:
    """What was left out, in words: how often for each reason, and where."""
    if not lines:
        return "skipped: none"
    whys: dict[str, Counter[str]] = {}
    for line in lines:
        where, _, why = line.partition("\t")
        whys.setdefault(why, Counter())[where] += 1
    rows = sorted(whys.items(), key=lambda row: (-row[1].total(), row[0]))
    return "\n".join(
        [
            f"skipped: {len(lines)}",
            *(f"{places.total():6}  {why} ({', '.join(sorted(places))})" for why, places in rows),
        ]
    )


def in_short(lines: list[str], most: int = 3) -> str:
    """The same in one line: the commonest reasons."""
    whys = Counter(line.partition("\t")[2] for line in lines)
    first = "; ".join(f"{count} {why[:60]}" for why, count in whys.most_common(most))
    return f"skipped: {len(lines) or 'none'}" + (f" ({first}{'; ...' if len(whys) > most else ''})" if lines else "")


if __name__ == "__main__":
    found = Path(sys.argv[1])
    told = in_short if "--short" in sys.argv else said
    print(told(found.read_text(encoding="utf-8").splitlines() if found.exists() else []))
