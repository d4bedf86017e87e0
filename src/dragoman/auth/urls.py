"""Splits URLs that documents, requests and people write, without raising errors. Pure."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

REDIRECT_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
"""The loopback hosts of redirect URIs and of our own issuer: the IP literals of RFC 8252 section 7.3, and `localhost`,
which existing clients register. These are fewer than `is_loopback` accepts: a resolver may send `a.localhost` elsewhere
(RFC 6761 section 6.3 only says SHOULD), and must not decide where a browser is sent with a code."""


def split(url: str) -> SplitResult | None:
    """Return the parts of a URL; None for text that is no URL, such as one with a bracket that is not closed, or with a
    port that is not a number or too high."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # it is checked when it is read
    except ValueError:
        return None
    return parts


def host_of(url: str | None) -> str:
    """Return the host of a URL, in lower case; "" for None, and for text without a host."""
    parts = None if url is None else split(url)
    return "" if parts is None else (parts.hostname or "").lower()


def split_web(url: str) -> SplitResult | None:
    """Return the parts of an absolute https or http URL with a host; None for any other text."""
    parts = split(url)
    return parts if parts is not None and parts.scheme in ("https", "http") and parts.hostname else None


def split_issuer(issuer: str) -> SplitResult | None:
    """Return the parts of an issuer's URL; None for what cannot be one: "a URL that uses the "https" scheme and has no
    query or fragment components" (RFC 8414 section 2). Plain http passes: whether it is loopback is decided where it is
    fetched or served."""
    parts = split_web(issuer)
    return None if parts is None or "?" in issuer or "#" in issuer or "@" in parts.netloc else parts


def is_loopback(host: str) -> bool:
    """Return whether a host as written is loopback: 127.0.0.0/8, ::1, localhost (RFC 6761 section 6.3)."""
    host = host.lower().rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
