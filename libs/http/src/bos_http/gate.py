"""The decisions: may this URL be called, may this address be connected to."""

from __future__ import annotations

import errno
import socket
from enum import StrEnum
from ipaddress import ip_address
from typing import TYPE_CHECKING

from bos_http.addresses import broken_rule, check_address
from bos_http.errors import HttpRefused, Rule
from bos_http.policy import ANY_PUBLIC
from bos_http.url import parse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp.connector import AddrInfoType

    from bos_http.addresses import Address, Network
    from bos_http.policy import HttpPolicy
    from bos_http.url import Target

# Hosts that give out credentials of the machine they are called from. By name, because a few of
# the names are public ones, and because the refusal should say what was tried.
_METADATA_HOSTS = frozenset(
    {
        *("metadata", "metadata.google.internal", "metadata.goog"),
        *("instance-data", "instance-data.ec2.internal"),
        *("metadata.azure.com", "metadata.azure.internal"),
        *("metadata.tencentyun.com", "metadata.packet.net", "metadata.platformequinix.com"),
        *("metadata.oraclecloud.com", "rancher-metadata", "metadata.local"),
    }
)
# Names that no public resolver answers: an answer could only come from inside.
_INTERNAL_SUFFIXES = (
    *("localhost", "local", "localdomain", "internal", "intranet", "private", "corp", "home"),
    *("lan", "home.arpa", "in-addr.arpa", "ip6.arpa", "test", "invalid", "onion", "alt", "svc"),
    *("cluster.local", "consul"),
)


class HostClass(StrEnum):
    """Why a host may be called."""

    INTERNAL = "internal"
    NAMED = "named"
    ANY = "any"


class HostPatterns:
    """A list of names, ``*.domain`` and ``*``."""

    def __init__(self, patterns: Iterable[str]) -> None:
        patterns = tuple(patterns)
        self.any = ANY_PUBLIC in patterns
        self._exact = frozenset(p for p in patterns if not p.startswith("*"))
        self._below = tuple(p.removeprefix("*") for p in patterns if p.startswith("*."))

    def names(self, host: str) -> bool:
        """Whether a pattern other than ``*`` matches."""
        return host in self._exact or host.endswith(self._below)


class Gate:
    """Compiled HTTP policy: decides about addresses, without any network access."""

    def __init__(self, policy: HttpPolicy) -> None:
        self._policy = policy
        self._hosts = HostPatterns(policy.hosts)
        self._traced = HostPatterns(policy.trace_hosts)
        self._internal: dict[tuple[str, str, int], tuple[Network, ...]] = {
            parse(origin, max_chars=len(origin)).origin: networks
            for origin, networks in policy.internal_origins.items()
        }
        # Two schemes on one host and port cannot both work; their networks are one list.
        self._networks: dict[tuple[str, int], tuple[Network, ...]] = {}
        for (_, host, port), networks in self._internal.items():
            self._networks[host, port] = (*self._networks.get((host, port), ()), *networks)

    def admit(self, target: Target) -> HostClass:
        """Check all of a URL that can be checked before its name is resolved.

        Raises:
            HttpRefused: Scheme, host or port are not allowed, or the host is a forbidden address.
        """
        if target.host in _METADATA_HOSTS:
            raise HttpRefused(Rule.HOST_METADATA)
        host_class = HostClass.INTERNAL
        if target.origin not in self._internal:
            host_class = self._admit_public(target)
        if target.is_address:
            self.check_address(target.host, target.port, target.host)
        return host_class

    def check_address(self, host: str, port: int, address: str) -> Address:
        """Check one address that ``host`` resolves to.

        Raises:
            HttpRefused: It may not be connected to.
        """
        return check_address(address, self._networks.get((host, port)))

    def traces(self, target: Target, host_class: HostClass) -> bool:
        """Whether the host may learn our trace ids."""
        if host_class is HostClass.INTERNAL:
            return True
        return self._traced.any or self._traced.names(target.host)

    def open_socket(self, info: AddrInfoType) -> socket.socket:
        """Last check of every connection: no socket for an address that is not allowed.

        It holds regardless of what the HTTP library did before. The host is not known here, so
        internal networks are allowed for all; :meth:`check_address` was stricter already.

        Raises:
            OSError: The address is not allowed.
        """
        family, kind, protocol, _, address = info
        ip = ip_address(str(address[0]))
        internal = (n for networks in self._internal.values() for n in networks)
        if broken_rule(ip) is not None and not any(
            ip.version == network.version and ip in network for network in internal
        ):
            raise OSError(errno.EACCES, "address not allowed")
        return socket.socket(family, kind, protocol)

    def _admit_public(self, target: Target) -> HostClass:
        policy, host = self._policy, target.host
        if target.scheme == "http" and not policy.allow_http:
            raise HttpRefused(Rule.SCHEME)
        if not target.is_address and _is_internal_name(host):
            raise HttpRefused(Rule.HOST_INTERNAL)
        named = self._hosts.names(host)
        if not named and not self._hosts.any:
            raise HttpRefused(Rule.HOST_NOT_ALLOWED)
        if target.port not in policy.ports:
            raise HttpRefused(Rule.PORT)
        return HostClass.NAMED if named else HostClass.ANY


def _is_internal_name(host: str) -> bool:
    return "." not in host or host.endswith(tuple(f".{suffix}" for suffix in _INTERNAL_SUFFIXES))
