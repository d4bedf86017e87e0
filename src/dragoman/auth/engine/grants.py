"""The token endpoint (RFC 6749, 3.2): which grant a request uses, and the answer with its tokens."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from ...allowance import Owner
from ..dpop import ProofChecker
from ..errors import IssuerAway, TokenRefused
from ..grant_types import (
    ACCESS_TOKEN_TYPE,
    AUTHORIZATION_CODE,
    CLIENT_CREDENTIALS,
    DEVICE_CODE,
    ID_JAG_TYPE,
    ID_TOKEN_TYPE,
    JWT_BEARER,
    JWT_TYPE,
    REFRESH_TOKEN,
    TOKEN_EXCHANGE,
)
from ..pkce import VERIFIER, s256
from .assertions import Assertions
from .clients import Clients
from .device import Devices
from .families import Families
from .messages import NO_STORE, EndpointRequest, EndpointResponse, Parameters, bad, oauth_error, of_form
from .minting import ACCESS, ID, Mint
from .model import GRANTS, Client, Code, Device, Settings, TokenFamily
from .records import Records
from .scopes import audience_of, is_resource, resources_of, scopes_of

_USED = 600.0
"""Seconds for which a used code is remembered, so that a second use is recognised."""


Renew = Callable[[str, TokenFamily], Awaitable[None]]
"""Called with a grant's id and the grant, before it is refreshed; raises OAuthError if it must not be."""


class GrantRequest(Struct, frozen=True):
    """One request for tokens: its parameters, its client, and the thumbprint of its DPoP proof's key ("" without
    one)."""

    form: Parameters
    client: Client
    jkt: str


