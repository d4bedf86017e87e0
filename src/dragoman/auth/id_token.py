"""The checks of an ID token of OpenID Connect: that it is its issuer's, for this client and of this login. Pure."""

from __future__ import annotations

from typing import Any

from .errors import TokenRefused
from .jose import ASYMMETRIC, KeySet, verify_jws
from .tokens import LATEST, LEEWAY

_TYPES = frozenset(("", "jwt"))


def id_token_claims(
    text: str, keys: KeySet, *, issuer: str, client: str, nonce: str | None, now: float
) -> dict[str, Any]:
    """Return the claims of an ID token that passes the rules of OpenID Connect Core 1.0 section 3.1.3.7. `nonce`: that
    of the login's request; None: the token was renewed, and "need not" have one (section 12.2). `now`: Unix time.
    Raises TokenRefused."""
    token = verify_jws(text, keys, ASYMMETRIC)
    claims = token.claims
    if str(token.header.get("typ", "")).lower().removeprefix("application/") not in _TYPES:
        raise TokenRefused("It is not an ID token by its type (typ)")
    if claims.get("iss") != issuer:
        raise TokenRefused("The ID token is of another issuer (iss)")
    audience = claims.get("aud")
    # "The ID Token MUST be rejected if the ID Token does not list the Client as a valid audience, or if it contains
    # additional audiences not trusted by the Client": none is trusted
    if (audience if isinstance(audience, list) else [audience]) != [client] or claims.get("azp", client) != client:
        raise TokenRefused("The ID token is for another client (aud, azp)")
    if _time(claims, "exp") + LEEWAY <= now:
        raise TokenRefused("The ID token has expired (exp)")
    if _time(claims, "iat") > now + LEEWAY:
        raise TokenRefused("The ID token was issued in the future (iat)")
    if nonce is not None and claims.get("nonce") != nonce:
        raise TokenRefused("The ID token is of another login (nonce)")
    if not isinstance(claims.get("sub"), str) or not claims["sub"]:
        raise TokenRefused("The ID token names no user (sub)")
    return claims


def _time(claims: dict[str, Any], name: str) -> float:
    value = claims.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= LATEST:
        raise TokenRefused(f"The ID token's {name} is not a time")
    return float(value)
