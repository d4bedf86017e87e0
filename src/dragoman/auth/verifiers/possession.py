"""Whether a caller holds the key that its token is bound to (RFC 9449 section 7)."""

from __future__ import annotations

from typing import Final, Literal
from urllib.parse import urlsplit

from ...channel import Handshake
from ..dpop import ProofChecker
from ..errors import TokenRefused

Policy = Literal["off", "accepted", "required"]
POLICIES: Final[tuple[Policy, ...]] = ("off", "accepted", "required")


class Possession:
    """Checks what goes with a token. `resource`: the server's URL as clients see it, from whose scheme, host and port
    the URL of each request is made: `Host` is what a caller says, and a proxy in front changes it."""

    __slots__ = ("_checker", "_origin", "policy")

    def __init__(self, policy: Policy, resource: str, checker: ProofChecker) -> None:
        parts = urlsplit(resource)
        self.policy = policy
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._checker = checker

    def check(self, token: str, key: str | None, handshake: Handshake) -> None:
        """Raises TokenRefused unless the token may be used as it came. `key`: the thumbprint of the key that it is
        bound to; None: to no key."""
        scheme, proofs = _shown(handshake)
        if key is None:
            if self.policy == "required":
                raise TokenRefused("This server takes only tokens that are bound to a key (DPoP)", scheme="DPoP")
            if scheme == b"dpop":
                raise TokenRefused("The token is not bound to a key: it is sent as Bearer", scheme="DPoP")
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
        self._checker.check(proofs[0].decode("latin-1"), handshake.method, url, token=token, thumbprint=key)


def _shown(handshake: Handshake) -> tuple[bytes, list[bytes]]:
    """The scheme of `Authorization` in lower case, and the DPoP proofs."""
    scheme, proofs = b"", []
    for name, value in handshake.headers:
        if name == b"authorization":
            scheme = value.partition(b" ")[0].lower()
        elif name == b"dpop":
            proofs.append(value)
    return scheme, proofs
