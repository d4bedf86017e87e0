"""`dragoman auth explain`: walks the way of a client to a protected server, and prints at each step what was requested,
what came, and why it would be refused."""

from __future__ import annotations

import time
from typing import Annotated

from cyclopts import App, Parameter
from msgspec import Struct
from rich.text import Text

from ...auth.client.code import check_pkce
from ...auth.client.discovery import Discovery, DiscoveryOptions, discover
from ...auth.client.errors import LoginFailed
from ...auth.client.login import Terms, TokenRequest, scopes_for
from ...auth.client.probing import Probe, probe
from ...auth.client.registration import ClientOptions
from ...auth.client.store import MemoryStore
from ...auth.client.world import World
from ...auth.errors import AuthError
from ...auth.fetch import By, Fetched, Fetcher
from ...net.urls import parse
from ..exit_status import ANSWERED_WITH_ERROR, FINE, Usage
from ..faults import Diagnosis, diagnose_challenge, diagnose_reply
from ..options import OUTPUT, AccessOptions, Output
from ..terminal import clean, show_rows
from .login import run_authorization, stored_login

app: App = App(
    name="explain",
    help_epilogue="""\
Examples:

  dragoman auth explain https://mcp.example.org/mcp
  dragoman auth explain https://mcp.example.org/mcp --json""",
)


class ExplainedStep(Struct, frozen=True):
    """One step."""

    step: str
    said: str
    fine: bool = True


class Explained:
    """The steps so far."""

    def __init__(self) -> None:
        self.steps: list[ExplainedStep] = []

    def add(self, step: str, said: str, fine: bool = True) -> None:
        """Add a step."""
        self.steps.append(ExplainedStep(step, said, fine))


class ExplainedWorld(World):
    """A world without a person, whose requests and words are steps."""

    def __init__(self, url: str, fetcher: Fetcher, steps: Explained) -> None:
        super().__init__(url, fetcher, MemoryStore(), None)
        self._steps = steps

    async def get(self, url: str, *, by: By = "document", why: str) -> Fetched:
        """GET a document, as a step."""
        try:
            got = await super().get(url, by=by, why=why)
        except AuthError as error:
            self._steps.add("asked", f"GET {url} ({why}): {error}", False)
            raise
        self._steps.add("asked", f"GET {url} ({why}): HTTP {got.status}", got.status == 200)
        return got

    def say(self, text: str) -> None:
        """A note."""
        self._steps.add("note", text)


@app.default
def explain(
    url: str,
    /,
    *,
    account: Annotated[str, Parameter(metavar="NAME", show_default=False)] = "default",
    ca: Annotated[str | None, Parameter(metavar="FILE", show_default=False)] = None,
    output: Output = OUTPUT,
) -> int:
    """Explain how a client gets into a server, and at which step it would be refused.

    Parameters
    ----------
    url
        The server.
    account
        The login of this name.
    ca
        Trust the certificates in FILE.
    """
    if not url.startswith(("http://", "https://")):
        raise Usage(f"{url}: authorization is for servers at http and https URLs")
    report = Explained()
    good = run_authorization(_walk(url, Fetcher(tls=AccessOptions(ca=ca).tls()), account, report))
    if output.json:
        output.write({"url": url, "good": good, "steps": report.steps}, "steps")
    else:
        show_rows((Text(one.step, "dim"), Text(clean(one.said), "" if one.fine else "yellow")) for one in report.steps)
    return FINE if good else ANSWERED_WITH_ERROR


async def _walk(url: str, fetcher: Fetcher, account: str, report: Explained) -> bool:
    """Walk the way; whether a client gets to its end. Raises AuthError where there is no connection."""
    answer = await probe(url, fetcher)
    try:
        fault = _fault(url, answer)
        report.add("request", f"POST {url} without a token: HTTP {answer.status}", fault is None)
        if fault is not None:
            report.add("fault", fault.what, False)
            report.add("what to do", fault.fix, False)
            return False
        if answer.status not in (401, 403):
            report.add("end", "the server asks for no token")
            return True
        _challenge(answer, report)
        found = await discover(ExplainedWorld(url, fetcher, report), url, answer.challenge, DiscoveryOptions())
        good = _server(url, answer, found, report)
        return await _token(url, fetcher, account, report) and good
    except AuthError as error:
        report.add("refused", str(error), False)
        return False


def _fault(url: str, answer: Probe) -> Diagnosis | None:
    """What is wrong with an answer, before anything of OAuth; None for one of a server, and for one that asks for a
    token or does not say for what."""
    where = parse(url)
    if answer.status not in (401, 403):
        return diagnose_reply(answer.status, answer.headers, answer.body, where)
    fault = diagnose_challenge(answer.status, answer.field, where)
    return None if fault is None or fault.kind in ("no_challenge", "scope", "forbidden") else fault


def _challenge(answer: Probe, report: Explained) -> None:
    """What the 401 asks for."""
    if not answer.field:
        report.add("challenge", "none: RFC 9110 wants a WWW-Authenticate with a 401, so metadata is guessed at", False)
        return
    report.add("challenge", answer.field, answer.challenge is not None)
    if answer.challenge is None:
        report.add("challenge", "it names no scheme Bearer or DPoP, or cannot be read by RFC 9110's grammar", False)
    elif "resource_metadata" not in answer.challenge.params:
        report.add("challenge", "it has no resource_metadata: the well-known places are asked")


def _server(url: str, answer: Probe, found: Discovery, report: Explained) -> bool:
    """What a login at this authorization server would do."""
    server = found.server
    report.add("issuer", f"{server.issuer}, for the resource {found.resource}")
    good = True
    try:
        check_pkce(server, assume=False)
        report.add("PKCE", "S256")
    except LoginFailed as error:
        report.add("PKCE", str(error), False)
        good = False
    ways = [
        ("a client's document (client_metadata_url=)", bool(server.client_id_metadata_document_supported)),
        ("dynamic registration", server.registration_endpoint is not None),
    ]
    taken = [name for name, there in ways if there]
    report.add("client", "by " + ", or ".join([*taken, "an id registered by hand (client_id=)"]), bool(taken))
    request = TokenRequest(url=url, challenge=answer.challenge, clock=time.time)
    terms = Terms(wanted=DiscoveryOptions(), client=ClientOptions())
    scopes = scopes_for(request, found, terms, person=True)
    report.add("scopes", " ".join(scopes) or "none are asked for: the server grants its default")
    promised = server.authorization_response_iss_parameter_supported
    report.add("iss", "promised in answers" if promised else "not promised: mix-up attacks are checked if it comes")
    return good


async def _token(url: str, fetcher: Fetcher, account: str, report: Explained) -> bool:
    """What the server says to the token that is stored."""
    login, entry = await stored_login(url, account, interactive=False)
    if entry is None:
        report.add("token", f"none is stored: dragoman login {url}")
        return True
    shown = entry.shown()
    report.add("token", f"of {shown['subject'] or 'a subject it does not name'}, scopes {' '.join(shown['scopes'])}")
    attempt = login.authorizing(url).begin("explain")
    fields = await attempt.fields("POST", url)
    if not fields:
        report.add("token", f"it has expired and cannot be renewed: dragoman login {url}", False)
        return False
    answer = await probe(url, fetcher, fields)
    refused = answer.status in (401, 403)
    why = f": {answer.field or 'without a reason'}" if refused else ", so it is not refused"
    report.add("request", f"POST {url} with the token: HTTP {answer.status}{why}", not refused)
    return not refused
