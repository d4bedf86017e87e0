"""`dragoman login`, `logout`, `whoami` and `tokens`: the logins of a user at protected servers."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from cyclopts import App, Parameter
from rich.text import Text

from ...auth.client.entries import StoredLogin, end, entries, entry_of
from ...auth.client.probing import probe
from ...auth.client.sources import Login
from ...auth.client.store import FileStore
from ...auth.errors import AuthError
from ...auth.fetch import Fetcher
from ...auth.metadata import canonical
from ...channel import ChannelError
from ...net.urls import parse
from ...system.words import quote_word
from ..exit_status import ANSWERED_WITH_ERROR, FINE, Ending, NoAnswer, Usage
from ..options import OUTPUT, AccessOptions, Output
from ..terminal import say, show, show_ending, show_rows

T = TypeVar("T")

app: App = App(
    name="login",
    help_epilogue="""\
Examples:

  dragoman login https://mcp.example.org/mcp
  dragoman login https://mcp.example.org/mcp --device
  dragoman login https://mcp.example.org/mcp --account work
  dragoman login https://mcp.example.org/mcp --scope notes:read --scope admin
  dragoman login https://mcp.example.org/mcp --client-id my-client \\
      --issuer https://login.example

The secret of a client stands in DRAGOMAN_CLIENT_SECRET. Tokens are kept in
files that only you can read, sealed with a key in the system's keyring if
there is one. All commands of MCP servers use them, and renew them.""",
)
logout_app: App = App(
    name="logout",
    help_epilogue="""\
Examples:

  dragoman logout https://mcp.example.org/mcp
  dragoman logout https://mcp.example.org/mcp --account work
  dragoman logout https://mcp.example.org/mcp --client-id my-client
  dragoman logout https://mcp.example.org/mcp --forget""",
)
whoami_app: App = App(
    name="whoami",
    help_epilogue="""\
Examples:

  dragoman whoami https://mcp.example.org/mcp
  dragoman whoami https://mcp.example.org/mcp --account work
  dragoman whoami https://mcp.example.org/mcp --json""",
)
tokens_app: App = App(
    name="tokens",
    help_epilogue="""\
Examples:

  dragoman tokens
  dragoman tokens --json
  dragoman tokens --output ndjson""",
)


@Parameter(name="*", show_default=False)
@dataclass(frozen=True, kw_only=True)
class LoginOptions:
    """Options of a login."""

    account: Annotated[str, Parameter(metavar="NAME")] = "default"
    """Distinguishes several logins at one server."""
    scope: Annotated[list[str], Parameter(metavar="SCOPE")] = field(default_factory=list)
    """Ask for this scope instead of what the server asks for; any number of times."""
    issuer: Annotated[str | None, Parameter(metavar="URL")] = None
    """The only authorization server to use."""
    resource: Annotated[str | None, Parameter(metavar="URI")] = None
    """The resource to ask for; "none" asks for none, as Entra wants it."""
    client_id: Annotated[str | None, Parameter(metavar="ID")] = None
    """The id of a client that was registered by hand."""
    client_metadata_url: Annotated[str | None, Parameter(metavar="URL")] = None
    """The client id metadata document that you host."""
    redirect_port: Annotated[int, Parameter(metavar="PORT")] = 0
    """Listen on this port for the answer, because the registration says so."""
    device: bool = False
    """Log in with a code on another device."""
    dpop: bool = False
    """Bind the tokens to a key."""
    assume_pkce: bool = False
    """The server does S256 without saying so, as Entra and Cognito do."""
    allow_private: Annotated[list[str], Parameter(metavar="HOST")] = field(default_factory=list)
    """A host in a private network that the server's documents may name; any number of times."""
    no_browser: bool = False
    """Print the URL and open nothing."""
    ca: Annotated[str | None, Parameter(metavar="FILE")] = None
    """Trust the certificates in FILE, for a server and an issuer of a company."""

    def login(self, store: FileStore) -> Login:
        """The login that these ask for."""
        given: dict[str, Any] = {} if self.resource is None else {"resource": self.resource}
        if self.resource == "none":
            given["resource"] = None
        return Login(
            account=self.account,
            scopes=self.scope or None,
            issuer=self.issuer,
            client_id=self.client_id,
            client_secret=os.environ.get("DRAGOMAN_CLIENT_SECRET") if self.client_id is not None else None,
            client_metadata_url=self.client_metadata_url,
            redirect_port=self.redirect_port,
            device=self.device,
            dpop=self.dpop,
            pkce="assume" if self.assume_pkce else "required",
            allow_private=self.allow_private,
            browser=not self.no_browser,
            store=store,
            **given,
        )


LOGIN_OPTIONS = LoginOptions()


def run_authorization(work: Coroutine[Any, Any, T]) -> T:
    """What the work returns. An error of authorization is raised as one that ends the command as no answer does."""
    try:
        return asyncio.run(work)
    except ChannelError:
        raise
    except AuthError as error:
        raise NoAnswer(str(error)) from None


async def stored_login(url: str, account: str = "default", *, interactive: bool) -> tuple[Login, StoredLogin | None]:
    """The login of commands that call a server, as the client that logged in there, and what is stored of it."""
    store = FileStore()
    entry = await entry_of(store, url, account)
    hint = "" if entry is None else entry.hint
    document = hint.startswith("https://")
    login = Login(
        store=store,
        account=account,
        interactive=interactive,
        client_id=None if document or not hint else hint,
        client_metadata_url=hint if document else None,
    )
    return login, entry


@app.default
def login(url: str, /, *, options: LoginOptions = LOGIN_OPTIONS, output: Output = OUTPUT) -> int:
    """Log in at a protected server, and keep the tokens.

    Parameters
    ----------
    url
        The server.
    """
    _check(url)
    return run_authorization(_login(url, options, output))


