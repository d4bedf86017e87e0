"""Callers by their TLS client certificates (RFC 8705 section 2.1): the TLS handshake has verified a certificate, this
finds out whose it is."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, get_args

from ...channel import Handshake, Identity
from ...jsonrpc.errors import LocalError
from ...jsonrpc.options import CALLABLE, check, one_of
from ..errors import TokenRefused
from .base import VerifierBase

Name = Literal["uri", "dns", "email", "common_name"]
_NAMES: Final[Mapping[str, str]] = {"uri": "URI", "dns": "DNS", "email": "email"}


class MutualTls(VerifierBase):
    """Verifies callers by the certificate that they showed in the TLS handshake.

    `callers`: the names that may call, each with its `Identity` or its scopes. `name`: which name of a certificate
    counts: "uri" (as SPIFFE has it), "dns" or "email" of its alternative names, or "common_name" of its subject, for
    authorities of your own that write no other. The server's TLS context must ask for certificates
    (`verify_mode = ssl.CERT_OPTIONAL` or `CERT_REQUIRED`) and trust only authorities whose word on names counts here.
    """

    certificates = True
    """It is called for requests without a token."""

    def __init__(
        self,
        callers: Mapping[str, Identity | frozenset[str] | set[str] | list[str] | tuple[str, ...]],
        *,
        name: Name = "uri",
        now: Callable[[], float] = time.time,
    ) -> None:
        check("MutualTls", _RULES, locals())
        if not isinstance(callers, Mapping) or not callers:
            raise LocalError("MutualTls: callers are a dict from the names that may call to Identity or scopes")
        self._name, self._now = name, now
        self._callers: dict[str, Identity] = {}
        for who, what in callers.items():
            if isinstance(what, str) or not who:
                raise LocalError(f"MutualTls: {who!r} has an Identity or a list of scopes")
            self._callers[who] = what if isinstance(what, Identity) else Identity(subject=who, scopes=frozenset(what))

    def __repr__(self) -> str:
        return f"MutualTls({len(self._callers)} callers)"

    async def verify(self, token: str, handshake: Handshake) -> Identity | None:
        """Return the caller of a certificate; None for a request with a token, or without a certificate. Raises
        TokenRefused for a certificate of no caller, of several, or that has expired."""
        certificate = handshake.certificate
        if token or not certificate:
            return None
        found = [self._callers[name] for name in _names(certificate, self._name) if name in self._callers]
        if not found:
            raise TokenRefused("The certificate is none of a caller that may call here")
        if len({each.principal for each in found}) > 1:
            raise TokenRefused("The certificate has the names of several callers")
        expires = _expiry(certificate)
        if self._now() >= expires:
            raise TokenRefused("The certificate has expired")
        issuer = found[0].issuer or "x509:" + _distinguished_name(certificate.get("issuer", ()))
        until = expires if found[0].expires_at is None else min(expires, found[0].expires_at)
        return Identity(
            subject=found[0].subject,
            client_id=found[0].client_id,
            issuer=issuer,
            scopes=found[0].scopes,
            roles=found[0].roles,
            claims=found[0].claims,
            expires_at=until,
        )


def _names(certificate: Mapping[str, Any], kind: Name) -> list[str]:
    """Return the names of one kind in a certificate as `getpeercert()` returns it."""
    if kind == "common_name":
        return [value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
    return [value for name, value in certificate.get("subjectAltName", ()) if name == _NAMES[kind]]


def _expiry(certificate: Mapping[str, Any]) -> float:
    """Return `notAfter` as Unix time. Raises TokenRefused where it is absent."""
    try:
        return float(ssl.cert_time_to_seconds(certificate["notAfter"]))
    except (KeyError, TypeError, ValueError):
        raise TokenRefused("The certificate does not say when it expires") from None


def _distinguished_name(name: Any) -> str:
    """Return a distinguished name as text, without ambiguity."""
    pairs = [f"{kind}={value}" for part in name for kind, value in part]
    return ",".join(pair.replace("\\", "\\\\").replace(",", "\\,") for pair in pairs)


_RULES: Final = {"name": one_of(*get_args(Name)), "now": CALLABLE}
