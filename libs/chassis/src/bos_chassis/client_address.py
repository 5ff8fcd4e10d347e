"""Client address of a call, as far as it can be trusted, and the network it counts for.

All that is counted per address (places, attempts, look-ups) is counted per :func:`network`: one
IPv4 address, or the /64 that a single IPv6 subscriber has to itself.
"""

from __future__ import annotations

from contextvars import ContextVar
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import unquote

_IPV6_SITE = 64

_network: ContextVar[str] = ContextVar("bos_network", default="")


def current_network() -> str:
    """The network that the server call in progress comes from; empty if unknown."""
    return _network.get()


def set_network(name: str) -> None:
    """Say where the call in progress comes from."""
    _network.set(name)


def client_address(peer: str, forwarded: str | None) -> str:
    """Address of the client; empty if unknown.

    Args:
        peer: Who is at the other end, as gRPC has it, such as ``ipv4:10.0.0.7:51234``.
        forwarded: What a proxy of ours says under its signature; empty if it does not know either,
            None if the call comes through none. Nothing else is believed.
    """
    address = _of_peer(peer) if forwarded is None else parsed(forwarded)
    return "" if address is None else str(address)


def network(address: str) -> str:
    """The network an address counts for: an IPv4 address itself, or the network of an IPv6 site."""
    found = parsed(address)
    if not isinstance(found, IPv6Address):
        return address if found is None else str(found)
    return f"{IPv6Address(int(found) >> _IPV6_SITE << _IPV6_SITE)}/{_IPV6_SITE}"


def parsed(text: str) -> IPv4Address | IPv6Address | None:
    """The address that ``text`` is, an IPv4 one in IPv6 as what it is; None if it is none."""
    try:
        address = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _of_peer(peer: str) -> IPv4Address | IPv6Address | None:
    kind, _, rest = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return None
    return parsed(rest.rpartition(":")[0])
