"""What kind of address a host has: whether a server that is told to connect to it may do so. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Literal

Kind = Literal["public", "private", "loopback", "forbidden"]
"""The kind of an IP address. "forbidden": link-local, multicast, unspecified and reserved ones, and those where clouds
serve a machine's credentials; nobody has a service for others at such an address."""
_WORST: Final[tuple[Kind, ...]] = ("forbidden", "loopback", "private", "public")

_EXCEPTIONS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "forbidden": (
        "0.0.0.0/8",  # "this network" (RFC 791): Linux connects 0.0.0.0 to itself
        "169.254.0.0/16",  # link-local, and the metadata of most clouds
        "168.63.129.16/32",  # Azure's host
        "192.0.0.192/32",  # Oracle Cloud's metadata
        "100.100.100.200/32",  # Alibaba Cloud's metadata
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/128",
        "fe80::/10",
        "ff00::/8",
        "fd00:ec2::/32",  # Amazon's metadata
        "fd20:ce::/32",  # Google's metadata
        "fd00:c1::/32",  # Oracle Cloud's metadata
    ),
    "loopback": ("127.0.0.0/8", "::1/128"),
    # what some versions of Python call global, by the registries of special addresses (RFC 6890)
    "private": ("192.0.0.0/24", "192.88.99.0/24", "2001::/23", "2001:db8::/32", "3fff::/20"),
}
_NETWORKS: Final = [(kind, ip_network(text)) for kind, texts in _EXCEPTIONS.items() for text in texts]
_GLOBAL: Final = IPv6Network("2000::/3")
"""The part of IPv6 from which IANA assigns global unicast addresses (RFC 4291 section 2.4); site-local ones are not in
it."""
_EMBEDDING: Final = (
    IPv6Network("::/96"),  # "IPv4-compatible" (RFC 4291 section 2.5.5.1)
    IPv6Network("::ffff:0:0/96"),  # IPv4-mapped
    IPv6Network("::ffff:0:0:0/96"),  # IPv4-translated (RFC 2765)
    IPv6Network("64:ff9b::/96"),  # NAT64 (RFC 6052)
    IPv6Network("64:ff9b:1::/48"),  # NAT64 of one network (RFC 8215)
)
"""The networks in whose addresses the last 32 bits are an IPv4 address."""


def kind_of(address: str) -> Kind:
    """Return what kind of IP address it is; one with IPv4 addresses in it is of the worst kind of these. Only an
    address that is known to be public counts as public."""
    ip = ip_address(address.partition("%")[0])
    kinds = {_kind(one) for one in (_embedded(ip) if isinstance(ip, IPv6Address) else (ip,))}
    return next(kind for kind in _WORST if kind in kinds)


def _kind(ip: IPv4Address | IPv6Address) -> Kind:
    for kind, network in _NETWORKS:
        if ip in network:
            return kind
    return "public" if ip.is_global and (isinstance(ip, IPv4Address) or ip in _GLOBAL) else "private"


def _embedded(ip: IPv6Address) -> Iterable[IPv4Address | IPv6Address]:
    """Return the addresses at which packets to this one arrive: the IPv4 addresses in it, or itself."""
    number = int(ip)
    if number > 1 and any(ip in network for network in _EMBEDDING):
        found = [IPv4Address(number & 0xFFFFFFFF)]
        if ip in _EMBEDDING[-1]:
            # RFC 6052 section 2.2: with a prefix of 48 bits the address is in bits 48 to 63 and 72 to 87
            found.append(IPv4Address((number >> 64 & 0xFFFF) << 16 | number >> 40 & 0xFFFF))
        return found
    if (teredo := ip.teredo) is not None:
        return teredo
    if ip.sixtofour is not None:
        return (ip.sixtofour,)
    if number >> 32 & 0xFCFFFFFF == 0x5EFE:  # ISATAP (RFC 5214 section 6.1)
        return (ip, IPv4Address(number & 0xFFFFFFFF))
    return (ip,)
