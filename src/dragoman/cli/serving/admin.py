"""`dragoman serve --admin PLACE`: what goes on in this process, or in all its workers, for its user alone.

The endpoint is a Unix socket with mode 0600, whose folder must be the user's own with mode 0700; or an address on
loopback, which speaks HTTP and requires a secret that is new at each start and printed on stderr alone. That one
answers no web page, with any `Origin`, and only names of loopback as `Host`. Both answer JSON-RPC 2.0, by what the
console answers: see `admin_service`. With workers the supervisor answers."""

from __future__ import annotations

import ipaddress
import os
import secrets
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from ...channel import Admitted, Denied, Guard, Handshake
from ...serving import serve as listen
from ...system.files import is_mine, others_may
from ...system.sockets import UNIX
from ..arguments import address_of
from ..exit_status import Usage
from ..lines import tell

if TYPE_CHECKING:
    from ...console import ConsoleSource

_WRITE: Final = "write the path of a Unix socket, as in run/admin.sock, or an address on loopback, as in 127.0.0.1:9091"
NO_SECRET: Final = "This needs the secret that dragoman serve --admin told when it started"


class AdminEndpoint(Struct, frozen=True):
    """Where the admin socket is. `secret`: what callers must show; None: the file system says who may come."""

    url: str
    secret: str | None = None
    hosts: tuple[str, ...] | None = None
    """What callers may have as `Host`."""


def endpoint_of(text: str) -> AdminEndpoint:
    """The endpoint that `--admin` names. Raises Usage for what is neither a path nor on loopback, and for a folder that
    others may enter."""
    if (found := address_of(text)) is not None:
        url, name = _loopback(text, *found)
        return AdminEndpoint(url, secrets.token_hex(), ("localhost", "127.0.0.1", "[::1]", name))
    if not text or "://" in text or set("?#%") & set(text):
        raise Usage(f"--admin {text}: {_WRITE}")
    if not UNIX:
        raise Usage(
            f"--admin {text}: this system has no Unix sockets in Python; write an address on loopback: 127.0.0.1:9091"
        )
    path = os.path.abspath(text.removeprefix("unix:"))  # as the URL of a socket is written elsewhere
    folder = os.path.dirname(path)
    try:
        found_at = os.stat(folder)
    except OSError:
        raise Usage(f"--admin {text}: there is no folder {folder}; make it with mkdir -m 700 {folder}") from None
    mode = stat.S_IMODE(found_at.st_mode)
    if not is_mine(found_at) or others_may(found_at):
        raise Usage(
            f"--admin {text}: others may enter {folder} (mode {mode:04o}, user {found_at.st_uid}); "
            f"it must be your own: chmod 700 {folder}"
        )
    return AdminEndpoint(f"unix:{path}")


def _loopback(text: str, host: str, port: int) -> tuple[str, str]:
    """The URL of an address on loopback: never of a name, which may mean another machine tomorrow."""
    name = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        fits = ipaddress.ip_address(name).is_loopback
    except ValueError:
        fits = False
    if not fits:
        raise Usage(
            f"--admin {text}: {host} is not loopback, and from elsewhere calls could be seen and ended; "
            f"write 127.0.0.1:{port}, [::1]:{port} or :{port}, and come from other machines through ssh -L"
        )
    if port > 65535:
        raise Usage(f"--admin {text}: a port is at most 65535")
    shown = host if ":" in name else name
    return f"http://{shown}:{port}", shown


def _guard(secret: str) -> Guard:
    """Lets in who shows the secret as a bearer token."""
    wanted = f"Bearer {secret}".encode()

    async def guard(handshake: Handshake) -> Admitted | Denied:
        given = [value for name, value in handshake.headers if name == b"authorization"]
        if len(given) == 1 and secrets.compare_digest(given[0], wanted):
            return Admitted()
        return Denied(reason=NO_SECRET, headers=[("WWW-Authenticate", 'Bearer realm="dragoman admin"')])

    return guard


@asynccontextmanager
async def admin(endpoint: AdminEndpoint, source: ConsoleSource) -> AsyncIterator[None]:
    """Answer at the endpoint while the block runs, and print the secret, if there is one. Raises LocalError if it
    cannot listen."""
    from .admin_service import admin_service  # noqa: PLC0415  (start-up: where there is one)

    guard = None if endpoint.secret is None else _guard(endpoint.secret)
    options: dict[str, Any] = {"guard": guard, "hosts": endpoint.hosts, "origins": (), "docs": False}
    async with listen(admin_service(source), urls=[endpoint.url], **options) as serving:
        if endpoint.secret is not None:  # without it the address is of no use: printed also where little is logged
            tell(f"admin at {serving.urls[0]} with the secret {endpoint.secret}", "info", always=True)
        yield
