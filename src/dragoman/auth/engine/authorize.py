"""The authorization endpoint and the consent page (RFC 6749, 4.1; RFC 7636; RFC 8707; RFC 9207; RFC 9700).

Nothing is stored for a page that is shown: the request is in the page, signed and bound to a cookie of the browser that
got it. An error is sent to the client's redirect URI only after client and URI are known to be good, and only if the
operator configured the client or the user has answered; otherwise it is a page.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import structs

from ...allowance import Owner
from ..errors import OAuthError
from ..grant_types import AUTHORIZATION_CODE
from ..jose import encode_base64url
from .clients import Clients
from .families import Families
from .messages import EndpointRequest, EndpointResponse, Parameters, oauth_error, of_form, of_query, redirect
from .model import Approved, Client, Code, Device, Pending, Settings
from .pages import error_page, form, hidden, page, plain, rows, warning, wrong
from .records import Records
from .redirects import host_of, is_loopback_redirect, matches
from .scopes import resources_of, scopes_of
from .seals import Signer, digest

CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
"""RFC 7636, 4.2: SHA-256 in base64url without padding."""
STATE = 2_000
"""Characters of `state` and `nonce`."""
USE = "consent"
ANSWERED = 3_600.0
"""Seconds for which a page is remembered as answered: longer than the page and the login after it may last."""


class Approver(Protocol):
    """Decides which user has answered a consent page."""

    def fields(self) -> str:
        """Return HTML for the page's form."""

    def automatic(self) -> Approved | None:
        """Return the user who agrees without a page; None: show the page."""

    async def approve(
        self, pending: Pending, client: Client, form: Parameters, headers: Mapping[str, str]
    ) -> Approved | EndpointResponse | str:
        """Decide what an answer "allow" leads to: a user, another step elsewhere, or a sentence about what was wrong.
        `headers`: of the request."""


