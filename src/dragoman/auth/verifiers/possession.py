"""Whether a caller holds what its token is bound to: a key (RFC 9449 section 7) or a TLS certificate (RFC 8705 section
3). A token that is bound to a certificate is always accepted with it: that needs no option, since it is stricter than a
bearer token.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Final, Literal
from urllib.parse import urlsplit

from ...allowance import Owner
from ...channel import Handshake, Identity
from ..dpop import ProofChecker
from ..errors import TokenRefused
from ..jose import encode_base64url
from ..replays import SeenOnce
from ..tokens import TokenBinding

Policy = Literal["off", "accepted", "required"]
POLICIES: Final[tuple[Policy, ...]] = ("off", "accepted", "required")


class Possession:
    """Checks that a caller holds what its token is bound to. `resource`: the server's URL as clients see it. Its
    scheme, host and port are those of each request's URL; not `Host`, which a caller can choose and a proxy in front
    changes."""

    __slots__ = ("_checker", "_origin", "policy")

    def __init__(self, policy: Policy, resource: str, checker: ProofChecker) -> None:
        parts = urlsplit(resource)
        self.policy = policy
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._checker = checker

    def share(self, store: SeenOnce) -> Callable[[], None]:
        """Remember used proofs in this store too, until the returned function is called."""
        return self._checker.share(store) if self.policy != "off" else _do_nothing

    async def check_binding(
        self, token: str, identity: Identity, bound: TokenBinding | None, handshake: Handshake
    ) -> None:
        """Raise TokenRefused unless the caller may use the token, IssuerAway where that cannot be found out now.
        `identity`: the bearer; `bound`: what the token is bound to; None: to nothing."""
        scheme, proofs = _credentials_of(handshake)
        if bound is None or bound.by != "jkt":
            if self.policy == "required":
                raise TokenRefused("This server takes only tokens that are bound to a key (DPoP)", scheme="DPoP")
            if scheme == b"dpop":
                raise TokenRefused("The token is not bound to a key: it is sent as Bearer", scheme="DPoP")
            if bound is not None:
                _check_certificate(bound.thumbprint, handshake.certificate_der)
            return
        if self.policy == "off":
            raise TokenRefused("The token is bound to a key (cnf), and this server takes no DPoP")
        # RFC 9449 section 7.2: "a protected resource ... MUST reject a DPoP-bound access token received as a bearer
        # token"
        if scheme != b"dpop":
            raise TokenRefused("The token is bound to a key: it is sent as DPoP, with a proof", scheme="DPoP")
        # RFC 9449 section 4.3: "1. There is not more than one DPoP HTTP request header field."
        if len(proofs) != 1:
            raise TokenRefused(
                f"There is one DPoP header with one proof, not {len(proofs)}", error="invalid_dpop_proof", scheme="DPoP"
            )
        # as it was sent: "//host/mcp" is a path here, and no host
        sent = handshake.url.partition("?")[0]
        url = self._origin + (sent if sent.startswith("/") else urlsplit(sent).path or "/")
        proof = proofs[0].decode("latin-1")
        owner = Owner(identity.account, known=True)
        await self._checker.check_shared(
            proof, handshake.method, url, token=token, thumbprint=bound.thumbprint, owner=owner
        )


def _check_certificate(thumbprint: str, der: bytes | None) -> None:
    # RFC 8705 section 3: "The protected resource MUST obtain, from its TLS implementation layer, the client certificate
    # used for mutual TLS and MUST verify that the certificate matches the certificate associated with the access token.
    # If they do not match, the resource access attempt MUST be rejected with an error, per [RFC6750], using an HTTP 401
    # status code and the "invalid_token" error code."
    if der is None:
        raise TokenRefused("The token is bound to a TLS certificate (cnf), and this connection showed none")
    if not hmac.compare_digest(encode_base64url(hashlib.sha256(der).digest()), thumbprint):
        raise TokenRefused("The token is bound to another TLS certificate than that of this connection (cnf)")


def _credentials_of(handshake: Handshake) -> tuple[bytes, list[bytes]]:
    """Return the scheme of `Authorization` in lower case, and the DPoP proofs."""
    scheme, proofs = b"", []
    for name, value in handshake.headers:
        if name == b"authorization":
            scheme = value.partition(b" ")[0].lower()
        elif name == b"dpop":
            proofs.append(value)
    return scheme, proofs


def _do_nothing() -> None:
    """Do nothing: there is nothing to stop sharing."""
