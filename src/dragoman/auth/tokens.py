"""The rules of a token's claims: whose it is, for whom, and for how long (RFC 7519, RFC 9068). Pure.

An issuer is a row of data (`Issuer`): what real issuers do differently is one of its fields, and no rule is left out
for any of them. A token with a claim of another type or form is refused: nothing is guessed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from msgspec import Struct

from ..channel import Credential, Identity
from ..jsonrpc.errors import LocalError
from .errors import NotYet, TokenRefused
from .jose import ASYMMETRIC, VerifiedToken

LEEWAY: Final = 30.0
"""Seconds by which clocks may differ. RFC 7519 section 4.1.4: "Implementers MAY provide for some small leeway, usually
no more than a few minutes"."""
LATEST: Final = 253_402_300_799.0
"""The last second of the year 9999, Unix time: a later time is refused."""
_TEXT: Final = 1_024
"""Characters of a subject or a client, at most."""
_SCOPES: Final = 512
"""Sets of scopes that are cached, so that tokens with the same scopes share one."""

ACCESS: Final = frozenset({"at+jwt"})
"""RFC 9068 section 2.1: "The value of "typ" used with JWT access tokens SHOULD be "at+jwt"."""
UNTYPED: Final = frozenset({"at+jwt", "jwt", ""})
"""The `typ` values of issuers that are older than RFC 9068."""
_OTHER_TYPES: Final = frozenset(
    {"dpop+jwt", "oauth-id-jag+jwt", "logout+jwt", "secevent+jwt", "token-introspection+jwt", "oauth-authz-req+jwt"}
)

_THUMBPRINT: Final = re.compile(r"[A-Za-z0-9_-]{43}")
"""32 bytes in base64url without padding: a SHA-256."""

Path = str | tuple[str, ...]
"""The name of a claim, or the names that lead to it through nested objects."""


class TokenBinding(Struct, frozen=True):
    """What a token is bound to (RFC 7800): it is accepted only together with that."""

    by: Literal["jkt", "x5t#S256"]
    """A key, by its JWK thumbprint (RFC 9449 section 6.1), or a TLS certificate, by the SHA-256 of its DER (RFC 8705
    section 3.1)."""
    thumbprint: str
    """In base64url, without padding."""


class Issuer(Struct, frozen=True, kw_only=True):
    """One issuer of tokens, and how it writes them. The presets make these; the defaults are RFC 9068's."""

    issuer: str
    """What `iss` must be, byte for byte."""
    aliases: frozenset[str] = frozenset()
    """Other values of `iss` that are the same issuer."""
    jwks_uri: str | None = None
    """Where its keys are; None: its metadata say so (RFC 8414, OpenID Connect Discovery)."""
    metadata_uri: str | None = None
    """The URL of its metadata; None: the well-known ones."""
    token_endpoint: str | None = None
    """Where tokens are exchanged; None: its metadata say so."""
    algorithms: frozenset[str] = ASYMMETRIC
    """The algorithms that it signs with."""
    types: frozenset[str] = ACCESS
    """The `typ` values that its access tokens have, in lower case; "" for none. A token that is not "at+jwt" must look
    like an access token in what it claims, too."""
    audience: frozenset[str] = frozenset()
    """The audiences of its tokens; empty: the resource, or what `Bearer(audience=)` says."""
    audience_claim: str = "aud"
    """The claim that says for whom a token is."""
    subject: tuple[Path, ...] = ("sub",)
    """The claims that may name the user; the first one that a token has counts."""
    client: tuple[Path, ...] = ("client_id", "azp")
    """The claims that may name the client."""
    scopes: tuple[Path, ...] = ("scope", "scp")
    """The claims with scopes: texts with spaces between them, or lists."""
    roles: tuple[Path, ...] = ("roles",)
    """The claims with roles: lists, or a text for one."""
    evidence: tuple[str, ...] = ("scope", "scp", "roles", "client_id", "azp")
    """Claims that access tokens have and ID tokens do not: a token that is not "at+jwt" must have one of them, or one
    of `scopes` and `client`."""
    required: Mapping[str, tuple[Any, ...]] = {}
    """Claims that a token must have, with the values that each may have; an empty tuple: any."""
    exchange: str = "rfc8693"
    """How it exchanges tokens: "rfc8693", or "on_behalf_of" (Entra)."""

    def __post_init__(self) -> None:
        never = self.types & _OTHER_TYPES
        if never:
            raise LocalError(f"Issuer: {', '.join(sorted(never))} is not the type of an access token")
        unknown = self.algorithms - ASYMMETRIC
        if unknown or not self.algorithms:
            raise LocalError(f"Issuer: algorithms are some of {', '.join(sorted(ASYMMETRIC))}, not {sorted(unknown)}")


