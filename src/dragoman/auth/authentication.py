"""How a client authenticates at an endpoint (RFC 6749 section 2.3, RFC 7523 section 2.2). Pure."""

from __future__ import annotations

import os
from base64 import b64encode
from typing import TYPE_CHECKING, Final
from urllib.parse import quote_plus

if TYPE_CHECKING:
    from .jose import Key

ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_LIFE: Final = 300
"""Seconds for which an assertion of ours is valid: enough for clocks that differ by minutes."""


def authentication(
    method: str, client_id: str, secret: str | None, key: Key | None, audience: str, now: float
) -> tuple[dict[str, str], dict[str, str]]:
    """Return what authenticates a client: members of the form, and headers. `method`: as in
    `token_endpoint_auth_method`; `audience`: the issuer (RFC 7523 section 3: "the authorization server ... as an
    intended audience")."""
    if method == "client_secret_basic":
        # RFC 6749 section 2.3.1: both are form-encoded before they are joined
        pair = f"{quote_plus(client_id)}:{quote_plus(secret or '')}"
        return {}, {"authorization": "Basic " + b64encode(pair.encode()).decode()}
    fields = {"client_id": client_id}
    if method == "client_secret_post":
        fields["client_secret"] = secret or ""
    elif method == "private_key_jwt" and key is not None:
        from .jose import sign_jws  # noqa: PLC0415  (joserfc, for those who sign)

        # RFC 7523 section 3: iss and sub are the client's id
        claims = {"iss": client_id, "sub": client_id, "aud": audience, "jti": os.urandom(16).hex()}
        times = {"iat": int(now), "exp": int(now) + ASSERTION_LIFE}
        fields |= {"client_assertion_type": ASSERTION, "client_assertion": sign_jws(claims | times, key, typ="JWT")}
    return fields, {}
