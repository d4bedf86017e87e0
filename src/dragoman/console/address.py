"""Where a console listens: an address on loopback, or another one behind TLS and a guard."""

from __future__ import annotations

import ipaddress
import ssl

from msgspec import Struct

from ..access import Verifiers
from ..jsonrpc.errors import LocalError

_WRITE = "write a port, as in 9092, or an address, as in 127.0.0.1:9092 or [::1]:9092"


class ConsoleAddress(Struct, frozen=True):
    """An address. `host`: as a URL has it; `loopback`: only this machine reaches it."""

    host: str
    port: int
    loopback: bool

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def read_address(text: str | int, option: str) -> ConsoleAddress:
    """Return the address that a text names: "[HOST:]PORT", on loopback where there is no host. `option`: what said it.
    Raises LocalError for anything else, and for a host that is a name, which may mean another machine tomorrow."""
    host, _, port = f"{text}".rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) <= 65535):
        raise LocalError(f"{option} {text}: {_WRITE}; a port is 0 to 65535, and 0 is any that is free")
    name = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    try:
        found = ipaddress.ip_address("127.0.0.1" if name == "localhost" else name)
    except ValueError:
        raise LocalError(f"{option} {text}: {host} is no address of this machine; {_WRITE}") from None
    return ConsoleAddress(f"[{found}]" if found.version == 6 else f"{found}", int(port), found.is_loopback)


def check_address(address: ConsoleAddress, *, tls: ssl.SSLContext | None, auth: Verifiers | None) -> None:
    """Raise LocalError for an address that others reach, unless there is TLS, and something that says who they are."""
    if address.loopback:
        return
    lacking = [
        name for name, given in (("a certificate for TLS", tls), ("auth, which knows callers", auth)) if not given
    ]
    if lacking:
        raise LocalError(
            f"the console at {address}: others reach this address, and there it needs {' and '.join(lacking)}; let it be "
            f"at 127.0.0.1:{address.port}, and come from other machines through ssh -L"
        )
