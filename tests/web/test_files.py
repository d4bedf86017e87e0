"""The files of the page: as they should be, small, and ours alone to change."""

from __future__ import annotations

import gzip
import re

from dragoman.web import read_console_files, read_page_files
from tests import vendored
from tests.snippets import ROOT

WEB = vendored.PLACE.parent
RAW, PACKED, APART = 90_000, 32_000, 34_000
"""Bytes of all files that a browser gets: as they are, with gzip together, and each with gzip alone."""
CONSOLE_RAW, CONSOLE_PACKED = 73_000, 24_000
"""The same of what the console has beside them."""


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


def test_the_console_has_little_beside_them_and_they_nothing_of_it() -> None:
    own = [one for path, one in read_console_files().items() if "/console/" in path or path == "/"]
    assert len(own) > 5
    assert sum(len(one.plain) for one in own) <= CONSOLE_RAW
    assert len(gzip.compress(b"".join(one.plain for one in own), 9)) <= CONSOLE_PACKED
    assert not [name for name, data in sent().items() if "console" in name or b"/console/" in data]


def test_a_file_of_the_console_is_validated_by_its_tag() -> None:
    files = read_console_files()
    (script,) = [one for path, one in files.items() if path.endswith("/console/console.js")]
    answer = script.answer("gzip")
    assert (answer.status, gzip.decompress(answer.body)) == (200, script.plain)
    lines = dict(answer.headers)
    assert lines["Cache-Control"] == "public, max-age=31536000, immutable"
    assert script.answer("gzip", lines["ETag"]).status == 304
    assert script.answer("", lines["ETag"]).status == 200
    assert dict(files["/"].answer().headers)["Cache-Control"] == "no-cache"


def test_the_libraries_are_as_npm_has_them() -> None:
    assert vendored.faults() == []


def test_what_is_sent_differs_from_what_lies_here_in_indentation_and_comments_alone() -> None:
    console = {path[18:]: one.plain for path, one in read_console_files().items() if path != "/"}
    for name, data in (sent() | console).items():
        if name != "index.html":
            here = (WEB / name).read_text()
            lines = [line.lstrip(" \t") for line in here.splitlines()]
            kept = [line for line in lines if line and not re.match(r"//|/\*.*\*/$", line)]
            if name.endswith(".css"):
                whole = "".join(f"{one}\n" for one in kept).replace(" ", "")
                assert data.decode().replace(" ", "") == whole.replace(";}", "}")
                continue
            assert data.decode().splitlines() == (here.splitlines() if "vendor/" in name else kept), name


def test_a_script_imports_its_neighbours_alone_and_writes_no_markup() -> None:
    banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerously|\beval\(|new Function|srcdoc|style=(?!\$\{\{)"
    for path in [*WEB.glob("*.js"), *WEB.glob("console/*.js")]:
        text = path.read_text()
        assert re.search(banned, text) is None, path
        for source in re.findall(r'(?:^import(?: [^"\n]* from)? |import\()"([^"]+)"', text, re.MULTILINE):
            assert (path.parent / source).is_file(), source


def test_the_advice_is_that_of_the_documentation() -> None:
    text = (WEB / "console" / "methods.js").read_text()
    found = re.findall(r'^  "(-\d+)": \["([^"]+)"', text, re.MULTILINE)
    page = (ROOT / "docs" / "errors.md").read_text()
    assert len(found) == 10
    for code, title in found:
        assert re.search(rf"^\| `{title}.*\| {code}\b", page, re.MULTILINE), (code, title)
