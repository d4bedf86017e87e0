"""Decides who is shown the page, and what of it: `index.html`, one of its files, or the list of what is served.

It is shown to a GET or HEAD without a body that accepts `text/html` by name and no `text/event-stream`, at the endpoint
of a service or an MCP server and at `/docs`; any other request gets what it gets without a page. By default it is shown
only to a browser on this machine: the listener and the request's Host are loopback's, and no proxy shows itself by a
header field. A server behind a proxy says nothing of itself unless it is asked to (`docs=True`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from ..channel import Servable
from ..transports.http.app import HttpEndpoints
from ..transports.http.messages import JSON, Answer, Lines
from ..transports.http.policy import LOOPBACK
from .files import PROTECTING, read_page_files

DOCS: Final = "/docs"
SERVICES: Final = "/docs/services"
_PROXIED: Final = (b"x-forwarded-", b"forwarded", b"via", b"x-real-ip")
"""How the header fields begin by which a proxy shows itself."""
_BODY: Final = (b"content-length", b"transfer-encoding")


class DocsPage:
    """The page for what is served at one address.

    `served`: what is served there, by path; `listed`: the paths that its list of services may name. `always`: it is
    shown to every caller, not only to browsers on this machine; `hosts`: the names by which the server may be called
    were given, and are checked.
    """

    catalog: str = SERVICES
    """The path of the list of services, for those that may call them."""
    lines: Lines = ()
    """None: every other answer is what it is without a page."""

    def __init__(
        self, served: Mapping[str, Servable], listed: Collection[str], *, always: bool = False, hosts: bool = False
    ) -> None:
        self._always, self._hosts = always, hosts
        self._kinds = {path: kind for path, one in served.items() if (kind := kind_of(one))}
        rows = [
            {"path": path, "name": served[path].name, "kind": kind}
            for path, kind in self._kinds.items()
            if path in listed
        ]
        self._services = msgspec.json.encode({"services": rows})

    @property
    def endpoints(self) -> Collection[str]:
        """The paths of endpoints at which it is shown."""
        return self._kinds.keys()

    def find(self, path: str, headers: Mapping[bytes, bytes], *, loopback: bool) -> Answer | None:
        """Return the answer to a GET of `path`, spelled as it was sent; None if the page has none for it. `loopback`:
        it came to a loopback address."""
        trimmed = path.rstrip("/") or "/"
        at = path if path in self._kinds else trimmed if trimmed in self._kinds else ""
        if not (at or trimmed == DOCS or path.startswith(DOCS + "/")) or not self._is_shown(headers, loopback):
            return None
        if at or trimmed == DOCS:
            if not _wants_page(headers):
                return None
            base = "../" * (path.count("/") - 1) + f"docs/{read_page_files().hash}/"
            return read_page_files().index(base, at, self._kinds.get(at, ""), headers)
        if path == SERVICES:
            return Answer(200, (("Content-Type", JSON), ("Cache-Control", "no-store"), *PROTECTING), self._services)
        folder, _, name = path.removeprefix(DOCS + "/").partition("/")
        return read_page_files().file(name, headers) if folder == read_page_files().hash else None

    def _is_shown(self, headers: Mapping[bytes, bytes], loopback: bool) -> bool:
        if any(name.startswith(_PROXIED) for name in headers):
            return self._always
        if loopback and _host(headers) in LOOPBACK:
            return True
        # a page of another site that has led its name here (DNS rebinding) comes to loopback under that name
        return self._always and (self._hosts or not loopback)


def kind_of(one: Servable) -> str:
    """Return what a served object speaks that the page can: "mcp", "jsonrpc", or "" for neither."""
    if one.subprotocol == "mcp":
        return "mcp"
    return "" if isinstance(one, HttpEndpoints) else "jsonrpc"


def _host(headers: Mapping[bytes, bytes]) -> str:
    """The Host of a request in lower case, without its port."""
    host = headers.get(b"host", b"").decode("latin-1").lower()
    return host if host.endswith("]") or ":" not in host else host.rpartition(":")[0]


def _wants_page(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a browser asks for a page: `text/html` by name, no stream, and no body."""
    if any(name in headers for name in _BODY):
        return False
    html = False
    for part in headers.get(b"accept", b"").decode("latin-1").lower().split(","):
        kind, *parameters = (one.strip() for one in part.split(";"))
        if kind == "text/event-stream":
            return False
        if kind == "text/html":
            html = not any(one.startswith("q=") and one[2:].strip(" 0.") == "" for one in parameters)
    return html
