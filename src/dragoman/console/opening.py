"""Opens a console at its address, and lists it where `dragoman console` finds it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..access import Verifiers
from ..channel import Options
from ..net.sockets import CannotListen
from ..schemes import listen
from .address import ConsoleAddress, check_address
from .endpoint import LIMITS, Console, new_secret
from .gathering import ConsoleSource
from .listing import listed
from .page import ConsolePage


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
