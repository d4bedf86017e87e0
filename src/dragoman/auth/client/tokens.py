"""What a client stores: its registration, the tokens of a grant, and all that it needs after a restart. Pure.

Nothing here shows a token or a secret in its `repr`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..errors import AuthError
from ..fetch import By
from ..metadata import ServerMetadata
from .errors import AuthorizationFailed
from .store import EntryKey

EARLY = 30.0
"""Seconds before its expiry at which a token is renewed, so that it does not expire on its way; at most half its
life."""
LONGEST_LIFE = 366 * 86_400.0
"""Seconds after which any token counts as expired, even if its issuer said otherwise: larger numbers were seen to
overflow clocks."""


class Registration(Struct, frozen=True, kw_only=True):
    """A client as one authorization server knows it."""

    client_id: str
    client_secret: str | None = None
    method: str | None = None
    """`token_endpoint_auth_method` as the server answered; None: by the server's metadata."""
    secret_expires_at: float = 0.0
    """`client_secret_expires_at`, Unix time; 0: never."""
    redirect_uri: str | None = None
    """The one that was registered, with its port."""
    how: str = "given"
    """"given", "document" (a client id metadata document) or "registered" (dynamically)."""

    def __repr__(self) -> str:
        return f"Registration({self.client_id!r}, {self.how})"

    def expired(self, now: float) -> bool:
        """Return whether its secret has expired (RFC 7591 section 3.2.1)."""
        return self.client_secret is not None and 0 < self.secret_expires_at <= now


class Tokens(Struct, frozen=True, kw_only=True):
    """The answer of a token endpoint."""

    access_token: str
    token_type: str = "Bearer"
    expires_at: float | None = None
    """Unix time; None: the answer does not say."""
    renew_at: float | None = None
    """Unix time from which on they are renewed; None: never ahead of time."""
    refresh_token: str | None = None
    scopes: tuple[str, ...] = ()
    """What was granted; what was requested, if the answer does not say (RFC 6749 section 5.1)."""
    id_token: str | None = None

    def __repr__(self) -> str:
        return f"Tokens({self.token_type}, expires_at={self.expires_at}, scopes={self.scopes})"


class Grant(Struct, frozen=True, kw_only=True):
    """One entry of the store: all that calls, renewals and revocations need, without another discovery."""

    url: str
    server: ServerMetadata
    resource: str | None
    client: Registration
    by: By = "document"
    """Who named the issuer: the user may name one in a private network, a document may not."""
    private: tuple[str, ...] = ()
    """The hosts of the issuer that the user of the login allowed to be in a private network. Renewals reach these and
    no other private hosts, whatever the options of the process that renews."""
    account: str = "default"
    requested: tuple[str, ...] = ()
    """All scopes that were ever requested: a step-up adds to them."""
    tokens: Tokens | None = None
    dpop_key: dict[str, Any] | None = None
    """The private JWK that the tokens are bound to."""

    def __repr__(self) -> str:
        return f"Grant({self.server.issuer!r}, {self.resource!r}, {self.client!r}, {self.account!r})"

    def key(self, hint: str) -> EntryKey:
        """Return its entry in the store. `hint`: the client's id where the user gave one."""
        return EntryKey(self.server.issuer, "none" if self.resource is None else self.resource, hint, self.account)


def lifetime(value: Any) -> float | None:
    """Return the seconds of an `expires_in`; None where it has no usable value.

    Numbers and texts of digits count; fractions are cut, and more than a year counts as a year. 0 and less count as
    absent: a token that is expired when it is issued would be renewed for ever, so it is used until it is refused.
    """
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    seconds = float(min(value, LONGEST_LIFE))
    return float(int(seconds)) if seconds >= 1 else None


class NoTokens(AuthError):
    """A token endpoint's answer is a success, but holds no usable token."""


def tokens_of(answer: Any, now: float, requested: tuple[str, ...], before: Tokens | None = None) -> Tokens:
    """Return the tokens in a token endpoint's answer (RFC 6749 section 5.1). `now`: Unix time; `requested`: the scopes;
    `before`: the tokens that were renewed: "If a new refresh token is issued ... the client MUST discard the old
    refresh token", and without one keeps it. Raises NoTokens."""
    if not isinstance(answer, dict):
        raise NoTokens("the token endpoint's answer is not a JSON object")
    token, kind = answer.get("access_token"), answer.get("token_type", "Bearer")
    if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable() or " " in token:
        raise NoTokens("the token endpoint's answer has no access_token that a header can carry")
    # RFC 6749 section 7.1: "The client MUST NOT use an access token if it does not understand the token type."
    if not isinstance(kind, str) or kind.lower() not in ("bearer", "dpop"):
        raise NoTokens("the token endpoint's token_type is neither Bearer nor DPoP")
    life = lifetime(answer.get("expires_in"))
    renewal, scope, id_token = answer.get("refresh_token"), answer.get("scope"), answer.get("id_token")
    kept = before.refresh_token if before is not None else None
    granted = before.scopes if before is not None else requested
    return Tokens(
        access_token=token,
        token_type="DPoP" if kind.lower() == "dpop" else "Bearer",
        expires_at=None if life is None else now + life,
        renew_at=None if life is None else now + life - min(EARLY, life / 2),
        refresh_token=renewal if isinstance(renewal, str) and renewal else kept,
        scopes=tuple(dict.fromkeys(scope.split())) if isinstance(scope, str) and scope.strip() else granted,
        id_token=id_token if isinstance(id_token, str) else None,
    )


MOST_SCOPES = 100
"""Scopes of one request at most, so that a server that demands ever more does not make the URL grow for ever."""


def union(*sets: tuple[str, ...]) -> tuple[str, ...]:
    """Return all these scopes, each once, in order. Raises AuthorizationFailed beyond MOST_SCOPES."""
    scopes = tuple(dict.fromkeys(scope for some in sets for scope in some))
    if len(scopes) > MOST_SCOPES:
        raise AuthorizationFailed(
            f"{len(scopes)} scopes for one server: at most {MOST_SCOPES} are asked for; pin them: scopes="
        )
    return scopes
