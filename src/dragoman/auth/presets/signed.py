"""Issuers of signed access tokens: Entra ID, Auth0, Okta, Keycloak, Cognito, WorkOS. Each is a row of data.

A comment beside a field says what the issuer writes differently; the rules themselves are in `tokens`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal

from ...jsonrpc.errors import LocalError
from ..tokens import UNTYPED, Issuer, Path

_GUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HOST: Final = re.compile(r"[A-Za-z0-9.-]+(:\d+)?")
_RS256: Final = frozenset({"RS256"})


def entra(
    tenant: str,
    *,
    client_id: str,
    audience: str | Iterable[str] = (),
    version: Literal[1, 2] = 2,
    host: str = "login.microsoftonline.com",
) -> Issuer:
    """Return the row for one tenant of Microsoft Entra ID, by its GUID; for several give `Bearer` a list of these.

    `client_id`: the GUID of the application that represents this server; `audience`: its further application ID URIs;
    `version`: of its access tokens, `requestedAccessTokenVersion` in the manifest; `host`: of another cloud. Raises
    LocalError for "common" and the like, which are many tenants.
    """
    if not _GUID.fullmatch(tenant):
        raise LocalError(
            f"entra: the tenant is a GUID, not {tenant!r}: under that name tokens of any tenant are issued"
        )
    _check_texts("entra", client_id=client_id)
    base = f"https://{_host('entra', host)}/{tenant}"
    second = version == 2
    issuer = f"{base}/v2.0" if second else f"https://sts.windows.net/{tenant}/"
    # the audience of version 2 is the client's GUID, that of version 1 the requested URI
    return Issuer(
        issuer=issuer,
        metadata_uri=f"{base}/v2.0/.well-known/openid-configuration"
        if second
        else f"{base}/.well-known/openid-configuration",
        token_endpoint=f"{base}/oauth2/v2.0/token",
        algorithms=_RS256,
        types=UNTYPED,
        audience=frozenset({client_id, f"api://{client_id}", *_texts(audience)}),
        client=("azp",) if second else ("appid",),
        scopes=("scp",),
        # an ID token has the same aud, iss and ver, and may have roles, but it names no client
        required={"ver": ("2.0" if second else "1.0",), "tid": (tenant,), "azp" if second else "appid": ()},
        exchange="on_behalf_of",
    )


def auth0(domain: str, *, audience: str | Iterable[str] = ()) -> Issuer:
    """Return the row for a tenant of Auth0, by its domain, such as "example.eu.auth0.com", or by a domain of your own.

    `audience`: the identifier of the API in Auth0; by default it is that of `Bearer(resource=)`, which is the best name
    for it. Raises LocalError for what is no domain.
    """
    # its iss ends with "/", and so does the issuer of its metadata
    issuer = f"https://{_host('auth0', domain)}/"
    return Issuer(
        issuer=issuer,
        metadata_uri=f"{issuer}.well-known/openid-configuration",
        algorithms=frozenset({"RS256", "PS256"}),
        types=UNTYPED,
        audience=_texts(audience),
        # these are what the user may do, whatever scopes the client requested: so they are roles, not scopes
        roles=("permissions",),
    )


def okta(domain: str, *, audience: str | Iterable[str], server: str = "default") -> Issuer:
    """Return the row for a custom authorization server of Okta, by its name or id.

    `audience`: the one that is set for that server, such as "api://default": its tokens have this audience, whatever
    resource was requested. Raises LocalError for the organization's own server, whose tokens only Okta may read.
    """
    if not server:
        raise LocalError("okta: access tokens of the organization's server are for Okta alone; name a custom server")
    _check_texts("okta", audience=audience)
    issuer = f"https://{_host('okta', domain)}/oauth2/{server}"
    return Issuer(
        issuer=issuer,
        metadata_uri=f"{issuer}/.well-known/oauth-authorization-server",
        algorithms=_RS256,
        types=UNTYPED,
        audience=_texts(audience),
        client=("cid",),
        scopes=("scp",),
        roles=("groups",),
        required={"cid": ()},
    )


def keycloak(url: str, realm: str, *, roles_of: str = "", audience: str | Iterable[str] = ()) -> Issuer:
    """Return the row for a realm of Keycloak. `url`: that of the server, with /auth where it has that (before 17).

    By itself Keycloak does not write this server's audience: the client needs a scope with an audience mapper.
    `roles_of`: the client whose roles count beside those of the realm. Raises LocalError without a realm.
    """
    if not realm:
        raise LocalError("keycloak: name the realm")
    issuer = f"{url.rstrip('/')}/realms/{realm}"
    roles: tuple[Path, ...] = (("realm_access", "roles"),)
    if roles_of:
        roles += (("resource_access", roles_of, "roles"),)
    return Issuer(
        issuer=issuer,
        metadata_uri=f"{issuer}/.well-known/openid-configuration",
        types=UNTYPED,
        audience=_texts(audience),
        client=("azp", "client_id"),
        scopes=("scope",),
        roles=roles,
        # access, ID, refresh and logout tokens all have typ JWT in their header: the claim of the same name differs
        required={"typ": ("Bearer", "DPoP")},
    )


def cognito(region: str, pool: str, *, clients: str | Iterable[str] = ()) -> Issuer:
    """Return the row for a user pool of Amazon Cognito.

    Its access tokens have no `aud` unless the client requested a resource (managed login, resource binding). `clients`:
    the app clients whose tokens are accepted without it; an `aud` that is there all the same must name this server.
    Without `clients` every token must have `aud`. Raises LocalError for what is no region or pool.
    """
    if not re.fullmatch(r"[a-z0-9-]+", region) or not re.fullmatch(r"[A-Za-z0-9_-]+", pool):
        raise LocalError(
            f"cognito: a region and a pool are such as 'eu-west-1', 'eu-west-1_Ab12', not {region!r}, {pool!r}"
        )
    issuer = f"https://cognito-idp.{region}.amazonaws.com/{pool}"
    ours = _texts(clients)
    return Issuer(
        issuer=issuer,
        jwks_uri=f"{issuer}/.well-known/jwks.json",
        metadata_uri=f"{issuer}/.well-known/openid-configuration",
        algorithms=_RS256,
        types=UNTYPED,
        audience=ours,
        audience_claim="client_id" if ours else "aud",
        client=("client_id",),
        scopes=("scope",),
        roles=("cognito:groups",),
        # the same keys' ID tokens have token_use id
        required={"token_use": ("access",)},
    )


def workos(domain: str) -> Issuer:
    """Return the row for WorkOS AuthKit, by its domain, such as "example.authkit.app".

    This server's URL must be among the resource indicators in the dashboard: then it is the `aud` of tokens. Tokens of
    clients that request no resource have the client's id there, as ID tokens have, and are refused. Raises LocalError
    for what is no domain.
    """
    issuer = f"https://{_host('workos', domain)}"
    return Issuer(
        issuer=issuer,
        jwks_uri=f"{issuer}/oauth2/jwks",
        algorithms=_RS256,
        types=UNTYPED,
        roles=("role", "roles", "permissions"),
        # its access tokens name neither scopes nor a client; an ID token has no jti
        evidence=("jti",),
        required={"jti": ()},
    )


def _host(preset: str, host: str) -> str:
    if not _HOST.fullmatch(host):
        raise LocalError(f"{preset}: a domain is such as example.com, without https:// and path, not {host!r}")
    return host


def _texts(given: str | Iterable[str]) -> frozenset[str]:
    return frozenset([given] if isinstance(given, str) else given)


def _check_texts(preset: str, **given: str | Iterable[str]) -> None:
    for name, value in given.items():
        if not _texts(value) or "" in _texts(value):
            raise LocalError(f"{preset}: {name} is not empty")