class ClaimRules:
    """Checks the claims of one issuer's tokens, after their signature was verified.

    `audience`: a token's audience must be one of these; `resource`: where another claim than `aud` is the audience,
    what `aud` must name if a token has it all the same; `leeway`: seconds by which clocks may differ; `implies`: for a
    scope those that it includes; `expires`: whether a token must have `exp`. Raises LocalError without an audience."""

    __slots__ = (
        "_audience",
        "_evidence",
        "_expires",
        "_issuers",
        "_leeway",
        "_resource",
        "_roles",
        "_scopes",
        "issuer",
    )

    def __init__(
        self,
        issuer: Issuer,
        *,
        audience: Iterable[str],
        resource: Iterable[str] = (),
        leeway: float = LEEWAY,
        implies: Mapping[str, Iterable[str]] | None = None,
        expires: bool = True,
    ) -> None:
        self.issuer: Issuer = issuer
        self._issuers = issuer.aliases | {issuer.issuer}
        self._audience = frozenset(audience)
        self._resource = self._audience.union(resource)
        self._leeway = leeway
        self._expires = expires
        self._evidence = frozenset(issuer.evidence).union(map(_first, issuer.scopes + issuer.client))
        self._scopes = _WordSets(implies or {})
        self._roles = _WordSets({})
        if not self._audience or "" in self._audience:
            raise LocalError("Rules: without an audience a token of any service of the issuer would be taken")

    def check_claims(
        self, token: VerifiedToken, now: float, *, claims: Mapping[str, Any], credential: Credential | None
    ) -> tuple[Identity, TokenBinding | None]:
        """Return who the bearer is, and what the token is bound to (None: to nothing). `now`: Unix time; `claims` and
        `credential` become the identity's. Its `expires_at` is `exp` plus the leeway. Raises TokenRefused, NotYet."""
        found, issuer = token.claims, self.issuer
        # RFC 9068 section 4: "The issuer identifier for the authorization server ... MUST exactly match the value of
        # the "iss" claim."
        named = found.get("iss")
        if not isinstance(named, str) or named not in self._issuers:
            raise TokenRefused("The token is of another issuer (iss)")
        self._check_type(token.header, found)
        self._check_audience(found.get(issuer.audience_claim), issuer.audience_claim, self._audience)
        if issuer.audience_claim != "aud" and "aud" in found:
            self._check_audience(found["aud"], "aud", self._resource)
        expires = self._check_times(found, now)
        for name, values in issuer.required.items():
            if name not in found or (values and found[name] not in values):
                raise TokenRefused(f"The token's {name} is not what its issuer writes into access tokens")
        client = _text_at(found, issuer.client)
        subject = _text_at(found, issuer.subject) or client
        if subject is None:
            raise TokenRefused("The token names neither a subject (sub) nor a client")
        identity = Identity(
            subject=subject,
            client_id=None if client is None else sys.intern(client),
            issuer=issuer.issuer,
            scopes=self._scopes.of(_words_at(found, issuer.scopes)),
            roles=self._roles.of(_words_at(found, issuer.roles)),
            expires_at=expires,
            claims=claims,
            credential=credential,
        )
        return identity, bound_to(found)

    def _check_type(self, header: Mapping[str, Any], claims: Mapping[str, Any]) -> None:
        # RFC 7515 section 4.1.9: "application/" may be left out where there is no other "/"; case does not matter
        typ = str(header.get("typ", "")).lower().removeprefix("application/")
        if typ not in self.issuer.types:
            raise TokenRefused("The token is not an access token by its type (typ)")
        if typ == "at+jwt":
            return
        # an ID token has no scope and no client_id, and has what binds it to a login (OpenID Connect Core 2, 3.3.2.11)
        if "nonce" in claims or "at_hash" in claims or "c_hash" in claims:
            raise TokenRefused("The token is an ID token: it has nonce, at_hash or c_hash")
        if self._evidence.isdisjoint(claims):
            names = ", ".join(sorted(self._evidence))
            raise TokenRefused(f"The token is not an access token: it has none of {names}")

    @staticmethod
    def _check_audience(audience: Any, claim: str, expected: frozenset[str]) -> None:
        # RFC 9068 section 4: "The resource server MUST validate that the "aud" claim contains a resource indicator
        # value corresponding to an identifier the resource server expects for itself."
        named = [audience] if isinstance(audience, str) else audience
        if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
            raise TokenRefused(f"The token does not say for whom it is ({claim})")
        if expected.isdisjoint(named):
            raise TokenRefused(f"The token is for another service ({claim})")

    def _check_times(self, claims: Mapping[str, Any], now: float) -> float | None:
        """Return until when the token is accepted: `exp` plus the leeway. RFC 9068 section 4: "The current time MUST be
        before the time represented by the "exp" claim." Raises TokenRefused, NotYet."""
        expires = _time_at(claims, "exp")
        if expires is None and self._expires:
            raise TokenRefused("The token does not say when it expires (exp)")
        if expires is not None and now >= expires + self._leeway:
            raise TokenRefused("The token has expired (exp)")
        # RFC 7519 section 4.1.5: the token "MUST NOT be accepted for processing" before nbf
        starts, issued = _time_at(claims, "nbf"), _time_at(claims, "iat")
        if starts is not None and starts > now + self._leeway:
            raise NotYet("The token is not valid yet (nbf)")
        if issued is not None and issued > now + self._leeway:
            raise NotYet("The token was issued in the future (iat)")
        return None if expires is None else expires + self._leeway


