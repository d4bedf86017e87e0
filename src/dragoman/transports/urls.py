"""One parser for the URLs of every wire.

Rules:

- `scheme://host:port/path?query`, the host of an IPv6 address in brackets; `unix:/abs`, `unix:rel.sock`
  and `unix:///abs`; `memory:name`; `stdio:`.
- A port stands where the wire needs one; http, https, ws and wss have their known ones.
- What cannot be understood is a `LocalError` that says what is wrong and what would be right.
- A password is never shown: errors and logs print `Url.shown` (`str(url)` and `repr(url)` are the same).
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv6Address
from types import MappingProxyType
from urllib.parse import parse_qsl, unquote

from msgspec import Struct, field

from ..jsonrpc.errors import LocalError

_BROKERS = {"amqp": 5672, "amqps": 5671, "mqtt": 1883, "mqtts": 8883, "nats": 4222, "natss": 4222}
_BROKERS |= {"redis": 6379, "rediss": 6379}
PORTS: Mapping[str, int | None] = MappingProxyType(
    {"http": 80, "ws": 80, "https": 443, "wss": 443, "tcp": None, "tls": None, "udp": None} | _BROKERS
)
"""The wires that have a host and a port, with the port that goes without saying (None: it must be said)."""

_WEB = ("http", "ws", "https", "wss")
PATHS = (*_WEB, *_BROKERS)
"""The wires whose URL may have a path, and a user with a password."""


class Url(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A URL, taken to pieces. `path` is the socket file of `unix:` and the name of `memory:`."""

    scheme: str
    host: str = ""
    """Without the brackets of an IPv6 address; "" for every address of this machine (when listening)."""
    port: int = 0
    path: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    """Path and query as they were written, for an HTTP request line; "/" at least on the wires that have paths."""
    user: str | None = None
    password: str | None = None

    @property
    def address(self) -> str:
        """Host and port in words: "127.0.0.1:9000", "[::1]:9000"."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def auth(self) -> tuple[str, str] | None:
        """User and password, where the URL has them."""
        return None if self.user is None else (self.user, self.password or "")

    @property
    def shown(self) -> str:
        """The URL for errors and logs: without the password, and without what the query says."""
        who = "" if self.user is None else "***@" if self.password is None else f"{self.user}:***@"
        if self.scheme in PORTS:
            return printable(f"{self.scheme}://{who}{self.address}{self.path if self.path != '/' else ''}")
        return printable(f"{self.scheme}:{self.path}")

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        return f"Url({self.shown!r})"


def printable(text: str, longest: int = 300) -> str:
    """One line that is safe to print: control characters and the like escaped, the rest cut off."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)
    return text if len(text) <= longest else text[: longest - 3] + "..."


def scheme_of(url: str) -> str:
    """The scheme in lower case, "" where there is none."""
    head, colon, _ = url.partition(":")
    plain = head.isascii() and head[:1].isalpha() and all(c.isalnum() or c in "+-." for c in head)
    return head.lower() if colon and plain else ""


def parse(url: str) -> Url:
    """Take a URL to pieces. LocalError for what is none, or lacks what its wire needs."""
    scheme = scheme_of(url)
    if not scheme:
        raise LocalError(f"{masked(url)!r} is no URL: it has no scheme such as tcp:// or unix:")
    if "#" in url and scheme in PORTS:
        raise LocalError(f"{masked(url)}: a fragment (#...) means nothing here; leave it out")
    if any(c.isspace() or not c.isprintable() for c in url) and scheme in PORTS:
        raise LocalError(f"{masked(url)}: a URL has no spaces or control characters; write %20")
    rest = url[len(scheme) + 1 :]
    body, _, query = rest.partition("?")
    if scheme in PORTS:
        return _located(url, scheme, body, query)
    return _named(url, scheme, body, query)


