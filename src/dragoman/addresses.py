"""Reads the address of a caller from its wire's text for it, where slots are counted or shared by address. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network


def address_of(remote: str) -> str:
    """Return the address in a wire's text "host:port"; of IPv6 the /64 network that it is in, as text. "" where there
    is no address."""
    host = remote.rpartition(":")[0]
    if host.startswith("["):
        host = host[1:-1]
    if host.count(".") == 3 and ":" not in host and host.replace(".", "").isdecimal():
        return host
    from ipaddress import IPv6Address  # noqa: PLC0415  (start-up: for IPv6 alone)

    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return ""
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"


def network_of(text: str) -> IPv4Network | IPv6Network | None:
    """Return the network that "10.0.0.0/8", or one address, names. None for other text, for a network with bits set
    below its prefix, and for the network of all addresses."""
    from ipaddress import ip_network  # noqa: PLC0415  (start-up: where proxies are trusted)

    try:
        found = ip_network(text)
    except ValueError:
        return None
    return found if found.prefixlen else None
