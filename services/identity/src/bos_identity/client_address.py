"""Where a call comes from, as far as that can be believed; pure."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ipaddress import IPv4Network, IPv6Network

    Network = IPv4Network | IPv6Network

UNKNOWN = "unknown"
_IPV6_SITE = 64


def client_address(peer: str, forwarded_for: str, trusted: Sequence[Network]) -> str:
    """The nearest address that is not one of our proxies, or ``unknown``.

    Args:
        peer: As gRPC has it, such as ``ipv4:10.0.0.7:51234``.
        forwarded_for: The header ``x-forwarded-for``; whatever a proxy of ours did not add itself
            could be a lie, so it is read from its end.
        trusted: Networks of our proxies.
    """
    address = _of_peer(peer)
    for hop in reversed([part.strip() for part in forwarded_for.split(",") if part.strip()]):
        if address is None or not any(_within(address, network) for network in trusted):
            break
        address = _parse(hop)
    return UNKNOWN if address is None else str(address)


def throttled_address(address: str) -> str:
    """What is slowed down together: an IPv4 address, or the network that one IPv6 site has."""
    parsed = _parse(address)
    if not isinstance(parsed, IPv6Address):
        return address
    return f"{IPv6Address(int(parsed) >> _IPV6_SITE << _IPV6_SITE)}/{_IPV6_SITE}"


def _of_peer(peer: str) -> IPv4Address | IPv6Address | None:
    kind, _, rest = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return None
    return _parse(rest.rpartition(":")[0])


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _within(address: IPv4Address | IPv6Address, network: Network) -> bool:
    return address.version == network.version and address in network
