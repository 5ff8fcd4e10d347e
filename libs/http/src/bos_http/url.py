"""URLs, read strictly: what two parsers could understand differently is refused, not interpreted.

No part is decoded, and nothing is repaired but letter case, one trailing dot of the host, the
default port, and characters of path and query that must be percent-encoded.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from urllib.parse import quote, urljoin

import idna

from bos_http.errors import HttpRefused, Rule

DEFAULT_PORTS = {"http": 80, "https": 443}

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_PARTS = re.compile(r"//(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?P<query>\?[^#]*)?(?:#.*)?\Z")
_UNSAFE_ASCII = re.compile(r"[\x00-\x20\x7f\\]")
# Spaces, line ends, control, invisible and private characters, and halves of surrogate pairs.
_UNSAFE_CATEGORIES = frozenset({"Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs", "Cn"})
_BROKEN_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PORT = re.compile(r"[1-9][0-9]{0,4}\Z")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z")
_NUMBER = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)\Z")
_IPV6_TEXT = re.compile(r"[0-9A-Fa-f:.]+\Z")
_SAFE_IN_PATH = "/%:@!$&'()*+,;=~-._"
_SAFE_IN_QUERY = _SAFE_IN_PATH + "?"
_MAX_HOST_CHARS = 253
_MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that means the same to everybody."""

    scheme: str
    """``http`` or ``https``."""
    host: str
    """Lower-case ASCII name without trailing dot, dotted IPv4, or IPv6 without brackets."""
    port: int
    path: str
    """Percent-encoded; starts with a slash."""
    query: str
    """Percent-encoded, with its question mark; empty if there is none."""

    @property
    def origin(self) -> tuple[str, str, int]:
        """What must be equal for credentials to travel on."""
        return (self.scheme, self.host, self.port)

    @property
    def url(self) -> str:
        """The whole URL, as sent."""
        return self.url_without_query + self.query

    @property
    def url_without_query(self) -> str:
        """What traces may hold."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"

    @property
    def is_address(self) -> bool:
        """Whether the host is an IP address rather than a name."""
        return ":" in self.host or self.host.rpartition(".")[2].isdigit()


def parse(url: str, *, max_chars: int) -> Target:
    """Read an absolute URL; its fragment is dropped.

    Raises:
        HttpRefused: The URL is not plain.
    """
    if len(url) > max_chars:
        raise HttpRefused(Rule.URL_TOO_LONG)
    _check_characters(url)
    scheme = _SCHEME.match(url)
    if scheme is None:
        raise HttpRefused(Rule.URL_MALFORMED)
    name = scheme[1].lower()
    if name not in DEFAULT_PORTS:
        raise HttpRefused(Rule.SCHEME)
    parts = _PARTS.match(url, scheme.end())
    if parts is None:
        raise HttpRefused(Rule.URL_MALFORMED)
    host, port = _host_and_port(parts["authority"], DEFAULT_PORTS[name])
    path, query = parts["path"] or "/", parts["query"] or ""
    if _BROKEN_PERCENT.search(path) or _BROKEN_PERCENT.search(query):
        raise HttpRefused(Rule.URL_MALFORMED)
    return Target(
        name, host, port, quote(path, safe=_SAFE_IN_PATH), quote(query, safe=_SAFE_IN_QUERY)
    )


def follow(base: Target, location: str, *, max_chars: int) -> Target:
    """Read a ``Location`` header, absolute or relative to ``base``.

    Raises:
        HttpRefused: As :func:`parse`.
    """
    if len(location) > max_chars:
        raise HttpRefused(Rule.URL_TOO_LONG)
    # Before joining, which would strip some of them silently.
    _check_characters(location)
    try:
        joined = urljoin(base.url, location)
    except ValueError:
        raise HttpRefused(Rule.URL_MALFORMED) from None
    return parse(joined, max_chars=max_chars)


def canonical_host(host: str) -> str:
    """The one spelling of a host, which for IPv6 comes in brackets.

    Raises:
        HttpRefused: It is neither a name nor an address, or a number in another notation.
    """
    if host.startswith("["):
        return _ipv6(host)
    name = host.lower()
    if len(name) > _MAX_HOST_CHARS + 1:
        raise HttpRefused(Rule.HOST_MALFORMED)
    if not name.isascii() or "xn--" in name:
        name = _to_ascii(name)
    labels = name.removesuffix(".").split(".")
    if not all(_LABEL.match(label) for label in labels):
        raise HttpRefused(Rule.HOST_MALFORMED)
    if _NUMBER.match(labels[-1]):
        # Resolvers read "127.1", "0x7f.1" and "2130706433" as addresses; so would this be.
        return _dotted_ipv4(name)
    name = ".".join(labels)
    if len(name) > _MAX_HOST_CHARS:
        raise HttpRefused(Rule.HOST_MALFORMED)
    return name


def _check_characters(url: str) -> None:
    if _UNSAFE_ASCII.search(url):
        raise HttpRefused(Rule.URL_CHARACTERS)
    if not url.isascii() and any(unicodedata.category(c) in _UNSAFE_CATEGORIES for c in url):
        raise HttpRefused(Rule.URL_CHARACTERS)


def _host_and_port(authority: str, default_port: int) -> tuple[str, int]:
    if "@" in authority:
        raise HttpRefused(Rule.USERINFO)
    end = authority.find("]") + 1 if authority.startswith("[") else authority.find(":")
    host, rest = (authority, "") if end == -1 else (authority[:end], authority[end:])
    canonical = canonical_host(host)
    if not rest:
        return canonical, default_port
    port = rest.removeprefix(":")
    if port == rest:
        raise HttpRefused(Rule.HOST_MALFORMED)
    if not _PORT.match(port) or int(port) > _MAX_PORT:
        raise HttpRefused(Rule.PORT)
    return canonical, int(port)


def _to_ascii(name: str) -> str:
    """IDNA 2008 without its compatibility mappings, which turn ``ⓛocalhost`` into a known name."""
    try:
        return idna.encode(name, strict=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise HttpRefused(Rule.HOST_MALFORMED) from None


def _dotted_ipv4(name: str) -> str:
    try:
        return str(IPv4Address(name))
    except AddressValueError:
        raise HttpRefused(Rule.HOST_AMBIGUOUS) from None


def _ipv6(host: str) -> str:
    text = host[1:-1]
    # Zone ids and future address formats are not among these characters.
    if not host.endswith("]") or not _IPV6_TEXT.match(text):
        raise HttpRefused(Rule.HOST_MALFORMED)
    try:
        return str(IPv6Address(text))
    except AddressValueError:
        raise HttpRefused(Rule.HOST_MALFORMED) from None
