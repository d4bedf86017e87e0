"""An authorization server's values: its settings, its clients and users, and its records. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from ..grant_types import (
    AUTHORIZATION_CODE,
    CLIENT_CREDENTIALS,
    DEVICE_CODE,
    JWT_BEARER,
    REFRESH_TOKEN,
    TOKEN_EXCHANGE,
)

GRANTS = (AUTHORIZATION_CODE, REFRESH_TOKEN, CLIENT_CREDENTIALS, DEVICE_CODE, JWT_BEARER, TOKEN_EXCHANGE)
REGISTRABLE = (AUTHORIZATION_CODE, REFRESH_TOKEN, DEVICE_CODE)
"""Grants that a client may give itself by a document or by registration: in each of them a user decides."""
METHODS = ("none", "client_secret_basic", "client_secret_post", "private_key_jwt")
"""How clients authenticate (RFC 8414, `token_endpoint_auth_methods_supported`)."""
ALGORITHMS = frozenset({"ES256", "RS256", "PS256", "EdDSA"})
"""Signature algorithms of assertions and DPoP proofs that are accepted."""

Method = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]


class Lives(Struct, frozen=True, kw_only=True):
    """How long things live, in seconds."""

    access: float = 300.0
    """Access tokens: short, because a resource server that checks them itself does not notice a revocation."""
    refresh: float = 14 * 86_400.0
    """A grant after its last refresh."""
    grace: float = 30.0
    """How long a refresh token that was used gets the same answer again: the first answer may have been lost."""
    code: float = 60.0
    """Authorization codes (RFC 6749, 4.1.2: ten minutes at most)."""
    consent: float = 600.0
    """A consent page that was not answered."""
    device: float = 600.0
    """A device's code, until its user has entered it (RFC 8628 section 3.2)."""
    interval: float = 5.0
    """Between two polls of a device (RFC 8628, 3.2)."""
    document: float = 300.0
    """A client's metadata document, where its answer does not say."""


