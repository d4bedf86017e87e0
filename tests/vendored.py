"""The libraries of the page, as npm has them: `python -m tests.vendored` checks them, with `--renew` it fetches them.

src/dragoman/web/vendor/vendor.toml says of each file from which package it comes, what was changed in it, and the
SHA-256 of it before and after. Changed is only what a browser needs without a build: a module is named by its file, and
no source map is named that is not there. For another version write it into vendor.toml, and renew.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from tests.snippets import ROOT

PLACE = ROOT / "src" / "dragoman" / "web" / "vendor"
LIST = PLACE / "vendor.toml"
HEAD = "# Written by `python -m tests.vendored --renew`, which says what this is. Versions are written by hand.\n"


def digest(data: bytes) -> str:
    """The SHA-256, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def files() -> list[dict[str, Any]]:
    """What vendor.toml says of each file."""
    found: list[dict[str, Any]] = tomllib.loads(LIST.read_text(encoding="utf-8"))["file"]
    return found


def faults() -> list[str]:
    """What does not agree with vendor.toml, a sentence each."""
    listed = {one["name"]: one["sha256"] for one in files()}
    there = {path.name: digest(path.read_bytes()) for path in PLACE.iterdir() if path != LIST}
    return [
        *(f"{name} is not listed" for name in sorted(there.keys() - listed.keys())),
        *(f"{name} is missing" for name in sorted(listed.keys() - there.keys())),
        *(f"{name} was changed" for name in sorted(listed.keys() & there.keys()) if listed[name] != there[name]),
    ]


def renew() -> None:
    """Fetch each package from npm's registry, write the files, and vendor.toml with their new hashes."""
    known = files()
    with tempfile.TemporaryDirectory() as folder:
        for package in sorted({f"{one['package']}@{one['version']}" for one in known}):
            packed = subprocess.run(
                ["npm", "pack", "--silent", package], cwd=folder, capture_output=True, text=True, check=True
            ).stdout.split()[-1]
            with tarfile.open(Path(folder, packed)) as archive:
                for one in known:
                    if f"{one['package']}@{one['version']}" == package:
                        member = archive.extractfile(one["source"])
                        assert member is not None, f"{package} has no {one['source']}"
                        take(one, member.read())
    LIST.write_text(HEAD + "".join(map(entry, known)), encoding="utf-8")


def take(one: dict[str, Any], data: bytes) -> None:
    """Write one file as the page uses it."""
    one["source_sha256"] = digest(data)
    for before, after in one["changes"]:
        assert data.count(before.encode()) == 1, f"{one['name']}: {before!r} is not in it once"
        data = data.replace(before.encode(), after.encode())
    one["sha256"] = digest(data)
    (PLACE / one["name"]).write_bytes(data)


def entry(one: dict[str, Any]) -> str:
    """What vendor.toml says of one file."""
    texts = "".join(
        f"{key} = '{one[key]}'\n"
        for key in ("name", "package", "version", "licence", "source", "source_sha256", "sha256")
    )
    changes = ", ".join(f"['{before}', '{after}']" for before, after in one["changes"])
    return f"\n[[file]]\n{texts}changes = [{changes}]\n"


if __name__ == "__main__":
    if "--renew" in sys.argv:
        renew()
    wrong = faults()
    print("\n".join(wrong) or f"{len(files())} files are as vendor.toml says")
    sys.exit(bool(wrong))
