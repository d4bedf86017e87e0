"""Opens a console at its address, and lists it where `dragoman console` finds it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..access import Verifiers
from ..channel import Options
from ..jsonrpc.errors import LocalError
from ..net.sockets import CannotListen
from ..schemes import listen
from .address import ConsoleAddress
from .endpoint import LIMITS, Console, new_secret
from .gathering import ConsoleSource
from .listing import listed
from .page import ConsolePage


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


@asynccontextmanager
async def open_console(
    address: ConsoleAddress,
    source: ConsoleSource,
    name: str,
    *,
    tls: ssl.SSLContext | None = None,
    auth: Verifiers | None = None,
) -> AsyncIterator[str]:
    """Serve a console while the block runs; yields the URL to open in a browser.

    `name`: of what it shows. On loopback callers show a secret, which stands in the URL; elsewhere they come by TLS,
    and `auth` says who they are and which scopes they have. Raises LocalError where it cannot listen, or may not.
    """
    check_address(address, tls=tls, auth=auth)
    if address.loopback:
        console, scheme = Console(source, secret=new_secret()), "http"
    else:
        from ..auth.guard import protection_of  # noqa: PLC0415  (an extra, imported when used)

        assert auth is not None
        console, scheme = Console(source, secret=None, protection=protection_of(auth), hosts=None), "https"
    options = Options(
        limits=LIMITS,
        page=ConsolePage,
        server_tls=None if address.loopback else tls,
        hosts=None if address.loopback else ["*"],
        origins=None if address.loopback else ["*"],  # the console itself takes that of its own page alone
    )
    try:
        listener = await listen(f"{scheme}://{address}", {"": console}, options)
    except CannotListen as fault:  # which of the addresses of the server it is
        named = CannotListen(f"The console: {fault}")
        named.errno = fault.errno
        raise named from fault
    try:
        url = console.page_url(listener.url)
        with listed(name, url):
            yield url
    finally:
        await listener.close()
        await console.drain(LIMITS.drain_timeout)
        await listener.closed()
