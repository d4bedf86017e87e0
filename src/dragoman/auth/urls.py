"""URLs as documents, requests and people write them: taken apart in one place, which raises nothing. Pure."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit


def split(url: str) -> SplitResult | None:
    """The parts of a URL; None for text that is none, such as one with half of a pair of brackets, or with a port that
    is not a number or too high."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # it is looked at when it is asked for
    except ValueError:
        return None
    return parts


def host_of(url: str | None) -> str:
    """The host of a URL, in lower case; "" for None, and for text that is no URL with a host."""
    parts = None if url is None else split(url)
    return "" if parts is None else (parts.hostname or "").lower()


def split_web(url: str) -> SplitResult | None:
    """The parts of an absolute https or http URL with a host; None for any other text."""
    parts = split(url)
    return parts if parts is not None and parts.scheme in ("https", "http") and parts.hostname else None
