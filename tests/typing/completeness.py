"""How many of the package's public symbols have one type that every type checker reads the same: part of `make lint`.

python -m tests.typing.completeness     fails below 98 %, and names what lacks a type
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
LEAST: Final = 0.98


def report() -> Mapping[str, Any]:
    """What basedpyright says of the public interface of the package that this interpreter imports."""
    # it looks for the package with the `python` of PATH
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--verifytypes", "dragoman", "--ignoreexternal", "--outputjson"],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,  # its status is 1 as long as one symbol is left
    )
    try:
        told: Mapping[str, Any] = json.loads(done.stdout)["typeCompleteness"]
    except (ValueError, KeyError):
        raise SystemExit(f"basedpyright did not report:\n{done.stdout}{done.stderr}") from None
    if not told["symbols"]:
        raise SystemExit(f"basedpyright did not find the package dragoman:\n{done.stdout}")
    return told


def missing(told: Mapping[str, Any]) -> list[str]:
    """One line for every fault of a symbol without a known type: where it is, its name, what basedpyright says."""
    lines = []
    for symbol in told["symbols"]:
        if symbol["isExported"] and not symbol["isTypeKnown"]:
            for fault in symbol["diagnostics"]:
                place = Path(fault["file"])
                shown = place.relative_to(ROOT) if place.is_relative_to(ROOT) else place
                line = fault.get("range", {}).get("start", {}).get("line", -1) + 1
                said = " ".join(fault["message"].split())
                lines.append(f"{shown}:{line}: {symbol['name']}: {said:.200}")
    return sorted(lines)


def main() -> int:
    """0: enough; 1: too few, and what lacks a type is printed."""
    told = report()
    score: float = told["completenessScore"]
    if score < LEAST:
        print(*missing(told), sep="\n")
    print(f"{score:.1%} of the public symbols have one known type; at least {LEAST:.0%} must")
    return int(score < LEAST)


if __name__ == "__main__":
    sys.exit(main())
