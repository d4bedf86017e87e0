"""Revocation (RFC 7009) and introspection (RFC 7662)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .clients import Clients
from .families import Families
from .messages import NO_STORE, EndpointRequest, EndpointResponse, json, oauth_error, of_form
from .minting import ACCESS, Mint
from .model import Client
from .records import Records


class Inspection:
    """Revokes and describes tokens. `url`: returns the token endpoint's URL, the audience of clients' assertions."""

    def __init__(
        self, clients: Clients, records: Records, families: Families, mint: Mint, url: Callable[[], str]
    ) -> None:
        self._clients, self._records, self._families = clients, records, families
        self._mint, self._url = mint, url

    async def revoke(self, request: EndpointRequest) -> EndpointResponse:
        """Answer a POST of the revocation endpoint. Raises OAuthError."""
        form = of_form(request)
        client = await self._clients.authenticate(request, form, endpoint=self._url())
        token = form.need("token")
        named = self._families.read(token)
        if named is not None:
            family = await self._families.get(named[0])
            if family is not None:
                _check_owner(client, family.client)
                # 2.1: "If the particular token is a refresh token ... the authorization server SHOULD also invalidate
                # all access tokens based on the same authorization grant"
                await self._families.end(named[0])
        elif (found := self._mint.read(token, (ACCESS,))) is not None:
            claims = found.claims
            _check_owner(client, claims.get("client_id"))
            await self._records.put("revoked", str(claims["jti"]), True, claims["exp"] - self._records.clock() + 1.0)
        # 2.2: "The authorization server responds with HTTP status code 200 if the token has been revoked successfully
        # or if the client submitted an invalid token."
        return EndpointResponse(headers=NO_STORE)

    async def introspect(self, request: EndpointRequest) -> EndpointResponse:
        """Answer a POST of the introspection endpoint. Raises OAuthError."""
        form = of_form(request)
        client = await self._clients.authenticate(request, form, endpoint=self._url())
        if client.public:
            # 2.1: "the authorization server ... MUST require some form of authorization to access this endpoint"
            raise oauth_error("invalid_client", "Introspection is for clients that authenticate", 401)
        return json(await self._describe(form.need("token"), client))

    async def _describe(self, token: str, client: Client) -> dict[str, Any]:
        named = self._families.read(token)
        if named is not None:
            family = await self._families.get(named[0])
            if family is None or family.client != client.id or family.generation != named[1]:
                return {"active": False}
            return {
                "active": True,
                "scope": " ".join(family.scopes),
                "client_id": family.client,
                "sub": family.subject,
                "token_type": "refresh_token",
            }
        found = self._mint.read(token, (ACCESS,))
        # 2.2: "the authorization server ... SHOULD NOT include any additional information about an inactive token"
        if found is None or not await self._families.is_alive(found.claims.get("jti")):
            return {"active": False}
        named_aud = found.claims.get("aud")
        audience = named_aud if isinstance(named_aud, list) else [named_aud]
        if client.id != found.claims.get("client_id") and not {*audience} & {*(client.resources or audience)}:
            return {"active": False}  # 4: a protected resource may learn only of tokens that are for it
        bound = "cnf" in found.claims
        return {"active": True, "token_type": "DPoP" if bound else "Bearer", **found.claims}


def _check_owner(client: Client, owner: object) -> None:
    """Raise OAuthError for a token of another client. RFC 7009, 2.1: the server "verifies whether the token was issued
    to the client making the revocation request. If this validation fails, the request is refused"."""
    if client.id != owner:
        raise oauth_error("unauthorized_client", "The token was issued to another client")
