"""Who called through a reverse proxy: `Forwarded` (RFC 7239), `X-Forwarded-For`, `-Proto` and `-Host`. Pure.

Rules:

- Nothing is believed unless the connection comes from a configured network; without one nothing here runs.
- Each proxy adds the address that it saw at the right. From the right, hops of configured networks are passed over; the
  first other one is the caller. What is further left was written by the caller and is not read.
- A hop that is not an address ("unknown", "_hidden", nonsense) ends the search: then the hop to its right is the best
  that is known.
- Of `X-Forwarded-Proto` and `-Host` the last value counts, which the nearest proxy wrote; of `Forwarded` what the
  element of the caller says.
- A proxy usually writes one of the two kinds and lets the other pass as its caller sent it. So where both came, only
  what they agree on is believed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import islice
from typing import Final, TypeAlias

from msgspec import Struct

from ..addresses import network_of
from ..repeats import Repeats

log: logging.Logger = logging.getLogger("dragoman.http")
repeats: Repeats = Repeats(log)

FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host")
"""The header fields that are read, in the order of `TrustedProxies.origin`."""
HOPS: Final = 32
"""Hops that are read; chains of real proxies have a handful."""
KNOWN: Final = 1024
"""Origins that are kept by their header fields; when there are more, all are dropped."""
KNOWN_SIZE: Final = 512
"""Longest fields, in characters in all, that are kept with their origin."""

Address: TypeAlias = tuple[str, int]

# possessive quantifiers: a long run of blanks in a stranger's text is read only once
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_PAIR = re.compile(rf'[ \t]*+(?:({_TOKEN})=(?:({_TOKEN})|"((?:[^"\\]|\\.)*+)"))?+[ \t]*+([;,]|$)')
_NODE = re.compile(
    r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([0-9.]{7,15}))(?::([0-9]{1,5}|_[A-Za-z0-9._-]+))?|([0-9A-Fa-f:.]{2,45})"
)
_HOST = re.compile(r"([A-Za-z0-9._~-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?")
_SCHEMES: Final = {"http": "http", "https": "https", "ws": "http", "wss": "https"}


class RequestOrigin(Struct, frozen=True):
    """The origin of a request as trusted proxies state it; a member is empty where they state nothing that can be
    believed."""

    address: Address | None = None
    """The caller's address, and its port, 0 where none was written."""
    scheme: str = ""
    """ "http" or "https": how the caller sent the request."""
    host: str = ""
    """The host that the caller addressed, with its port."""

    @property
    def remote(self) -> str:
        """The caller's address as `Caller.remote`."""
        if self.address is None:
            return ""
        host, port = self.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class TrustedProxies:
    """The networks whose header fields are believed."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = [found for one in networks if (found := network_of(one)) is not None]
        self._known: dict[tuple[str, ...], RequestOrigin] = {}
        self._trusted: dict[str, bool] = {}

    def trusts(self, host: str) -> bool:
        """Whether this address is that of a trusted proxy."""
        found = self._trusted.get(host)
        if found is None:
            address = _address(host.partition("%")[0])
            found = address is not None and any(address in one for one in self._networks)
            if len(self._trusted) >= KNOWN:
                self._trusted.clear()
            self._trusted[host] = found
        return found

    def origin_of(self, fields: Mapping[str, str]) -> RequestOrigin:
        """Return the origin of a request whose header fields have names in lower case."""
        return self.origin(*(fields.get(name, "") for name in FORWARDED))

    def origin(self, forwarded: str, hops: str, proto: str, host: str) -> RequestOrigin:
        """Return the origin that the header fields of a request from a trusted proxy state, each with all its values,
        joined by ","; empty where there is none."""
        key = forwarded, hops, proto, host
        found = self._known.get(key)
        if found is None:
            found = self._read(*key)
            if sum(map(len, key)) <= KNOWN_SIZE:
                if len(self._known) >= KNOWN:
                    self._known.clear()
                self._known[key] = found
        return found

    def _read(self, forwarded: str, hops: str, proto: str, host: str) -> RequestOrigin:
        older = RequestOrigin(self._caller(map(_node, _from_right(hops))), _scheme(_last(proto)), _host(_last(host)))
        if not forwarded:
            return older
        newer = self._of_elements(elements_of(forwarded))
        if not (hops or proto or host):
            return newer
        if older.address != newer.address:
            repeats.warning(
                "a trusted proxy sends Forwarded and X-Forwarded-For that name different callers: neither is believed; "
                "let it remove the one that it does not write"
            )
        return RequestOrigin(
            older.address if older.address == newer.address else None,
            older.scheme if older.scheme == newer.scheme else "",
            older.host if older.host.lower() == newer.host.lower() else "",
        )

    def _of_elements(self, elements: list[dict[str, str]] | None) -> RequestOrigin:
        seen: dict[str, str] = {}

        def nodes() -> Iterator[Address | None]:
            nonlocal seen
            for seen in reversed(elements or []):
                yield _node(seen.get("for", ""))

        caller = self._caller(nodes())
        return RequestOrigin(caller, _scheme(seen.get("proto", "")), _host(seen.get("host", "")))

    def _caller(self, hops: Iterable[Address | None]) -> Address | None:
        """Return the first hop that is not a trusted proxy, else the last one that is known. `hops`: from the right."""
        found: Address | None = None
        for hop in islice(hops, HOPS):
            if hop is None:
                break
            found = hop
            if not self.trusts(hop[0]):
                break
        return found


def elements_of(text: str) -> list[dict[str, str]] | None:
    """Return the elements of `Forwarded`, names in lower case; None where it is not written as RFC 7239, 4, says."""
    elements: list[dict[str, str]] = [{}]
    at = 0
    while at < len(text):
        found = _PAIR.match(text, at)
        if found is None:
            return None
        name, token, quoted, end = found.groups()
        if name is not None:
            # "Each parameter MUST NOT occur more than once per field-value."
            if name.lower() in elements[-1]:
                return None
            elements[-1][name.lower()] = re.sub(r"\\(.)", r"\1", quoted) if token is None else token
        if end == ",":
            elements.append({})
        at = found.end()
    return [one for one in elements if one]


def _from_right(text: str) -> Iterator[str]:
    # a list may have empty elements (RFC 9110, 5.6.1)
    return (hop for one in reversed(text.rsplit(",", HOPS)[-HOPS:]) if (hop := one.strip(" \t")))


def _last(text: str) -> str:
    return text.rpartition(",")[2].strip(" \t")


def _scheme(text: str) -> str:
    return _SCHEMES.get(text.lower(), "")


def _host(text: str) -> str:
    return text if _HOST.fullmatch(text) is not None else ""


def _node(text: str) -> Address | None:
    """An address with or without a port; IPv6 with a port in brackets (RFC 7239, 6), and alone as proxies write it."""
    found = _NODE.fullmatch(text)
    if found is None:
        return None
    address = _address(found[1] or found[2] or found[4])
    port = int(found[3]) if found[3] and found[3].isdigit() else 0
    return None if address is None or port > 65_535 else (str(address), port)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """An address, the one of IPv4 where it is mapped into IPv6."""
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found