class Client(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A client, as it is configured, registered, or described by its own document."""

    id: str
    """Its `client_id`."""
    name: str = ""
    """Its name on pages; "": its id."""
    redirect_uris: tuple[str, ...] = ()
    """Where answers may go; loopback ones with any port (RFC 8252 section 7.3)."""
    method: Method = "none"
    """How it authenticates at the token endpoint (RFC 7591 section 2)."""
    secret_hash: str = ""
    """SHA-256 of the secret, in hexadecimal; empty without one."""
    keys: Mapping[str, Any] | None = None
    """A JWK Set, for private_key_jwt."""
    keys_url: str = ""
    """Where its JWK Set is."""
    grants: tuple[str, ...] = (AUTHORIZATION_CODE, REFRESH_TOKEN)
    """The grants that it may use."""
    scopes: tuple[str, ...] | None = None
    """The scopes that it may get; None: all that the server has."""
    resources: tuple[str, ...] | None = None
    """The resources that it may get tokens for; None: all that the server serves."""
    dpop: bool = False
    """Whether it gets only tokens that are bound to a key (RFC 9449, 5.2)."""
    document: bool = False
    """Whether its id is the URL of its metadata document."""

    @property
    def public(self) -> bool:
        """Whether it does not authenticate, because it cannot keep a secret."""
        return self.method == "none"

    @property
    def title(self) -> str:
        """Its name on pages."""
        return self.name or self.id


class User(Struct, frozen=True, kw_only=True):
    """A user of the development server. `password`: "": the name is enough."""

    name: str
    """The `sub` of its tokens, and what it logs in with."""
    password: str = field(default="", name="password")
    claims: Mapping[str, Any] = {}
    """Further claims of its access tokens, as `roles` or `email`."""

    def __repr__(self) -> str:
        return f"User(name={self.name!r})"


class TrustedIssuer(Struct, frozen=True, kw_only=True):
    """An issuer whose assertions are taken as grants (RFC 7523, 2.1)."""

    issuer: str
    """Its URL, the `iss` of its assertions."""
    keys: Mapping[str, Any] | None = None
    """Its JWK Set; None: found by its metadata."""
    kind: Literal["id-jag", "workload"] = "id-jag"
    """For whom it vouches: for users, by ID-JAGs, or for workloads, by tokens of their platform."""
    clients: Mapping[str, str] = {}
    """For workloads: the client's id for each `sub` of an assertion."""


class Pending(Struct, frozen=True, kw_only=True):
    """An authorization that waits for its user. It is a signed field of the consent page, and not stored."""

    id: str
    client: str
    until: float
    cookie: str
    """SHA-256 of the cookie of the browser that was given the page."""
    scopes: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    redirect_uri: str = ""
    state: str | None = None
    challenge: str = ""
    jkt: str = ""
    nonce: str = ""
    device: str = ""
    """The user code of a device; "": the answer is a redirect."""


class Code(Struct, frozen=True, kw_only=True):
    """An authorization code that was issued."""

    client: str
    subject: str
    redirect_uri: str
    challenge: str
    scopes: tuple[str, ...]
    resources: tuple[str, ...]
    jkt: str = ""
    nonce: str = ""
    auth_time: int = 0
    claims: dict[str, Any] = {}
    family: str = ""
    """The id of the grant that it begins."""
    ends: float = 0.0
    """Unix time at which the grant ends, however often it is refreshed; 0: it has no end of its own."""
    used: bool = False
    replayed: bool = False
    """Whether it was used a second time."""


class TokenFamily(Struct, frozen=True, kw_only=True):
    """A grant and its refresh tokens, of which the one of this `generation` is valid."""

    client: str
    subject: str
    scopes: tuple[str, ...]
    resources: tuple[str, ...]
    generation: int = 0
    jkt: str = ""
    auth_time: int = 0
    claims: dict[str, Any] = {}
    graced: float = 0.0
    """Unix time until which the token of the generation before gets `answer` again."""
    ends: float = 0.0
    """Unix time at which the grant ends, however often it is refreshed; 0: it has no end of its own."""
    requested: str = ""
    """What the last refresh requested: only the same request gets `answer` again."""
    answer: str = ""
    """The answer to the last refresh."""


class Device(Struct, frozen=True, kw_only=True):
    """A device's request for a login, stored under the hash of its device code."""

    client: str
    scopes: tuple[str, ...]
    resources: tuple[str, ...]
    state: Literal["pending", "approved", "denied"] = "pending"
    subject: str = ""
    claims: dict[str, Any] = {}
    auth_time: int = 0
    family: str = ""
    """The id of its grant."""
    ends: float = 0.0
    """Unix time at which the grant ends, however often it is refreshed; 0: it has no end of its own."""
    polled: float = 0.0
    interval: float = 5.0


class Approved(Struct, frozen=True):
    """A user who consented."""

    subject: str
    claims: Mapping[str, Any] = {}
    family: str = ""
    """The id that the grant is to have, because records of it are stored already; "": a new one."""
    ends: float = 0.0
    """Unix time at which the grant ends, however often it is refreshed; 0: it has no end of its own."""


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of an authorization server."""

    issuer: str
    scopes: tuple[str, ...] | None = None
    """The scopes that exist; None: any."""
    default_scopes: tuple[str, ...] = ()
    """Granted where a request names none."""
    resources: tuple[str, ...] = ()
    """The resources (RFC 8707) for which it issues tokens; empty: any. The first is that of requests that name none."""
    registration: bool = False
    """Whether anyone may register a client (RFC 7591)."""
    keeps: bool = True
    """Whether registrations are stored, until they are not used for long. False: the id that a client gets is its
    signed registration, so that strangers who register fill no store."""
    documents: bool = True
    """Whether the URL of a metadata document is a client's id."""
    dpop_nonce: bool = False
    """Whether DPoP proofs need a nonce of this server (RFC 9449, 8)."""
    trusted: Sequence[TrustedIssuer] = ()
    lives: Lives = Lives()
    notice: str = ""
    """A sentence on top of each page."""

    @property
    def loopback(self) -> bool:
        """Whether the server is on loopback: only there an issuer is plain http."""
        return self.issuer.startswith("http://")