async def _login(url: str, options: LoginOptions, output: Output) -> int:
    store = FileStore()
    tls = AccessOptions(ca=options.ca).tls()
    authorizer = options.login(store).authorizing(url, tls)
    answer = await probe(url, Fetcher(tls=tls))
    if answer.status not in (401, 403):
        text = f"{url} answers HTTP {answer.status} without a token: it asks for no login"
        show_ending(Ending(ANSWERED_WITH_ERROR, "answered", text), output.json)
        return ANSWERED_WITH_ERROR
    await authorizer.log_in(answer.challenge)
    say(f"Logged in. Tokens are kept {await store.protection()}.")
    entry = await entry_of(store, url, options.account)
    if entry is not None:
        _show(entry, output)
    return FINE


@logout_app.default
def logout(
    url: str,
    /,
    *,
    account: Annotated[str, Parameter(metavar="NAME", show_default=False)] = "default",
    client_id: Annotated[str | None, Parameter(metavar="ID", show_default=False)] = None,
    forget: bool = False,
    ca: Annotated[str | None, Parameter(metavar="FILE", show_default=False)] = None,
    output: Output = OUTPUT,
) -> int:
    """Log out: revoke the tokens at their issuer and remove them here.

    Parameters
    ----------
    url
        The server.
    account
        The login of this name.
    client_id
        End the login of this client alone; by default those of all clients.
    forget
        Forget that this client is registered, so that the next login registers it anew.
    ca
        Trust the certificates in FILE, for an issuer of a company.
    """
    _check(url)
    return run_authorization(_logout(url, account, client_id, forget, AccessOptions(ca=ca).tls(), output))


async def _logout(
    url: str, account: str, client_id: str | None, forget: bool, tls: ssl.SSLContext | None, output: Output
) -> int:
    store = FileStore()
    found = [
        one
        for one in await entries(store)
        if (one.pointer.resource, one.pointer.account) == (canonical(url), account)
        and client_id in (None, one.hint, one.grant.client.client_id)
    ]
    if not found:
        by = "" if client_id is None else f" with the client {client_id!r}"
        raise _nobody(f"{url} as {account!r}{by}", "dragoman tokens lists the logins")
    left: list[str] = []
    for entry in found:
        issuer = entry.grant.server.issuer
        if await end(store, entry, Fetcher(tls=tls), forget=forget):
            said = f"Logged out of {url}; {issuer} has revoked the tokens."
            colour = ""
        elif entry.grant.tokens is None:
            said, colour = f"Forgot the login at {url}, which had no tokens any more.", ""
        else:
            left.append(issuer)
            colour = "yellow"
            said = f"Logged out of {url} here, and {issuer} did not revoke the tokens: they are good until they expire."
        if not output.json:
            say(said, colour)
    if output.json:
        output.write({"url": url, "account": account, "ended": len(found), "revoked": not left})
    return ANSWERED_WITH_ERROR if left else FINE


@whoami_app.default
def whoami(
    url: str,
    /,
    *,
    account: Annotated[str, Parameter(metavar="NAME", show_default=False)] = "default",
    output: Output = OUTPUT,
) -> int:
    """Show as whom you are logged in at a server.

    Parameters
    ----------
    url
        The server.
    account
        The login of this name.
    """
    _check(url)
    entry = run_authorization(entry_of(FileStore(), url, account))
    if entry is None:
        raise _nobody(url, f"to log in: dragoman login {quote_word(url)}")
    _show(entry, output)
    return FINE if entry.shown()["logged_in"] else ANSWERED_WITH_ERROR


@tokens_app.default
def tokens(*, output: Output = OUTPUT) -> int:
    """List the logins of this user; tokens themselves are never shown."""
    found, protection = run_authorization(_listed())
    if output.json:
        output.write({"tokens": [one.shown() for one in found], "kept": protection}, "tokens")
        return FINE
    for one in found:
        shown = one.shown()
        account = "" if shown["account"] == "default" else f" as {shown['account']}"
        show(f"{shown['url']}{account}: {_state(shown)}, from {shown['issuer']}")
    say(f"{len(found) or 'no'} login{'' if len(found) == 1 else 's'}, kept {protection}", "dim")
    return FINE


async def _listed() -> tuple[list[StoredLogin], str]:
    store = FileStore()
    return await entries(store), await store.protection()


def _show(entry: StoredLogin, output: Output) -> None:
    shown = entry.shown()
    if output.json:
        output.write(shown)
        return
    rows = {
        "server": shown["url"],
        "subject": shown["subject"] or "the token does not say",
        "issuer": shown["issuer"],
        "client": f"{shown['client_id']} ({shown['client']})",
        "scopes": " ".join(shown["scopes"]) or "none were named",
        "token": _state(shown),
    }
    show_rows((Text(name, "dim"), str(value)) for name, value in rows.items())


def _state(shown: dict[str, Any]) -> str:
    """How good a login is."""
    if not shown["logged_in"]:
        return "logged out"
    left = shown["expires_in"]
    when = "good until it is refused" if left is None else f"good for {max(left, 0)} s"
    return when + (", then renewed" if shown["renewable"] else "")


def _nobody(where: str, advice: str) -> Usage:
    """The error of a login that does not exist."""
    error = Usage(f"no one is logged in at {where}")
    error.add_note(advice)
    return error


def _check(url: str) -> None:
    """Raises Usage and LocalError for what is not a URL of a server."""
    if not url.startswith(("http://", "https://")):
        raise Usage(f"{url}: a login is for servers at http and https URLs")
    parse(url)