class _WordSets:
    """Makes sets of words, with all that these imply; equal sets are one object."""

    __slots__ = ("_implies", "_kept")

    def __init__(self, implies: Mapping[str, Iterable[str]]) -> None:
        self._implies = close_implications(implies)
        self._kept: dict[tuple[str, ...], frozenset[str]] = {}

    def of(self, words: tuple[str, ...]) -> frozenset[str]:
        found = self._kept.get(words)
        if found is None:
            words = tuple(map(sys.intern, words))
            found = frozenset(words).union(*(self._implies.get(word, ()) for word in words))
            while len(self._kept) >= _SCOPES:
                del self._kept[next(iter(self._kept))]
            self._kept[words] = found
        return found


def close_implications(implies: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    """Return for each scope all that it includes, directly or through others."""
    direct = {scope: frozenset(included) for scope, included in implies.items()}
    found = {}
    for scope in direct:
        known, waiting = frozenset[str](), {scope}
        while waiting:
            waiting = set().union(*(direct.get(one, frozenset()) for one in waiting)) - known
            known |= waiting
        found[scope] = known
    return found


def bound_to(claims: Mapping[str, Any]) -> TokenBinding | None:
    """Return to what `cnf` binds a token; None without `cnf`. Raises TokenRefused for a confirmation that cannot be
    checked here: such a token admits no one (RFC 7800 section 3.1)."""
    if "cnf" not in claims:
        return None
    cnf = claims["cnf"]
    # RFC 7800 section 3.1: it "MUST represent only a single proof-of-possession key"
    if isinstance(cnf, dict) and len(cnf) == 1:
        key, certificate = cnf.get("jkt"), cnf.get("x5t#S256")
        if isinstance(key, str) and key.isascii():
            return TokenBinding("jkt", key)
        # RFC 8705 section 3.1: "a base64url-encoded ... SHA-256 hash ... of the DER encoding of the X.509 certificate",
        # which "MUST omit all trailing pad '=' characters"
        if isinstance(certificate, str) and _THUMBPRINT.fullmatch(certificate):
            return TokenBinding("x5t#S256", certificate)
    raise TokenRefused("The token is bound to something that cannot be checked here (cnf)")


def _first(path: Path) -> str:
    return path if isinstance(path, str) else path[0]


def _value_at(claims: Mapping[str, Any], path: Path) -> Any:
    value: Any = claims
    for name in (path,) if isinstance(path, str) else path:
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return value


def _text_at(claims: Mapping[str, Any], paths: Sequence[Path]) -> str | None:
    """Return the first of these claims that the token has; None if it has none. Raises TokenRefused if it is not
    text."""
    for path in paths:
        value = _value_at(claims, path)
        if value is not None:
            if not isinstance(value, str) or not 0 < len(value) <= _TEXT:
                raise TokenRefused(f"The token's {_first(path)} is not text of 1 to {_TEXT} characters")
            return value
    return None


def _words_at(claims: Mapping[str, Any], paths: Sequence[Path]) -> tuple[str, ...]:
    """Return the words of all of these claims. Raises TokenRefused for one that is neither a text nor a list of
    texts."""
    words: list[str] = []
    for path in paths:
        value = _value_at(claims, path)
        if value is None:
            continue
        if isinstance(value, str):
            words += value.split(" ")
        elif isinstance(value, list) and all(isinstance(one, str) for one in value):
            words += value
        else:
            raise TokenRefused(f"The token's {_first(path)} is neither a text nor a list of texts")
    return tuple(sorted({word for word in words if word}))


def _time_at(claims: Mapping[str, Any], name: str) -> float | None:
    """Return a NumericDate (RFC 7519 section 2), Unix time in seconds; None where it is absent. Raises TokenRefused."""
    if name not in claims:
        return None
    value = claims[name]
    if type(value) not in (int, float) or not 0 <= value <= LATEST:
        raise TokenRefused(f"The token's {name} is not a time: a number of seconds from 1970 to 9999")
    return float(value)