def _named(url: str, scheme: str, body: str, query: str) -> Url:
    """unix:, memory:, stdio: and whatever else has a name in place of a host."""
    name = unquote(body)
    if name.startswith("//"):
        name = name[2:]
        if scheme == "unix" and name and not name.startswith("/"):
            raise LocalError(f"{masked(url)}: write unix:/{name} for an absolute path, unix:{name} for a relative one")
    if scheme in ("unix", "memory") and not name:
        raise LocalError(f"{masked(url)}: {scheme}: needs a {'path' if scheme == 'unix' else 'name'} after the colon")
    if "\0" in name:
        raise LocalError(f"{masked(url)}: a path has no NUL character")
    if scheme == "stdio" and name:
        raise LocalError(f"{masked(url)}: stdio: takes no path; it is this process's own standard input and output")
    return Url(scheme=scheme, path=name, query=_query(url, query))


def _located(url: str, scheme: str, body: str, query: str) -> Url:
    """The wires with a host and a port."""
    if not body.startswith("//"):
        raise LocalError(f"{masked(url)}: write {scheme}://host:port")
    authority, slash, tail = body[2:].partition("/")
    who, at, place = authority.rpartition("@")
    user = password = None
    if at:
        if scheme not in PATHS:
            raise LocalError(f"{masked(url)}: {scheme}:// has no user and password")
        name, colon, secret = who.partition(":")
        user, password = unquote(name), unquote(secret) if colon else None
    host, port = _place(url, scheme, place)
    path = slash + tail
    if scheme not in PATHS:
        if path not in ("", "/"):
            raise LocalError(f"{masked(url)}: {scheme}:// has no path; leave {printable(path)!r} out")
        path = ""
    target = ""
    if scheme in PATHS:
        path = path or "/"
        target = f"{path}?{query}" if query else path
    return Url(
        scheme=scheme,
        host=host,
        port=port,
        path=unquote(path),
        query=_query(url, query),
        target=target,
        user=user,
        password=password,
    )


def _place(url: str, scheme: str, place: str) -> tuple[str, int]:
    """Host and port, checked."""
    if place.startswith("["):
        host, bracket, after = place[1:].partition("]")
        if not bracket or (after and not after.startswith(":")):
            raise LocalError(f"{masked(url)}: an IPv6 address stands in brackets, as in {scheme}://[::1]:9000")
        try:
            IPv6Address(unquote(host))
        except ValueError:
            raise LocalError(f"{masked(url)}: [{printable(host)}] is no IPv6 address") from None
        digits = after[1:]
    else:
        if place.count(":") > 1:
            raise LocalError(f"{masked(url)}: an IPv6 address stands in brackets, as in {scheme}://[::1]:9000")
        host, _, digits = place.partition(":")
    known = PORTS[scheme]
    if not digits:
        if known is None:
            raise LocalError(f"{masked(url)}: {scheme}:// needs a port, as in {scheme}://{host or '127.0.0.1'}:9000")
        return unquote(host), known
    if not (digits.isascii() and digits.isdigit()) or int(digits[:9]) > 65535:
        raise LocalError(f"{masked(url)}: {printable(digits)!r} is no port; a port is a number from 0 to 65535")
    return unquote(host), int(digits)


def _query(url: str, query: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    found = dict(pairs)
    if len(found) != len(pairs) and scheme_of(url) not in _WEB:  # there the query is the server's, and sent as it is
        twice = next(name for i, (name, _) in enumerate(pairs) if name in dict(pairs[:i]))
        raise LocalError(f"{masked(url)}: {printable(twice)!r} stands twice in the query")
    return found


def masked(url: str) -> str:
    """A URL that may not even be one, with whatever could be a secret in it hidden, in one line."""
    url = url.partition("?")[0]
    head, mark, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    if "@" in rest:
        who, _, place = rest.rpartition("@")
        return printable(
            f"{head}{mark}{who.partition(':')[0]}:***@{place}" if ":" in who else f"{head}{mark}***@{place}"
        )
    return printable(f"{head}{mark}{authority}{slash}{path}")
