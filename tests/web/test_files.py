"""The files of the page: as they should be, small, and ours alone to change."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

from dragoman.web import read_page_files
from tests import vendored

WEB = vendored.PLACE.parent
RAW, PACKED, APART = 90_000, 32_000, 34_000
"""Bytes of all files that a browser gets: as they are, with gzip together, and each with gzip alone."""


def sent() -> dict[str, bytes]:
    """What a browser gets, by name."""
    files = read_page_files()
    index = files.index(f"docs/{files.hash}/", "/mcp", "mcp", {})
    found = {name: files.file(name, {}) for name in files.names} | {"index.html": index}
    return {name: one.body for name, one in found.items() if one is not None}


def test_they_are_small() -> None:
    found = sent()
    assert sum(map(len, found.values())) <= RAW
    assert len(gzip.compress(b"".join(found.values()), 9)) <= PACKED
    assert sum(len(gzip.compress(one, 9)) for one in found.values()) <= APART


def test_the_libraries_are_as_npm_has_them() -> None:
    assert vendored.faults() == []


def test_what_is_sent_differs_from_what_lies_here_in_indentation_and_comments_alone() -> None:
    for name, data in sent().items():
        if name != "index.html":
            here = (WEB / name).read_text()
            lines = [line.lstrip(" \t") for line in here.splitlines()]
            kept = [line for line in lines if line and not re.match(r"//|/\*.*\*/$", line)]
            if name == "app.css":
                assert data.decode().replace(" ", "") == "".join(f"{one}\n" for one in kept).replace(" ", "")
                continue
            assert data.decode().splitlines() == (here.splitlines() if "/" in name else kept), name


def test_a_script_imports_its_neighbours_alone_and_writes_no_markup() -> None:
    banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerously|\beval\(|new Function|srcdoc|style="
    for path in Path(WEB).glob("*.js"):
        text = path.read_text()
        assert re.search(banned, text) is None, path
        for source in re.findall(r'from "([^"]+)"', text):
            assert (path.parent / source).is_file(), source
