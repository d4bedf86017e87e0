"""The one table of schemes: a row says how a URL of that scheme looks, and which functions implement it.

`urls` reads how a URL is written, `connect`, `serve` and `open_bus` which function to call, workers what they share,
the command and the documentation the rest. The functions are given by dotted names, because their modules are above
this one; they are imported when their scheme is used, so an unused wire costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct

from ..jsonrpc.errors import needs


class Scheme(Struct, frozen=True, kw_only=True):
    """One row of the table: what URLs of a scheme look like, and what implements them."""

    address: Literal["host", "path", "name", ""]
    """What a URL names. "host": a host and a port; "path": also a path, and perhaps a user with a password; "name": a
    name or a file; "": nothing."""
    port: int | None = None
    """The default port; None: the port is required, or there is none."""
    query_of_server: bool = False
    """True: the URL's query is sent to the server; False: it contains options of ours."""
    plain: str = ""
    """For a scheme with TLS: the scheme without."""
    dial: str = ""
    """`async (url, Options) -> Channel`: connects."""
    listen: str = ""
    """`async (url, {path: Servable}, Options) -> Listener`: serves."""
    open_bus: str = ""
    """`async (url, tls) -> Bus`: opens a bus; "" if the scheme has none."""
    unguarded: str = ""
    """Why it cannot ask a guard (`Options.guard`), so that `guard=` is refused; "" if it can."""
    socket: Literal["stream", "datagram", "unix", ""] = ""
    """The kind of socket from which several processes can accept, once it is bound."""
    alone: str = ""
    """Why several processes cannot serve it; "" if they can."""
    standard: bool = False
    """It is the standard input and output of this process: nothing else may be written there, and it has one caller."""
    packages: Mapping[str, str] = MappingProxyType({})
    """Third-party packages that it needs, with the extra of ours that installs each."""


_HTTP = {"httptools": "http"}
_WEBSOCKET = {"websockets": "websocket", **_HTTP}
_ONE_MEMORY = "what is in one process's memory cannot be shared by several"


def _pair(plain: str, secure: str, port: int | None, tls_port: int | None, **row: Any) -> dict[str, Scheme]:
    """Two rows: one without TLS and one with it."""
    return {plain: Scheme(port=port, **row), secure: Scheme(port=tls_port, plain=plain, **row)}


def _web(plain: str, secure: str, dial: str, packages: Mapping[str, str]) -> dict[str, Scheme]:
    wire: dict[str, Any] = {
        "dial": dial,
        "listen": "transports.http.listener.listen",
        "socket": "stream",
        "packages": packages,
    }
    return _pair(plain, secure, 80, 443, address="path", query_of_server=True, **wire)


def _broker(engine: str, secure: str, port: int, tls_port: int, package: str, bus: str = "") -> dict[str, Scheme]:
    at = f"engines.{engine}"
    wire = {"dial": f"{at}.wire.dial", "listen": f"{at}.wire.listen", "open_bus": f"{at}.{bus}.open" if bus else ""}
    return _pair(engine, secure, port, tls_port, address="path", packages={package: engine}, **wire)


def _both(module: str) -> dict[str, Any]:
    return {"dial": f"transports.{module}.dial", "listen": f"transports.{module}.listen"}


SCHEMES: Mapping[str, Scheme] = MappingProxyType(
    {
        **_web("http", "https", "transports.http.client.channel.dial", _HTTP),
        **_web("ws", "wss", "transports.http.client.socket.dial", _WEBSOCKET),
        **_pair("tcp", "tls", None, None, address="host", socket="stream", **_both("stream.listener")),
        "unix": Scheme(address="name", socket="unix", open_bus="bus.unix.open", **_both("stream.listener")),
        "udp": Scheme(
            address="host",
            socket="datagram",
            unguarded="a datagram tells an address that any sender can forge, and no handshake proves it",
            **_both("udp"),
        ),
        "memory": Scheme(
            address="name",
            alone=_ONE_MEMORY,
            unguarded="a caller in this process can do all that the process can",
            open_bus="bus.memory.open",
            **_both("memory"),
        ),
        "memory+broker": Scheme(address="name", alone=_ONE_MEMORY, **_both("broker.memory")),
        "stdio": Scheme(
            address="",
            standard=True,
            alone="a process has one standard input, which workers cannot share",
            unguarded="the caller is the process that started this one, and it runs as the local user does",
            **_both("stream.stdio"),
        ),
        **_broker("amqp", "amqps", 5672, 5671, "aiormq", "bus"),
        **_broker("mqtt", "mqtts", 1883, 8883, "paho"),
        **_broker("nats", "natss", 4222, 4222, "nats", "bus"),
        **_broker("redis", "rediss", 6379, 6379, "redis", "bus"),
    }
)
"""Scheme -> its row."""
_TLS = frozenset(scheme for scheme, row in SCHEMES.items() if row.plain)


def has_host(scheme: str) -> bool:
    """Whether its URLs have a host and a port."""
    return (row := SCHEMES.get(scheme)) is not None and row.address in ("host", "path")


def is_tls(scheme: str) -> bool:
    """Whether it is one with TLS."""
    return scheme in _TLS


def without_tls(scheme: str) -> str:
    """The same scheme without TLS."""
    row = SCHEMES.get(scheme)
    return scheme if row is None else row.plain or scheme


def has_path(scheme: str) -> bool:
    """Whether its URLs may have a path, and a user with a password."""
    return (row := SCHEMES.get(scheme)) is not None and row.address == "path"


def load(scheme: str, dotted: str) -> Callable[..., Any]:
    """The function that a row names. Raises LocalError, with the extra to install, if a package is missing."""
    module, _, name = dotted.rpartition(".")
    try:
        found: Callable[..., Any] = getattr(import_module(f"..{module}", __package__), name)
    except ModuleNotFoundError as missing:
        raise missing_package_error(scheme, missing) from missing
    return found


def missing_package_error(scheme: str, missing: ModuleNotFoundError) -> Exception:
    """The error for a missing package: the extra that installs it; the same error if no extra does."""
    package = (missing.name or "").partition(".")[0]
    extra = SCHEMES[scheme].packages.get(package)
    if extra is None:
        return missing
    return needs(f"{scheme}://", package, extra)
