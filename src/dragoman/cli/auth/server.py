"""`dragoman auth server`: an authorization server for development and tests, with test users and keys of this run."""

from __future__ import annotations

import asyncio
import signal
import ssl
from dataclasses import dataclass, field
from typing import Annotated

from cyclopts import App, Group, Parameter
from rich.text import Text

from ...auth.server import AuthorizationServer, Client, User, check_issuer
from ...jsonrpc.errors import LocalError
from ...serving import serve
from ...system.signals import TERMINATE, on_signal
from ..exit_status import FINE, Usage
from ..options import OUTPUT, Output, server_tls
from ..terminal import compact, say, show_rows

GROUP = Group("Authorization server", sort_key=10)

app: App = App(
    name="server",
    usage="Usage: dragoman auth server [OPTIONS] [URL]",
    help_epilogue="""\
Examples:

  dragoman auth server
  dragoman auth server --automatic alice --registration
  dragoman auth server http://127.0.0.1:9000 --scope notes:read \\
      --resource http://127.0.0.1:8000/mcp

It is for development and tests: users are the ones named here, consent may be
automatic, and keys, clients and grants end with the process.""",
)


@Parameter(name="*", group=GROUP, show_default=False)
@dataclass(frozen=True, kw_only=True)
class AuthServerOptions:
    """Options of the authorization server."""

    issuer: Annotated[str | None, Parameter(metavar="URL")] = None
    """The URL by which clients know it, if that is not the one it listens at."""
    user: Annotated[list[str], Parameter(metavar="NAME")] = field(default_factory=list)
    """A user who may log in, without a password; default: alice and bob."""
    automatic: Annotated[str | None, Parameter(metavar="NAME")] = None
    """This user agrees to everything at once, without a page."""
    resource: Annotated[list[str], Parameter(metavar="URL")] = field(default_factory=list)
    """Issue tokens for these servers alone; the first is that of requests that name none. Default: any."""
    scope: Annotated[list[str], Parameter(metavar="NAME")] = field(default_factory=list)
    """The scopes there are; default: any."""
    client: Annotated[list[str], Parameter(metavar="ID=REDIRECT")] = field(default_factory=list)
    """A public client and its redirect URI; loopback ones take any port."""
    registration: bool = False
    """Clients may register themselves (RFC 7591)."""
    dpop_nonce: bool = False
    """DPoP proofs need a nonce of this server."""
    cors: Annotated[list[str], Parameter(metavar="ORIGIN")] = field(default_factory=list)
    """Origins of web pages that may read its answers."""
    tls_cert: Annotated[str | None, Parameter(metavar="FILE")] = None
    """The certificate chain for https, as PEM."""
    tls_key: Annotated[str | None, Parameter(metavar="FILE")] = None
    """The private key, if it is not in the same file."""
    quiet: Annotated[bool, Parameter(alias="-q")] = False
    """Do not print what is served and where."""


NONE = AuthServerOptions()


@app.default
def server(url: str = "http://127.0.0.1:9000", /, *, options: AuthServerOptions = NONE, output: Output = OUTPUT) -> int:
    """Run an authorization server for development and tests; not for production.

    Parameters
    ----------
    url
        Where it listens: http on loopback, or https.
    """
    tls = server_tls(options.tls_cert, options.tls_key)
    try:
        check_issuer(url.rstrip("/"))  # where it listens: no plain HTTP off loopback there either
        made = AuthorizationServer(
            options.issuer or url.rstrip("/"),
            users=[User(name=name) for name in options.user],
            automatic=options.automatic,
            clients=[_client(text) for text in options.client],
            scopes=options.scope,
            resources=options.resource,
            registration=options.registration,
            dpop_nonce=options.dpop_nonce,
        )
    except LocalError as fault:
        raise Usage(str(fault)) from None
    if not options.quiet and not output.json:
        say("This authorization server is for development and tests, not for production.", "yellow")
    asyncio.run(_serve(made, url, tls, options, output))
    return FINE


def _client(text: str) -> Client:
    id, equals, uri = text.partition("=")
    if not id or not equals:
        raise Usage(f"--client {text}: write ID=REDIRECT, as in notes=http://127.0.0.1/callback")
    return Client(id=id, redirect_uris=(uri,))


async def _serve(
    made: AuthorizationServer, url: str, tls: ssl.SSLContext | None, options: AuthServerOptions, output: Output
) -> None:
    """Serve until SIGINT or SIGTERM."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGINT, TERMINATE):
        on_signal(loop, one, ended.set)
    origins = ("*",) if options.cors else None
    async with serve(made, urls=url.rstrip("/"), tls=tls, cors=options.cors, origins=origins) as serving:
        if options.issuer is None:
            made.engine.move_to(serving.urls[0].rstrip("/"))  # port 0 is a port by now
        _announce(made, output, options)
        await ended.wait()


def _announce(made: AuthorizationServer, output: Output, options: AuthServerOptions) -> None:
    settings = made.engine.settings
    facts = {"issuer": settings.issuer, "users": [one.name for one in made.users], "automatic": options.automatic}
    if output.json:
        print(compact(facts), flush=True)
    elif not options.quiet:
        consent = f"{options.automatic} agrees to everything" if options.automatic else "each login shows a page"
        rows = (
            ("issuer", settings.issuer),
            ("users", ", ".join(one.name for one in made.users)),
            ("consent", consent),
            ("registration", "open" if settings.registration else "off; --registration opens it"),
            ("tokens for", ", ".join(settings.resources) or "any resource"),
        )
        show_rows((Text(name, "bold"), value) for name, value in rows)
