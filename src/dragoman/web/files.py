"""The page's files: read once, compressed, named by a hash of them all, and answered with what browsers are to enforce.

- All files but `index.html` are below `/docs/{hash}/`, where the hash is that of all of them together: their imports
  stay relative, a browser keeps them for ever, and another version of the page has other names.
- `index.html` names them relatively to the path at which it is shown, so that it works below any mount point and
  behind any prefix. It is validated anew each time, by its ETag.
- Scripts and styles are sent without their indentation, the lines that are comments alone, and, of styles, the blanks
  beside their signs and a rule's last semicolon; no other character is changed, so what a browser runs is what can be
  read here.
- The console has files of its own, below its own URL (`read_console_files`); it shares the parts of the documentation.
- Nothing in the files is secret: what the page shows it gets by calls, with the rights of its reader.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from typing import Final

from msgspec import Struct

from ..transports.http.messages import Answer, Lines

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
"""What the page may do: load its own scripts and styles, call its own server, and show images that came in answers."""

PROTECTING: Final[Lines] = (
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
"""Header fields of every file."""
_INDEX: Final[Lines] = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Content-Security-Policy", CONTENT_SECURITY_POLICY),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("X-Frame-Options", "DENY"),
    ("Cache-Control", "no-cache"),
    ("Vary", "Accept, Accept-Encoding"),
    *PROTECTING,
)
_KINDS: Final = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
CONSOLE: Final = "console"
"""The folder of what the console has beside the parts of the documentation."""
_RENDERED: Final = 64
"""Paths at which `index.html` was shown that are kept: a server has fewer; when there are more, all are dropped."""


class WebFile(Struct, frozen=True):
    """One file of a page: its bytes, the same with gzip, the ETag of either, its header fields."""

    plain: bytes
    packed: bytes
    tag: str
    lines: Lines

    def answer(self, accept_encoding: str = "", if_none_match: str = "") -> Answer:
        """Return the answer to a GET with these header fields: 304 where the browser has the file."""
        packed = _accepts_gzip(accept_encoding)
        tag = f'"{self.tag}-gz"' if packed else f'"{self.tag}"'
        lines = (*self.lines, ("ETag", tag))
        # "The origin server MUST use the weak comparison function" for If-None-Match (RFC 9110, 13.1.2)
        known = if_none_match
        if known.strip() == "*" or tag in [one.strip().removeprefix("W/") for one in known.split(",")]:
            return Answer(304, lines)
        if packed:
            return Answer(200, (*lines, ("Content-Encoding", "gzip")), self.packed)
        return Answer(200, lines, self.plain)


class PageFiles:
    """The files of the page. `hash`: of all of them."""

    def __init__(self, found: Mapping[str, bytes]) -> None:
        digest = hashlib.sha256()
        for name, data in sorted(found.items()):
            digest.update(f"{name} {len(data)}\n".encode() + data)
        self.hash: str = digest.hexdigest()[:16]
        self._index = found["index.html"].decode()
        self._files = {name: _make_file(name, data) for name, data in found.items() if name != "index.html"}
        self._rendered: dict[tuple[str, str, str], WebFile] = {}

    @property
    def names(self) -> list[str]:
        """The names of all files but `index.html`."""
        return list(self._files)

    def file(self, name: str, headers: Mapping[bytes, bytes]) -> Answer | None:
        """Return the answer with the file of this name, "app.js" or "vendor/htm.js"; None if there is none."""
        found = self._files.get(name)
        return None if found is None else found.answer(*_wanted(headers))

    def index(self, base: str, path: str, kind: str, headers: Mapping[bytes, bytes]) -> Answer:
        """Return the answer with `index.html`. `base`: the relative URL of the folder of the files; `path`: that of the
        service at which it is shown, and `kind`, what that speaks; empty where it shows all."""
        return self._render(base, path, kind).answer(*_wanted(headers))

    def below_root(self) -> Mapping[str, WebFile]:
        """Return the files by path, for an address whose root shows `index.html`."""
        files = {f"/{self.hash}/{name}": one for name, one in self._files.items()}
        return {"/": self._render(f"{self.hash}/", "", "")} | files

    def _render(self, base: str, path: str, kind: str) -> WebFile:
        known = self._rendered.get(key := (base, path, kind))
        if known is None:
            if len(self._rendered) >= _RENDERED:
                self._rendered.clear()
            text = self._index
            for name, value in (("base", base), ("path", path), ("kind", kind)):
                text = text.replace("{" + name + "}", escape(value))
            known = self._rendered[key] = _pack(text.encode(), _INDEX)
        return known


_UNSENT: Final = re.compile(rb"^[ \t]*(?://[^\n]*\n|/\*[^\n]*\*/\n|\n)?", re.MULTILINE)
"""Indentation, a line that is a comment alone, an empty line."""
_BLANKS: Final = re.compile(rb"(?<=[:;{,]) | (?=[{}])|;(?= })")
"""Of styles, where a blank has no meaning, and the last semicolon of a rule."""


def _make_file(name: str, data: bytes) -> WebFile:
    lines = (
        ("Content-Type", _KINDS[name[name.rindex(".") :]]),
        ("Cache-Control", "public, max-age=31536000, immutable"),
        ("Vary", "Accept-Encoding"),
        *PROTECTING,
    )
    return _pack(data, lines)


def _pack(data: bytes, lines: Lines) -> WebFile:
    return WebFile(data, gzip.compress(data, 9, mtime=0), hashlib.sha256(data).hexdigest()[:24], lines)


def _wanted(headers: Mapping[bytes, bytes]) -> tuple[str, str]:
    """Return the fields of a request that decide its answer."""
    accept, known = headers.get(b"accept-encoding", b""), headers.get(b"if-none-match", b"")
    return accept.decode("latin-1"), known.decode("latin-1")


def _accepts_gzip(accept: str) -> bool:
    """Return whether a client takes gzip: it names it, with a weight that is not 0."""
    for part in accept.lower().split(","):
        name, *parameters = (one.strip() for one in part.split(";"))
        if name in ("gzip", "x-gzip"):
            return not any(one.startswith("q=") and one[2:].strip(" 0.") == "" for one in parameters)
    return False


@cache
def read_page_files() -> PageFiles:
    """Return the files of the documentation, read at the first call."""
    return PageFiles(_read(""))


@cache
def read_console_files() -> Mapping[str, WebFile]:
    """Return the files of the console's page by path below its URL, read at the first call: "/" is its `index.html`.
    It has those of the documentation too, but for what draws that."""
    shared = {name: data for name, data in _read("").items() if name not in ("index.html", "app.js")}
    own = {name if name == "index.html" else f"{CONSOLE}/{name}": data for name, data in _read(CONSOLE).items()}
    return PageFiles(shared | own).below_root()


def _read(folder: str) -> dict[str, bytes]:
    """Return the files of a folder of this package as they are sent, by name; those of the package with the
    libraries."""
    root = files(__package__) / folder if folder else files(__package__)
    found = {one.name: one.read_bytes() for one in root.iterdir() if one.name.endswith((".html", *_KINDS))}
    for name, data in found.items():
        if not name.endswith(".html"):
            data = _UNSENT.sub(b"", data)
            found[name] = _BLANKS.sub(b"", data) if name.endswith(".css") else data
    if folder:
        return found
    vendor = {one.name: one.read_bytes() for one in (root / "vendor").iterdir() if one.name.endswith(".js")}
    return found | {f"vendor/{name}": data for name, data in vendor.items()}
