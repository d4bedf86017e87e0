"""The address of a caller, in the text that a wire has for it: of what is counted or shared out by address. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network


def address_of(remote: str) -> str:
    """The address in the text "host:port" of a wire: of IPv6 its /64, as text of such a network. "" if there is
    none."""
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
    """The network of "10.0.0.0/8" or of one address; None for other text, bits of a host below the prefix, and the
    network of all addresses."""
    from ipaddress import ip_network  # noqa: PLC0415  (start-up: where proxies are trusted)

    try:
        found = ip_network(text)
    except ValueError:
        return None
    return found if found.prefixlen else None
