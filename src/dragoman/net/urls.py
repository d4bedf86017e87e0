"""One parser for the URLs of every wire.

Rules:

- `scheme://host:port/path?query`, the host of an IPv6 address in brackets; `unix:/abs`, `unix:rel.sock`
  and `unix:///abs`; `memory:name`; `stdio:`.
- The port is required where the wire needs one; http, https, ws and wss have their known ones.
- A URL that cannot be understood is a `LocalError` that says what is wrong and what would be right.
- A password is never shown: errors and logs print `Url.shown` (`str(url)` and `repr(url)` are the same).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from msgspec import Struct, field

from ..jsonrpc.errors import LocalError
from .scheme import SCHEMES, has_host, has_path, is_tls, without_tls


class Url(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A parsed URL. `path` is the socket file of `unix:` and the name of `memory:`."""

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
    def tls(self) -> bool:
        """Whether its scheme is one with TLS."""
        return is_tls(self.scheme)

    @property
    def plain(self) -> str:
        """Its scheme without TLS: "tcp" for "tls"."""
        return without_tls(self.scheme)

    @property
    def address(self) -> str:
        """Host and port as text: "127.0.0.1:9000", "[::1]:9000"; on other wires the name, "memory:name"."""
        if not has_host(self.scheme):
            return self.shown
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def auth(self) -> tuple[str, str] | None:
        """User and password, if the URL has them."""
        return None if self.user is None else (self.user, self.password or "")

    @property
    def shown(self) -> str:
        """The URL for errors and logs: without the password and the query."""
        who = "" if self.user is None else "***@" if self.password is None else f"{self.user}:***@"
        if has_host(self.scheme):
            return printable(f"{self.scheme}://{who}{self.address}{self.path if self.path != '/' else ''}")
        return printable(f"{self.scheme}:{self.path}")

    @property
    def bare(self) -> str:
        """The URL without user, password and query."""
        return (
            self.shown
            if not has_host(self.scheme)
            else printable(f"{self.scheme}://{self.address}{self.path.rstrip('/')}")
        )

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        return f"Url({self.shown!r})"


def printable(text: str, longest: int = 300) -> str:
    """One line that is safe to print: control characters and the like escaped, the rest cut off."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)
    return text if len(text) <= longest else text[: longest - 3] + "..."


def scheme_of(url: str) -> str:
    """The scheme in lower case, "" without one. One letter is a drive of Windows, as in `C:\\server.exe`."""
    head, colon, _ = url.partition(":")
    plain = len(head) > 1 and head.isascii() and head[:1].isalpha() and all(c.isalnum() or c in "+-." for c in head)
    return head.lower() if colon and plain else ""


def is_standard(url: str) -> bool:
    """Whether a URL is the process's own standard input and output."""
    return (row := SCHEMES.get(scheme_of(url))) is not None and row.standard


def parse(url: str) -> Url:
    """Parse a URL. Raises LocalError for an invalid one, or one that lacks what its wire needs."""
    scheme = scheme_of(url)
    if not scheme:
        raise LocalError(f"{mask_url(url)!r} is not a URL: it has no scheme such as tcp:// or unix:")
    if "#" in url and has_host(scheme):
        raise LocalError(f"{mask_url(url)}: a fragment (#...) means nothing here; leave it out")
    if any(c.isspace() or not c.isprintable() for c in url) and has_host(scheme):
        raise LocalError(f"{mask_url(url)}: a URL has no spaces or control characters; write %20")
    rest = url[len(scheme) + 1 :]
    body, _, query = rest.partition("?")
    if has_host(scheme):
        return _located(url, scheme, body, query)
    return _named(url, scheme, body, query)


def _named(url: str, scheme: str, body: str, query: str) -> Url:
    """Parse unix:, memory:, stdio: and other URLs with a name instead of a host."""
    name = _decoded(body)
    if name.startswith("//"):
        name = name[2:]
        if scheme == "unix" and name and not name.startswith("/"):
            raise LocalError(
                f"{mask_url(url)}: write unix:/{name} for an absolute path, unix:{name} for a relative one"
            )
    if scheme in SCHEMES and SCHEMES[scheme].address == "name" and not name:
        raise LocalError(f"{mask_url(url)}: {scheme}: needs a {'path' if scheme == 'unix' else 'name'} after the colon")
    if "\0" in name:
        raise LocalError(f"{mask_url(url)}: a path has no NUL character")
    if is_standard(url) and name:
        raise LocalError(
            f"{mask_url(url)}: {scheme}: takes no path; it is this process's own standard input and output"
        )
    return Url(scheme=scheme, path=name, query=_query(url, query))


def _located(url: str, scheme: str, body: str, query: str) -> Url:
    """Parse the URL of a wire with a host and a port."""
    if not body.startswith("//"):
        raise LocalError(f"{mask_url(url)}: write {scheme}://host:port")
    authority, slash, tail = body[2:].partition("/")
    who, at, authority_host = authority.rpartition("@")
    user = password = None
    if at:
        if not has_path(scheme):
            raise LocalError(f"{mask_url(url)}: {scheme}:// has no user and password")
        name, colon, secret = who.partition(":")
        user, password = _decoded(name), _decoded(secret) if colon else None
    host, port = _host_and_port(url, scheme, authority_host)
    path = slash + tail
    if not has_path(scheme):
        if path not in ("", "/"):
            raise LocalError(f"{mask_url(url)}: {scheme}:// has no path; leave {printable(path)!r} out")
        path = ""
    target = ""
    if has_path(scheme):
        path = path or "/"
        target = f"{path}?{query}" if query else path
    return Url(
        scheme=scheme,
        host=host,
        port=port,
        path=_decoded(path),
        query=_query(url, query),
        target=target,
        user=user,
        password=password,
    )


