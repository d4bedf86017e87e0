"""Redirect URIs: which ones a client may have, and whether a requested one is one of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import SplitResult

from ..urls import REDIRECT_LOOPBACK, split

LENGTH = 2_000
_PRINTABLE = re.compile(r"[\x21-\x7e]+")
_PRIVATE = re.compile(r"[a-z][a-z0-9+-]*(\.[a-z0-9+-]+)+")
"""RFC 8252, 7.1: a scheme of an app's own is a reversed domain name, so it has a dot; `javascript` and `data` have
none."""


def _split(uri: str) -> SplitResult | None:
    """Return the parts of a URI; None for text that is none, or that has a fragment or user information."""
    if len(uri) > LENGTH or not _PRINTABLE.fullmatch(uri) or "#" in uri or "\\" in uri:
        return None  # RFC 6749, 3.1.2: "The endpoint URI MUST NOT include a fragment component."
    parts = split(uri)
    return None if parts is None or "@" in parts.netloc else parts


def fault(uri: str) -> str:
    """Return what is wrong with a redirect URI that a client registers, as the end of a sentence; "" if nothing is."""
    parts = _split(uri)
    if parts is None:
        return "is not an absolute URI without fragment and user information"
    if parts.scheme == "https":
        return "" if parts.hostname else "has no host"
    if parts.scheme == "http":
        # MCP authorization, Communication Security: redirect URIs are localhost or HTTPS
        return "" if parts.hostname in REDIRECT_LOOPBACK else "is http, which only loopback may be"
    return "" if _PRIVATE.fullmatch(parts.scheme) else "has a scheme that is neither https nor an app's own"


def is_loopback_redirect(uri: str) -> bool:
    """Return whether a redirect goes to this machine."""
    parts = _split(uri)
    return parts is not None and parts.scheme == "http" and parts.hostname in REDIRECT_LOOPBACK


def matches(uri: str, registered: Iterable[str]) -> bool:
    """Return whether a redirect URI is one of these.

    OAuth 2.1, 7.5.3 and RFC 9700, 2.1: compared as plain text. RFC 8252, 7.3: "The authorization server MUST allow any
    port to be specified at the time of the request for loopback IP redirect URIs"; `localhost` is treated alike,
    because clients in use register it.
    """
    parts = _split(uri)
    if parts is None or fault(uri):
        return False
    for one in registered:
        if uri == one:
            return True
        if is_loopback_redirect(uri) and is_loopback_redirect(one) and _portless(uri) == _portless(one):
            return True
    return False


def _portless(uri: str) -> tuple[str, str]:
    """Return a loopback URI without its port: the host, and the rest, each as it was written."""
    rest = uri.removeprefix("http://")
    at = next((index for index, each in enumerate(rest) if each in "/?"), len(rest))
    index, after = rest[:at], rest[at:]
    return re.sub(r":[0-9]*$", "", index), after


def host_of(uri: str) -> str:
    """Return what a page shows of a redirect URI: its host and port, or the scheme of an app."""
    parts = _split(uri)
    return "" if parts is None else parts.netloc or f"the app {parts.scheme}:"
