"""Where a call comes from, as far as that can be believed."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from bos_chassis.proxy_tokens import PROXY_TOKEN_KEY

if TYPE_CHECKING:
    import grpc

    from bos_chassis.proxy_tokens import ProxyTokenVerifier

_IPV6_SITE = 64


@dataclass(frozen=True, slots=True)
class Addresses:
    """Tells where calls of people who are signed in come from, for the audit trail."""

    proxies: ProxyTokenVerifier | None

    def of(self, context: grpc.aio.ServicerContext[Any, Any]) -> str:
        """The client's address; empty if nobody knows, as behind a gateway that is not known."""
        entries = context.invocation_metadata() or ()
        metadata = {key: value for key, value in entries if isinstance(value, str)}
        told = self.proxies.verify(metadata) if self.proxies else None
        if told is None and PROXY_TOKEN_KEY in metadata:
            return ""
        return client_address(context.peer(), told)


def client_address(peer: str, told: str | None) -> str:
    """Where the client is; empty if nobody knows.

    Args:
        peer: Who is at the other end, as gRPC has it, such as ``ipv4:10.0.0.7:51234``.
        told: What a proxy of ours says under its signature; empty if it does not know either, None
            if the call comes through none. Nothing else is believed.
    """
    address = _of_peer(peer) if told is None else _parse(told)
    return "" if address is None else str(address)


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