def _host_and_port(url: str, scheme: str, authority_host: str) -> tuple[str, int]:
    """Host and port, checked. Raises LocalError."""
    if authority_host.startswith("["):
        host, bracket, after = authority_host[1:].partition("]")
        from ipaddress import IPv6Address  # noqa: PLC0415  (start-up: for such an address)

        if not bracket or (after and not after.startswith(":")):
            raise LocalError(f"{mask_url(url)}: an IPv6 address stands in brackets, as in {scheme}://[::1]:9000")
        try:
            IPv6Address(_decoded(host))
        except ValueError:
            raise LocalError(f"{mask_url(url)}: [{printable(host)}] is not an IPv6 address") from None
        digits = after[1:]
    else:
        if authority_host.count(":") > 1:
            raise LocalError(f"{mask_url(url)}: an IPv6 address stands in brackets, as in {scheme}://[::1]:9000")
        host, _, digits = authority_host.partition(":")
    known = SCHEMES[scheme].port
    if not digits:
        if known is None:
            raise LocalError(f"{mask_url(url)}: {scheme}:// needs a port, as in {scheme}://{host or '127.0.0.1'}:9000")
        return _decoded(host), known
    if not (digits.isascii() and digits.isdigit()) or int(digits[:9]) > 65535:
        raise LocalError(f"{mask_url(url)}: {printable(digits)!r} is not a port; a port is a number from 0 to 65535")
    return _decoded(host), int(digits)


def _decoded(text: str) -> str:
    """A part of a URL without its percent-encoding."""
    if "%" not in text:
        return text
    from urllib.parse import unquote  # noqa: PLC0415  (start-up: for such a text)

    return unquote(text)


def _query(url: str, query: str) -> dict[str, str]:
    if not query:
        return {}
    from urllib.parse import parse_qsl  # noqa: PLC0415  (start-up: for a query)

    pairs = parse_qsl(query, keep_blank_values=True)
    found = dict(pairs)
    row = SCHEMES.get(scheme_of(url))
    if len(found) != len(pairs) and not (row is not None and row.query_of_server):
        twice = next(name for i, (name, _) in enumerate(pairs) if name in dict(pairs[:i]))
        raise LocalError(f"{mask_url(url)}: {printable(twice)!r} stands twice in the query")
    return found


def shown_target(target: object) -> str:
    """Return the target of `connect` or of a client as a `repr` may show it: a URL without its password and query; the
    program of a command, without its arguments, which may hold secrets; the `repr` of anything else."""
    if not isinstance(target, str):
        return f"command {str(target[0])!r}" if isinstance(target, list | tuple) and target else repr(target)
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", target) or target.startswith("stdio:"):
        return f"command {printable(target.removeprefix('stdio:').split(maxsplit=1)[0] if target.split() else '')!r}"
    try:
        return parse(target).shown
    except LocalError:
        return "a URL that cannot be read"


def mask_url(url: str) -> str:
    """A URL, even an invalid one, with everything hidden that may be secret, in one line."""
    url = url.partition("?")[0]
    head, mark, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    if "@" in rest:
        who, _, authority_host = rest.rpartition("@")
        return printable(
            f"{head}{mark}{who.partition(':')[0]}:***@{authority_host}"
            if ":" in who
            else f"{head}{mark}***@{authority_host}"
        )
    return printable(f"{head}{mark}{authority}{slash}{path}")


# -- options in a URL's query ---------------------------------------------------------------------


def read_query(where: Url, *known: str) -> Mapping[str, str]:
    """The URL's query. Raises LocalError for a name that is not one of `known`."""
    for name in where.query:
        if name not in known:
            raise LocalError(f"{where.shown}: ?{printable(name)}= means nothing here; known are {', '.join(known)}")
    return where.query


def number(where: Url, name: str, default: int, least: int = 1) -> int:
    """A number in the URL's query. Raises LocalError if it is not a number or below `least`."""
    text = where.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 16) or int(text) < least:
        raise LocalError(f"{where.shown}: ?{name}= is a whole number from {least} on, not {printable(text)!r}")
    return int(text)


def address(where: Url, name: str = "queue", *, legal: str = r"[^\s\x00-\x1f]{1,200}") -> tuple[str, str]:
    """Return the address that a URL names and the path before it: the value of `?queue=` (`name`) and the whole path,
    or else the last part of the path and the parts before it. Raises LocalError if there is none, or if it does not
    match `legal`."""
    path = where.path.strip("/")
    before, _, last = path.rpartition("/")
    found = where.query.get(name)
    if found is not None:
        before, last = path, found
    if not last:
        raise LocalError(f"{where.shown}: name the service, as in {where.scheme}://{where.address}/calculator")
    if not re.fullmatch(legal, last):
        raise LocalError(f"{where.shown}: {printable(last)!r} cannot name a service on this wire")
    return last, before


def choice(where: Url, name: str, default: str, other: str) -> str:
    """One of two values in the URL's query. Raises LocalError for another."""
    chosen = where.query.get(name, default)
    if chosen not in (default, other):
        raise LocalError(f"{where.shown}: ?{name}= is {default} or {other}, not {printable(chosen)!r}")
    return chosen


def credentials(where: Url) -> tuple[str, str] | None:
    """User and password: the URL's, otherwise those in the environment (`DRAGOMAN_AMQP_USER`, `DRAGOMAN_AMQP_PASSWORD`;
    the middle part is the broker's scheme without TLS: AMQP, MQTT, NATS, REDIS)."""
    if where.user is not None:
        return where.user, where.password or ""
    kind = where.plain.upper()
    user, password = os.environ.get(f"DRAGOMAN_{kind}_USER"), os.environ.get(f"DRAGOMAN_{kind}_PASSWORD")
    return None if user is None and password is None else (user or "", password or "")