class Authorization:
    """Asks users whether a client may act for them."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        clients: Clients,
        records: Records,
        signer: Signer,
        approver: Approver,
        at: Callable[[str], str],
    ) -> None:
        self._settings, self._clients, self._records = settings, clients, records
        self._signer, self._approver, self._at = signer, approver, at

    async def begin(self, request: EndpointRequest) -> EndpointResponse:
        """Answer a GET of the authorization endpoint."""
        try:
            parameters = of_query(request.query)
            client, uri = await self._client(parameters, request.owner)
        except OAuthError as error:
            # RFC 6749, 4.1.2.1: "the authorization server SHOULD inform the resource owner of the error and MUST NOT
            # automatically redirect the user-agent to the invalid redirection URI"
            return error_page(error.description, status=error.status if error.status == 503 else 400)
        try:
            pending = self._pending(parameters, client, uri)
            if (approved := self._approver.automatic()) is not None:
                return await self.finish(pending, client, approved)
            if parameters.get("prompt") == "none":
                raise oauth_error("login_required", "There is no login without a page here")
        except OAuthError as error:
            if not self._clients.is_configured(client):
                # anyone can register a client and send a user here with a request that fails at once, so a redirect
                # would be an open one. RFC 9700, 4.11.2: "The authorization server SHOULD only automatically redirect
                # the user agent if it trusts the redirection URI."
                return error_page(error.description)
            return self._to_client(uri, parameters.get("state") or None, error)
        return self.ask(pending, client)

    async def _client(self, parameters: Parameters, owner: Owner) -> tuple[Client, str]:
        client = await self._clients.find(parameters.need("client_id"), owner)
        if client is None:
            raise oauth_error("invalid_client", "There is no such client")
        uri = parameters.get("redirect_uri")
        if not uri and len(client.redirect_uris) == 1 and not is_loopback_redirect(client.redirect_uris[0]):
            uri = client.redirect_uris[0]
        elif not uri:
            raise oauth_error("invalid_request", "The parameter redirect_uri is missing")
        if not matches(uri, client.redirect_uris):
            raise oauth_error("invalid_request", "The redirect_uri is none of this client's")
        return client, uri

    def _pending(self, parameters: Parameters, client: Client, uri: str) -> Pending:
        """Return the request that waits for consent. Raises OAuthError, which is for the client."""
        for name in ("request", "request_uri"):
            if parameters.get(name):
                raise oauth_error(f"{name}_not_supported", f"The parameter {name} is not supported")
        if parameters.need("response_type") != "code":
            raise oauth_error("unsupported_response_type", "response_type is code")
        if parameters.get("response_mode") not in ("", "query"):
            raise oauth_error("invalid_request", "response_mode is query")
        if AUTHORIZATION_CODE not in client.grants:
            raise oauth_error("unauthorized_client", "This client has not the grant authorization_code")
        # RFC 9700, 2.1.1: public clients MUST use PKCE; here all do. OAuth 2.1, 7.6: never "plain", which is what RFC
        # 7636, 4.3 means by no method.
        if parameters.get("code_challenge_method") != "S256":
            raise oauth_error("invalid_request", "code_challenge_method is S256")
        if not CHALLENGE.fullmatch(parameters.need("code_challenge")):
            raise oauth_error("invalid_request", "code_challenge is 43 characters of base64url")
        if len(parameters.get("state")) > STATE or len(parameters.get("nonce")) > STATE:
            raise oauth_error("invalid_request", f"state and nonce have at most {STATE} characters")
        jkt = parameters.get("dpop_jkt")
        if jkt and not CHALLENGE.fullmatch(jkt):
            raise oauth_error("invalid_request", "dpop_jkt is a JWK thumbprint")
        settings = self._settings()
        return Pending(
            id=encode_base64url(os.urandom(16)),
            client=client.id,
            until=self._records.clock() + settings.lives.consent,
            cookie="",
            scopes=scopes_of(parameters.scopes(), client, settings),
            resources=resources_of(parameters, client, settings),
            redirect_uri=uri,
            state=parameters.get("state") or None,
            challenge=parameters.get("code_challenge"),
            jkt=jkt,
            nonce=parameters.get("nonce"),
        )

    def ask(self, pending: Pending, client: Client, fault: str = "", cookie: str = "") -> EndpointResponse:
        """Return the consent page. `fault`: what was wrong with the last answer; `cookie`: the one that the browser has
        already; "": it gets a new one."""
        given = cookie or encode_base64url(os.urandom(24))
        pending = structs.replace(pending, cookie=digest(given))
        settings = self._settings()
        shown = [
            ("Client", client.title),
            ("Its id", client.id),
            ("Access", ", ".join(pending.scopes) or "no scope in particular"),
            ("To", ", ".join(pending.resources) or "what it asks for"),
        ]
        caution = ""
        if pending.device:
            shown.append(("Code on the device", pending.device))
            # RFC 8628, 5.4: the user learns what a stranger's device would get
            caution = "Go on only if you started this on a device of yours and it shows this very code."
        else:
            shown.append(("The answer goes to", host_of(pending.redirect_uri)))
            if is_loopback_redirect(pending.redirect_uri):
                # MCP authorization, Localhost Redirect URI Risks
                caution = (
                    "The answer goes to a program on this computer. Any program here could call itself "
                    f"{client.title}: allow this only if you have just started the login yourself."
                )
        inside = hidden("pending", self._signer.sign(USE, pending)) + self._approver.fields()
        body = (
            warning(settings.notice)
            + wrong(fault)
            + rows(shown)
            + warning(caution)
            + form(self._at("/consent"), inside, ("allow", "Allow"), ("deny", "Deny"))
        )
        life = int(max(1.0, pending.until - self._records.clock()))
        return page(
            f"{client.title} asks for access",
            body,
            # Chromium applies `form-action` to each redirect that follows a form, also to those of other servers, which
            # are unknown here: the login behind a proxy, and what a client's redirect URI redirects to
            leads_away=True,
            cookie="" if cookie else self._cookie(pending.id, given, life),
        )

    async def consent(self, request: EndpointRequest) -> EndpointResponse:
        """Answer a POST of the consent page."""
        try:
            parameters = of_form(request)
        except OAuthError as error:
            return error_page(error.description)
        if not self.from_here(request):
            return error_page("This form was sent by another site", status=403)
        pending = self._signer.read(USE, parameters.get("pending"), Pending)
        if pending is None or pending.until <= self._records.clock():
            return error_page("This page is too old; start again where you came from")
        # the form is the one of the browser that got the page: an attacker's page can send a form, not the cookie
        cookie = cookies(request.headers).get(self._cookie_name(pending.id), "")
        if not cookie or not hmac.compare_digest(digest(cookie), pending.cookie):
            return error_page("This browser was not asked; start again where you came from", status=403)
        client = await self._clients.find(pending.client, request.owner)
        if client is None:
            return error_page("The client is gone")
        if parameters.get("answer") not in ("allow", "deny"):
            return self.ask(pending, client, "Allow or deny", cookie)
        decided: Approved | EndpointResponse | str | None = None
        if parameters.get("answer") == "allow":
            decided = await self._approver.approve(pending, client, parameters, request.headers)
        if isinstance(decided, str):
            return self.ask(pending, client, decided, cookie)
        if isinstance(decided, EndpointResponse):
            return decided
        return await self.answer_client(pending, client, decided)

    async def answer_client(self, pending: Pending, client: Client, approved: Approved | None) -> EndpointResponse:
        """Return the response to a user's decision; a second consent to the same page is refused. `approved`: None: the
        user denied. Only consents of users who logged in are remembered, so strangers fill no store."""
        if approved is not None and not await self._records.first("consent", pending.id, ANSWERED):
            return error_page("This page was answered already")
        return await self.finish(pending, client, approved)

    def from_here(self, request: EndpointRequest) -> bool:
        """Return whether a form was sent by one of our pages, as far as the browser says."""
        site = request.headers.get("sec-fetch-site", "same-origin")
        origin = request.headers.get("origin")
        ours = "/".join(self._settings().issuer.split("/")[:3]).lower()
        return site in ("same-origin", "none") and (origin is None or origin.lower() == ours)

    async def finish(self, pending: Pending, client: Client, approved: Approved | None) -> EndpointResponse:
        """Return the response to the user's decision: a code for the client, or a page. `approved`: None: the user
        denied."""
        if pending.device:
            return await self._answer_device(pending, approved)
        if approved is None:
            return self._to_client(
                pending.redirect_uri, pending.state, oauth_error("access_denied", "The user said no")
            )
        code = encode_base64url(os.urandom(32))
        made = Code(
            client=client.id,
            subject=approved.subject,
            claims=dict(approved.claims),
            auth_time=int(self._records.clock()),
            family=approved.family or Families.new_id(),
            ends=approved.ends,
            redirect_uri=pending.redirect_uri,
            challenge=pending.challenge,
            scopes=pending.scopes,
            resources=pending.resources,
            jkt=pending.jkt,
            nonce=pending.nonce,
        )
        settings = self._settings()
        await self._records.put("code", code, made, settings.lives.code)
        await self._clients.keep(client)
        # RFC 9207, 2: "the authorization server MUST include ... iss", in error responses too
        answer = {"code": code, "state": pending.state, "iss": settings.issuer}
        return redirect(pending.redirect_uri, answer, self._forget(pending))

    async def _answer_device(self, pending: Pending, approved: Approved | None) -> EndpointResponse:
        def edit(found: Device | None) -> tuple[Device | None, bool]:
            if found is None or found.state != "pending":
                return found, False
            if approved is None:
                return structs.replace(found, state="denied"), True
            agreed = structs.replace(
                found,
                state="approved",
                subject=approved.subject,
                claims=dict(approved.claims),
                auth_time=int(self._records.clock()),
                family=approved.family,
                ends=approved.ends,
            )
            return agreed, True

        device = await self._records.get("user code", pending.device, str)
        done = device is not None and await self._records.change("device", device, Device, edit)
        if not done:
            return error_page("The code has expired or was answered already")
        await self._records.take("user code", pending.device, str)
        if approved is None:
            return plain("Denied", "The device gets no access. You can close this page.")
        return plain("Done", "The device goes on by itself. You can close this page.")

    def fail(self, pending: Pending, error: OAuthError) -> EndpointResponse:
        """Return the response to a login that failed."""
        if pending.device:
            return error_page(error.description)
        return self._to_client(pending.redirect_uri, pending.state, error)

    def _to_client(self, uri: str, state: str | None, error: OAuthError) -> EndpointResponse:
        answer = {
            "error": error.error,
            "error_description": error.description,
            "state": state,
            "iss": self._settings().issuer,
        }
        return redirect(uri, answer)

    def _cookie_name(self, id: str) -> str:
        """Return the name of a page's cookie. `__Host-`: only for this host, only over TLS (RFC 6265bis, 4.1.3.2)."""
        return f"{'' if self._settings().loopback else '__Host-'}dragoman-{id[:12]}"

    def _cookie(self, id: str, value: str, life: int) -> str:
        secure = "" if self._settings().loopback else "; Secure"
        return f"{self._cookie_name(id)}={value}; Path=/; Max-Age={life}; HttpOnly; SameSite=Strict{secure}"

    def _forget(self, pending: Pending) -> tuple[tuple[str, str], ...]:
        return (("Set-Cookie", self._cookie(pending.id, "", 0)),) if pending.cookie else ()


def cookies(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the cookies of a request; of two with the same name, the first."""
    found: dict[str, str] = {}
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        found.setdefault(name, value)
    return found