class Grants:
    """Answers the token endpoint. `url`: returns the endpoint's own URL, which DPoP proofs name. `renew`: called before
    a grant is refreshed."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        clients: Clients,
        records: Records,
        families: Families,
        devices: Devices,
        assertions: Assertions,
        mint: Mint,
        proofs: ProofChecker,
        url: Callable[[], str],
        renew: Renew | None = None,
    ) -> None:
        self._renew = renew
        self._settings, self._clients, self._records = settings, clients, records
        self._families, self._devices, self._mint = families, devices, mint
        self._proofs, self._url = proofs, url
        self._assertions = assertions
        self._handlers: Mapping[str, Callable[[GrantRequest], Awaitable[dict[str, Any]]]] = {
            AUTHORIZATION_CODE: self._code,
            REFRESH_TOKEN: self._refresh,
            CLIENT_CREDENTIALS: self._credentials,
            DEVICE_CODE: self._device,
            JWT_BEARER: self._assertion,
            TOKEN_EXCHANGE: self._exchange,
        }

    async def token(self, request: EndpointRequest) -> EndpointResponse:
        """Answer a POST of the token endpoint. Raises OAuthError."""
        form = of_form(request)
        grant = form.need("grant_type")
        if grant not in GRANTS:
            raise oauth_error("unsupported_grant_type", "There is no such grant here")
        if grant == JWT_BEARER and not _has_credentials(request, form):
            client = await self._workload(form)
        else:
            client = await self._clients.authenticate(request, form, endpoint=self._url())
        if grant not in client.grants:
            raise oauth_error("unauthorized_client", "This client has not this grant")
        jkt = self._proof_key(request, self._clients.owner(client, request))
        if client.dpop and not jkt:
            raise oauth_error("invalid_dpop_proof", "This client takes bound tokens alone: a DPoP proof is missing")
        body = await self._handlers[grant](GrantRequest(form, client, jkt))
        lines: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"), *NO_STORE)
        if jkt and self._proofs.nonces is not None:
            lines = (*lines, ("DPoP-Nonce", self._proofs.nonces.current()))  # RFC 9449, 8.2
        return EndpointResponse(headers=lines, body=msgspec.json.encode(body))

    def _proof_key(self, request: EndpointRequest, owner: Owner) -> str:
        """Return the thumbprint of the key of the request's DPoP proof; empty without a proof."""
        proof = request.headers.get("dpop")
        if proof is None:
            return ""
        if "," in proof:
            # RFC 9449, 4.3: "There is not more than one DPoP HTTP request header field."
            raise oauth_error("invalid_dpop_proof", "More than one DPoP header")
        try:
            return self._proofs.check(proof, "POST", self._url(), owner=owner)
        except TokenRefused as error:
            raise oauth_error(error.error, error.description, 400, tuple(error.headers)) from None
        except IssuerAway as error:
            lines = (("Retry-After", str(error.retry_after)),)
            raise oauth_error("temporarily_unavailable", error.description, 503, lines) from None

    # -- grants of users

    async def _code(self, request: GrantRequest) -> dict[str, Any]:
        """Answer an authorization code (RFC 6749, 4.1.3, and RFC 7636, 4.6)."""
        text, verifier = request.form.need("code"), request.form.need("code_verifier")
        found = await self._records.get("code", text, Code)
        if found is None:
            raise oauth_error("invalid_grant", "The code has expired, or was not issued here")
        if found.client != request.client.id:
            raise oauth_error("invalid_grant", "The code was issued to another client")

        def edit(code: Code | None) -> tuple[Code | None, bool]:
            if code is None or code.used:
                return (None if code is None else structs.replace(code, replayed=True)), False
            return structs.replace(code, used=True), True

        if not await self._records.change("code", text, Code, edit, _USED):
            # RFC 6749, 4.1.2: "If an authorization code is used more than once, the authorization server MUST deny the
            # request and SHOULD revoke (when possible) all tokens previously issued based on that authorization code."
            await self._families.end(found.family)
            raise oauth_error("invalid_grant", "The code was used before; what it gave is revoked")
        uri = request.form.get("redirect_uri")
        # OAuth 2.1 needs no redirect_uri here, RFC 6749 one where the authorization request had it: compared if sent
        if uri and uri != found.redirect_uri:
            raise oauth_error("invalid_grant", "redirect_uri is not the one of the authorization request")
        if not VERIFIER.fullmatch(verifier) or not hmac.compare_digest(s256(verifier), found.challenge):
            raise oauth_error("invalid_grant", "The code_verifier does not fit the code_challenge")
        if found.jkt and found.jkt != request.jkt:
            raise oauth_error("invalid_dpop_proof", "The code is bound to another key (dpop_jkt)")
        resources = resources_of(request.form, request.client, self._settings(), found.resources)
        body = await self._begin_grant(request, found.family, _grant_of(found), resources)
        now = await self._records.get("code", text, Code)
        if now is None or now.replayed:  # it was used a second time before there was a grant to revoke
            await self._families.end(found.family)
            raise oauth_error("invalid_grant", "The code was used twice at once; what it gave is revoked")
        if "openid" in found.scopes:
            body["id_token"] = self._mint.identity(
                subject=found.subject,
                client=found.client,
                nonce=found.nonce,
                auth_time=found.auth_time,
                life=self._settings().lives.access,
            )
        return body

    async def _device(self, request: GrantRequest) -> dict[str, Any]:
        """Answer a device code (RFC 8628, 3.4)."""
        found = await self._devices.poll(request.form, request.client)
        return await self._begin_grant(
            request, found.family or self._families.new_id(), _grant_of(found), found.resources
        )

    async def _begin_grant(
        self, request: GrantRequest, id: str, grant: TokenFamily, resources: Sequence[str]
    ) -> dict[str, Any]:
        """Store a new grant, and return its first tokens."""
        lives = self._settings().lives
        refreshes = REFRESH_TOKEN in request.client.grants
        # RFC 9449, 5: "Refresh tokens issued to confidential clients ... are not bound to the DPoP proof public key"
        if request.client.public:
            grant = structs.replace(grant, jkt=request.jkt)
        body = self._answer(
            request, id, grant, resources, grant.scopes, self._families.token(id, 0) if refreshes else ""
        )
        await self._families.begin(id, grant, lives.refresh if refreshes else lives.access)
        await self._clients.keep(request.client)
        return body

    async def _refresh(self, request: GrantRequest) -> dict[str, Any]:
        """Answer a refresh token (RFC 6749, 6)."""
        settings = self._settings()

        def answer(token: str, grant: TokenFamily) -> str:
            scopes = scopes_of(request.form.scopes(), request.client, settings, grant.scopes)
            resources = resources_of(request.form, request.client, settings, grant.resources)
            id = token.partition(".")[0]
            return msgspec.json.encode(self._answer(request, id, grant, resources, scopes, token)).decode()

        named = self._families.read(request.form.need("refresh_token"))
        if named is not None and self._renew is not None:
            family = await self._families.get(named[0])
            if family is not None and family.client == request.client.id:
                await self._renew(named[0], family)
        wanted = [request.form.scopes(), request.form.many.get("resource", ()), request.jkt]
        lives = settings.lives
        text = await self._families.refresh(
            request.form.need("refresh_token"),
            request.client,
            request.jkt,
            msgspec.json.encode(wanted).decode(),
            answer,
            life=lives.refresh,
            grace=lives.grace,
        )
        await self._clients.keep(request.client)
        found: dict[str, Any] = msgspec.json.decode(text)
        return found

    def _answer(
        self,
        request: GrantRequest,
        id: str,
        grant: TokenFamily,
        resources: Sequence[str],
        scopes: Sequence[str],
        refresh: str,
    ) -> dict[str, Any]:
        life = self._settings().lives.access
        if grant.ends:
            life = min(life, grant.ends - self._records.clock())
        if life < 1:
            raise oauth_error("invalid_grant", "The grant has ended")
        claims = {"auth_time": grant.auth_time} | grant.claims
        body = self._access(request, grant.subject, resources, scopes, family=id, claims=claims, life=life)
        return body | {"refresh_token": refresh} if refresh else body

    def _access(
        self,
        request: GrantRequest,
        subject: str,
        resources: Sequence[str],
        scopes: Sequence[str],
        *,
        family: str = "",
        claims: Mapping[str, Any] | None = None,
        life: float | None = None,
    ) -> dict[str, Any]:
        """Return the members of an answer with an access token (RFC 6749, 5.1). `life`: seconds; None: as in the
        settings."""
        settings = self._settings()
        life = settings.lives.access if life is None else life
        token = self._mint.access(
            subject=subject,
            client=request.client.id,
            audience=audience_of(resources, settings),
            scopes=scopes,
            life=life,
            family=family,
            jkt=request.jkt,
            claims=claims,
        )
        return {
            "access_token": token,
            "token_type": "DPoP" if request.jkt else "Bearer",
            "expires_in": int(life),
            "scope": " ".join(scopes),
        }

    # -- grants of programs

    async def _credentials(self, request: GrantRequest) -> dict[str, Any]:
        """Answer client credentials (RFC 6749, 4.4): "The client credentials grant type MUST only be used by
        confidential clients." """
        if request.client.public:
            raise oauth_error("unauthorized_client", "client_credentials is for clients that authenticate")
        settings = self._settings()
        scopes = scopes_of(request.form.scopes(), request.client, settings)
        resources = resources_of(request.form, request.client, settings)
        # RFC 9068, 2.2: the client is the subject; RFC 6749, 4.4.3: no refresh token
        return self._access(request, request.client.id, resources, scopes)

    async def _workload(self, form: Parameters) -> Client:
        """Return the client for which a platform's assertion is configured; the assertion authenticates it."""
        trusted, token = await self._assertions.granted(form.need("assertion"), None, self._url())
        id = trusted.clients.get(token.claims["sub"])
        client = None if id is None else await self._clients.find(id)
        if client is None or form.get("client_id") not in ("", client.id):
            raise oauth_error("invalid_grant", "The assertion's sub is not a client here")
        return client

    async def _assertion(self, request: GrantRequest) -> dict[str, Any]:
        """Answer an assertion (RFC 7523, 2.1): an ID-JAG of a trusted issuer, or a workload's token."""
        settings = self._settings()
        trusted, token = await self._assertions.granted(request.form.need("assertion"), request.client, self._url())
        claims = token.claims
        if trusted.kind == "workload":
            if trusted.clients.get(claims["sub"]) != request.client.id:
                raise oauth_error("invalid_grant", "The assertion's sub is not this client")
            scopes = scopes_of(request.form.scopes(), request.client, settings)
            return self._access(
                request, request.client.id, resources_of(request.form, request.client, settings), scopes
            )
        scope = claims.get("scope", "")
        held = tuple(scope.split()) if isinstance(scope, str) else ()
        # ID-JAG: the scopes are the intersection of what the assertion has and what is requested
        wanted = [each for each in request.form.scopes() or held if not held or each in held]
        scopes = tuple(each for each in wanted if request.client.scopes is None or each in request.client.scopes)
        if not scopes and (held or request.form.scopes()):
            # else the default scopes would be granted, which the assertion does not hold
            raise oauth_error("invalid_scope", "The assertion has none of these scopes for this client")
        target = claims.get("resource")
        within = (target,) if isinstance(target, str) and is_resource(target) else None
        if target is not None and (within is None or (settings.resources and target not in settings.resources)):
            raise oauth_error("invalid_target", "No tokens are issued for the assertion's resource")
        resources = resources_of(request.form, request.client, settings, within)
        return self._access(request, claims["sub"], resources, scopes_of(scopes, request.client, settings))

    async def _exchange(self, request: GrantRequest) -> dict[str, Any]:
        """Exchange one of our tokens (RFC 8693, 2) for one with another audience, on behalf of its subject; or for an
        ID-JAG."""
        form, settings = request.form, self._settings()
        if request.client.public:
            raise oauth_error("unauthorized_client", "token exchange is for clients that authenticate")
        if form.get("actor_token"):
            bad("actor_token is not supported: the client is the actor")
        kind, wanted = form.need("subject_token_type"), form.get("requested_token_type") or ACCESS_TOKEN_TYPE
        types = {ACCESS_TOKEN_TYPE: ACCESS, JWT_TYPE: ACCESS, ID_TOKEN_TYPE: ID}
        if kind not in types or wanted not in (ACCESS_TOKEN_TYPE, JWT_TYPE, ID_JAG_TYPE):
            bad("This subject_token_type or requested_token_type is not supported")
        found = self._mint.read(form.need("subject_token"), (types[kind],))
        if found is None or not await self._families.is_alive(found.claims.get("jti", "-")):
            # 2.2.2: "if either the subject_token or actor_token are invalid for any reason ... invalid_request"
            bad("The subject_token is not one of ours, or is not valid any more")
        claims = found.claims
        may = request.client.scopes
        held = tuple(one for one in str(claims.get("scope", "")).split() if may is None or one in may)
        if wanted == ID_JAG_TYPE:
            return self._issue_id_jag(request, claims)
        if kind == ID_TOKEN_TYPE and claims.get("aud") != request.client.id:
            bad("The subject_token was issued to another client")
        if claims.get("cnf") and claims["cnf"].get("jkt") != request.jkt:
            bad("The subject_token is bound to another key")
        scopes = scopes_of(form.scopes(), request.client, settings, held if kind != ID_TOKEN_TYPE else None)
        named = form.many.get("resource", ()) or form.many.get("audience", ())
        resources = resources_of(Parameters(form.one, {"resource": tuple(named)}), request.client, settings)
        # 4.1: the client acts for the subject, and says so; earlier actors are nested
        actor: dict[str, Any] = {"sub": request.client.id}
        if isinstance(claims.get("act"), dict):
            actor["act"] = claims["act"]
        family = str(claims.get("jti", "")).rpartition(".")[0]
        body = self._access(request, claims["sub"], resources, scopes, family=family, claims={"act": actor})
        return body | {"issued_token_type": ACCESS_TOKEN_TYPE}

    def _issue_id_jag(self, request: GrantRequest, claims: Mapping[str, Any]) -> dict[str, Any]:
        """Return an ID-JAG for another authorization server, as an identity provider of a company issues it."""
        audiences, targets = request.form.many.get("audience", ()), request.form.many.get("resource", ())
        if len(audiences) != 1 or len(targets) > 1:
            bad("An ID-JAG is for one audience, and for one resource at most")
        if claims.get("aud") != request.client.id:
            bad("The subject_token is the ID token that this client got")
        life = min(self._settings().lives.access, 300.0)
        token = self._mint.authorization(
            subject=claims["sub"],
            client=request.client.id,
            audience=audiences[0],
            resource=targets[0] if targets else "",
            scopes=request.form.scopes(),
            life=life,
        )
        body = {"access_token": token, "issued_token_type": ID_JAG_TYPE, "token_type": "N_A"}
        return body | {"expires_in": int(life), "scope": " ".join(request.form.scopes())}


def _grant_of(found: Code | Device) -> TokenFamily:
    """Return the grant to which a user agreed in a browser, for a code or for a device."""
    return TokenFamily(
        client=found.client,
        subject=found.subject,
        scopes=found.scopes,
        resources=found.resources,
        auth_time=found.auth_time,
        claims=found.claims,
        ends=found.ends,
    )


def _has_credentials(request: EndpointRequest, form: Parameters) -> bool:
    """Return whether the request has something to authenticate a client with."""
    return "authorization" in request.headers or bool(form.get("client_secret") or form.get("client_assertion"))
