"""Which IP addresses are public: an allow-list by exclusion of every special-purpose network.

The networks are those of the IANA special-purpose registries. They are written out here because
``ipaddress.is_global`` differs among patch releases of Python; it is asked as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from bos_http.errors import HttpRefused, Rule

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ip_network(text) for text in texts)


# Instance metadata, task credentials, and the platform agents beside them. Some are in ranges that
# look public (Azure's wire server) or that operators may open (shared and unique local addresses).
_METADATA = _networks(
    "169.254.169.254/32",  # AWS, Azure, Google, OpenStack, DigitalOcean and others
    "169.254.170.0/24",  # credentials of AWS tasks and pods
    "169.254.169.253/32",  # AWS resolver
    "169.254.0.23/32",  # Tencent
    "168.63.129.16/32",  # Azure wire server
    "100.100.100.200/32",  # Alibaba
    "192.0.0.192/32",  # Oracle
    "fd00:ec2::/32",  # AWS: metadata, credentials, time, resolver
    "fd20:ce::254/128",  # Google
    "fe80::a9fe:a9fe/128",  # OpenStack
)

# The first match names the rule, so narrow networks stand before the wide ones around them.
_SPECIAL: tuple[tuple[Rule, tuple[Network, ...]], ...] = (
    (Rule.ADDRESS_METADATA, _METADATA),
    (Rule.ADDRESS_UNSPECIFIED, _networks("0.0.0.0/8", "::/128")),
    (Rule.ADDRESS_LOOPBACK, _networks("127.0.0.0/8", "::1/128")),
    (Rule.ADDRESS_LINK_LOCAL, _networks("169.254.0.0/16", "fe80::/10")),
    (
        Rule.ADDRESS_PRIVATE,
        _networks("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"),
    ),
    (Rule.ADDRESS_SHARED, _networks("100.64.0.0/10")),
    (Rule.ADDRESS_MULTICAST, _networks("224.0.0.0/4", "ff00::/8")),
    (
        Rule.ADDRESS_DOCUMENTATION,
        _networks(
            "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"
        ),
    ),
    # IPv4 inside IPv6: where the packet ends is decided by a foreign translator.
    (
        Rule.ADDRESS_EMBEDDED,
        _networks(
            *("::ffff:0:0/96", "::ffff:0:0:0/96", "::/96"),  # mapped, translated, compatible
            *("64:ff9b::/96", "64:ff9b:1::/48"),  # NAT64
            *("2002::/16", "2001::/32", "192.88.99.0/24"),  # 6to4, Teredo, 6to4 relays
        ),
    ),
    (
        Rule.ADDRESS_RESERVED,
        _networks(
            *("192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4"),
            *("100::/64", "2001::/23", "5f00::/16"),
        ),
    ),
)
_IPV6_IN_USE = IPv6Network("2000::/3")
_EMBEDDED_IPV4 = tuple(IPv6Network(n) for n in ("::ffff:0:0/96", "64:ff9b::/96"))


def broken_rule(address: Address) -> Rule | None:
    """The rule that forbids ``address``, or None if it is public."""
    for rule, networks in _SPECIAL:
        if _within(address, networks):
            return rule
    if isinstance(address, IPv6Address) and address not in _IPV6_IN_USE:
        return Rule.ADDRESS_RESERVED
    return None if address.is_global else Rule.ADDRESS_RESERVED


def check_address(text: str, allowed: Iterable[Network] | None) -> Address:
    """Parse ``text`` and check it.

    Args:
        text: An address as a resolver or a URL gives it.
        allowed: Networks that it must be in; None means that it must be public instead.

    Raises:
        HttpRefused: It is no address, or may not be called. Metadata addresses never may.
    """
    try:
        address = ip_address(text)
    except ValueError:
        raise HttpRefused(Rule.ADDRESS_MALFORMED) from None
    rule = broken_rule(address)
    if allowed is None:
        if rule is not None:
            raise HttpRefused(rule)
    elif rule is Rule.ADDRESS_METADATA or _is_metadata_in_disguise(address):
        raise HttpRefused(Rule.ADDRESS_METADATA)
    elif not _within(address, allowed):
        raise HttpRefused(rule or Rule.ADDRESS_NOT_ALLOWED)
    return address


def _is_metadata_in_disguise(address: Address) -> bool:
    """Whether an IPv4 metadata address hides in an IPv6 one that an operator's network covers."""
    if not any(_within(address, (network,)) for network in _EMBEDDED_IPV4):
        return False
    return _within(IPv4Address(int(address) & 0xFFFFFFFF), _METADATA)


def _within(address: Address, networks: Iterable[Network]) -> bool:
    return any(address.version == n.version and address in n for n in networks)
