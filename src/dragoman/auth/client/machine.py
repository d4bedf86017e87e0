"""A program gets tokens for itself, or for a user for whom an identity provider vouches. Flows over a `World`; each
raises AuthError."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ..errors import OAuthError
from ..metadata import ServerMetadata
from .discovery import discover, issuer_metadata
from .endpoints import need_endpoint
from .errors import AssertionRefused, AuthorizationFailed
from .grants import client_credentials, id_jag, jwt_bearer
from .login import Terms, TokenRequest, bound_key, check_migrated, make_grant, scopes_for
from .requests import Sender
from .tokens import Grant, Registration
from .world import World

if TYPE_CHECKING:
    from ..jose import Key


_SUBJECT_REFUSED = frozenset(("invalid_grant", "invalid_request"))
"""The errors by which a provider refuses a subject token that has expired (RFC 8693 section 2.2.2, RFC 6749 section
5.2)."""


class Idp(Struct, frozen=True, kw_only=True):
    """The identity provider of an enterprise. `token_endpoint`: None: the one in its metadata."""

    issuer: str
    token_endpoint: str | None
    client_id: str
    client_secret: str | None

    def __repr__(self) -> str:
        return f"Idp({self.issuer!r})"

    @property
    def registration(self) -> Registration:
        """This client's registration at the provider."""
        # the specification's example has id and secret in the form, where no metadata says otherwise
        method = "client_secret_post" if self.token_endpoint is not None and self.client_secret is not None else None
        return Registration(client_id=self.client_id, client_secret=self.client_secret, method=method)


def _registration(terms: Terms) -> Registration:
    client = terms.client
    if client.client_id is None:
        raise AuthorizationFailed("there is no client id: give client_id=")
    return Registration(client_id=client.client_id, client_secret=client.client_secret)


async def by_credentials(world: World, request: TokenRequest, terms: Terms, key: Key | None) -> Grant:
    """Return a grant for the client itself, which authenticates with its secret or with `key`."""
    found = await discover(world, request.url, request.challenge, terms.wanted)
    check_migrated(request, found, terms)
    scopes = scopes_for(request, found, terms, person=False)
    bound = bound_key(found, terms, request.before)
    sender = Sender(_registration(terms), found.server, by=found.by, key=key, dpop=bound)
    tokens = await client_credentials(world, sender, found.resource, scopes, request.clock)
    return make_grant(request, found, terms, sender, scopes, tokens)


async def by_workload(world: World, request: TokenRequest, terms: Terms, assertion: str) -> Grant:
    """Exchange the token of a platform (Kubernetes, a CI) for one of the resource (RFC 7523)."""
    found = await discover(world, request.url, request.challenge, terms.wanted)
    check_migrated(request, found, terms)
    scopes = scopes_for(request, found, terms, person=False)
    sender = Sender(_registration(terms), found.server, by=found.by, dpop=bound_key(found, terms, request.before))
    tokens = await jwt_bearer(world, sender, assertion, found.resource, scopes, request.clock)
    return make_grant(request, found, terms, sender, scopes, tokens)


async def by_enterprise(world: World, request: TokenRequest, terms: Terms, idp: Idp, id_token: str) -> Grant:
    """Exchange an ID token for the identity provider's assertion, and that for the resource's token: the two legs of
    enterprise-managed authorization. Raises AssertionRefused where the provider no longer accepts the ID token."""
    found = await discover(world, request.url, request.challenge, terms.wanted)
    check_migrated(request, found, terms)
    scopes = scopes_for(request, found, terms, person=False)
    at_idp = ServerMetadata(issuer=idp.issuer, token_endpoint=idp.token_endpoint)
    if idp.token_endpoint is None:
        at_idp = await metadata_of(world, idp)
    try:
        assertion = await id_jag(
            world,
            Sender(idp.registration, at_idp, by="operator"),
            need_endpoint(at_idp.token_endpoint, "token_endpoint", at_idp),
            id_token,
            audience=found.server.issuer,
            resource=found.resource,
            scopes=scopes,
            clock=request.clock,
        )
    except OAuthError as error:
        if error.error in _SUBJECT_REFUSED:
            raise AssertionRefused(f"the identity provider {idp.issuer} refuses the ID token: {error}") from error
        raise
    sender = Sender(_registration(terms), found.server, by=found.by, dpop=bound_key(found, terms, request.before))
    tokens = await jwt_bearer(world, sender, assertion, found.resource, scopes, request.clock)
    return make_grant(request, found, terms, sender, scopes, tokens)


async def metadata_of(world: World, idp: Idp) -> ServerMetadata:
    """Return the metadata of an identity provider. Raises AuthError."""
    found = await issuer_metadata(world, idp.issuer, "operator")
    if found is None:
        raise AuthorizationFailed(f"the identity provider {idp.issuer} has no metadata: give idp_token_endpoint=")
    return found
