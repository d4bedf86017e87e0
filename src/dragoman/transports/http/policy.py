"""Decides which web pages and hosts a server answers, and which bodies it accepts as JSON. Pure.

- A foreign `Origin` is 403 and a foreign `Host` 421, unless `options.origins` and `options.hosts` name them: a web page
  must not reach a server through its reader's browser. On loopback, loopback's own names are not foreign. On another
  address a page of this very server is not foreign (its origin is the Host), and neither is a Host that is an address
  or a name of this machine. A mounted ASGI app checks Host only where `options.hosts` is given, because a proxy in
  front may send any.
- A body is accepted as JSON when its `Content-Type` says so, in UTF-8; never as `text/plain`, which a
  foreign page may send without asking first.
- No CORS header unless `options.cors` names the page's origin.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from ...channel import Options
from .messages import JSON, Answer, Lines
from .refusals import plain_refusal

_SUFFIX = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+\+json")
_LOOPBACK_ORIGIN = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]+)?")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


@lru_cache(maxsize=256)
def is_json(value: bytes) -> bool:
    """Whether a body of this `Content-Type` may be taken as JSON text in UTF-8."""
    kind, *parameters = value.decode("latin-1").lower().split(";")
    kind = kind.strip()
    if kind not in (JSON, "application/json-rpc") and not _SUFFIX.fullmatch(kind):
        return False
    for parameter in parameters:
        name, _, text = parameter.strip().partition("=")
        if name.strip() == "charset" and text.strip().strip('"') not in ("utf-8", "utf8"):
            return False
    return True


def is_loopback(host: str) -> bool:
    """Whether this is the address of a loopback interface."""
    return host in ("localhost", "::1") or host.startswith(("127.", "::ffff:127."))


def _name(host: str) -> str:
    """A Host value without its port, in lower case."""
    host = host.lower()
    if host.endswith("]") or ":" not in host:
        return host
    return host.rpartition(":")[0]


EXPOSED = "Mcp-Session-Id, WWW-Authenticate, DPoP-Nonce, Retry-After"
"""Header fields of our answers that pages need; a page may only read fields that are listed (Fetch, 3.3.3)."""


def _is_address(name: str) -> bool:
    """Whether a Host value without its port is an address."""
    try:
        ipaddress.ip_address(name[1:-1] if name.startswith("[") else name)
    except ValueError:
        return False
    return True


class OriginPolicy:
    """The checks of `Host` and `Origin`, and what CORS adds.

    `names`: those of this machine, which are allowed as Host if it is not bound to loopback; None: a mounted app.
    """

    def __init__(self, options: Options, names: Iterable[str] | None = None) -> None:
        self.names: frozenset[str] | None = (
            None if names is None else LOOPBACK.union(_bracketed(name) for name in names)
        )
        self.hosts: set[str] | None = (
            None if options.hosts is None else {_bracketed(host) for host in _strings(options.hosts)}
        )
        self.origins: set[str] | None = (
            None if options.origins is None else {one.lower() for one in _strings(options.origins)}
        )
        self.cors: set[str] = {one.lower() for one in _strings(options.cors)}
        self._checked: dict[
            tuple[bytes | None, bytes | None, bool, bytes], tuple[Answer | None, tuple[tuple[str, str], ...]]
        ] = {}

    def check(
        self, headers: Mapping[bytes, bytes], loopback: bool, forwarded: bytes = b""
    ) -> tuple[Answer | None, tuple[tuple[str, str], ...]]:
        """The answer that refuses a foreign page, or None, and the CORS fields to add to any answer. `forwarded`: the
        host that a caller addressed at a trusted proxy."""
        key = (headers.get(b"host"), headers.get(b"origin"), loopback, forwarded)
        found = self._checked.get(key)
        if found is None:
            if len(self._checked) >= 256:
                self._checked.clear()
            found = self._checked[key] = (self._fault(*key), self._extra(key[1]))
        return found

    def _fault(self, host: bytes | None, origin: bytes | None, loopback: bool, forwarded: bytes = b"") -> Answer | None:
        # A browser always sends Host: a request without one (HTTP/1.0) does not come from a page.
        ours = None
        if host is not None and (self.hosts is not None or self.names is not None):
            ours = host.decode("latin-1").lower()
            outer = forwarded.decode("latin-1").lower()
            # A page of a browser on a proxy's machine can write X-Forwarded-Host, but not Host, so that is checked too.
            if outer and self.hosts is None:
                allowed = self._is_known(ours, loopback)
            elif outer:
                allowed = self._host(outer, loopback) and (self._is_known(ours, loopback) or self._host(ours, loopback))
            else:
                allowed = self._host(ours, loopback)
            ours = outer or ours
            if not allowed:
                return plain_refusal(
                    421, f"This server does not answer for the host {ours!r}; option hosts allows more"
                )
        if origin is not None and not self._origin(origin.decode("latin-1").lower(), ours, loopback, forwarded != b""):
            return plain_refusal(403, "Pages of this origin may not call this server; option origins allows more")
        return None

    def _host(self, host: str, loopback: bool) -> bool:
        if self.hosts is not None:
            return "*" in self.hosts or _name(host) in self.hosts or host in self.hosts
        return self._is_known(host, loopback)

    def _is_known(self, host: str, loopback: bool) -> bool:
        """Whether this is a name or address that can only mean this machine's own server."""
        name = _name(host)
        # A page cannot rebind a numeric address (DNS rebinding needs a name).
        return name in LOOPBACK if loopback else name in (self.names or ()) or _is_address(name)

    def _origin(self, origin: str, host: str | None, loopback: bool, forwarded: bool) -> bool:
        """`host`: the host of the request, if that is known to be this server. `forwarded`: a trusted proxy says so."""
        if origin in self.cors or "*" in self.cors:
            return True
        if self.origins is not None:
            return origin in self.origins or "*" in self.origins
        any_host = self.hosts is not None and "*" in self.hosts
        own = host is not None and not any_host and origin in (f"http://{host}", f"https://{host}")
        if loopback:
            return _LOOPBACK_ORIGIN.fullmatch(origin) is not None or (forwarded and own)
        return own

    def _extra(self, raw: bytes | None) -> tuple[tuple[str, str], ...]:
        if not self.cors:
            return ()
        origin = (raw or b"").decode("latin-1")
        if origin and (origin.lower() in self.cors or "*" in self.cors):
            return (
                ("Access-Control-Allow-Origin", origin),
                ("Access-Control-Expose-Headers", EXPOSED),
                ("Vary", "Origin"),
            )
        return (("Vary", "Origin"),)

    def preflight(self, headers: Mapping[bytes, bytes], extra: Lines, methods: str = "") -> Answer | None:
        """The answer to an OPTIONS request in which a browser asks whether a page may call; None for other requests.
        `methods`: those of a route; else the ones of an endpoint."""
        if len(extra) < 2 or b"access-control-request-method" not in headers:
            return None
        wanted = headers.get(b"access-control-request-headers", b"content-type").decode("latin-1")
        lines = [("Access-Control-Allow-Methods", methods or "GET, POST, DELETE"), ("Access-Control-Max-Age", "600")]
        return Answer(204, (*lines, ("Access-Control-Allow-Headers", wanted)))


def _strings(value: Iterable[str]) -> Iterable[str]:
    return (value,) if isinstance(value, str) else value


def _bracketed(host: str) -> str:
    """A host name in the form of `Host`: lower case, an IPv6 address in brackets."""
    return f"[{host}]".lower() if host.count(":") > 1 and not host.startswith("[") else host.lower()
