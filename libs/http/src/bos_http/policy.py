"""What may be called, and how much of anything it may cost."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from types import MappingProxyType

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from bos_chassis.settings import Settings
from bos_http.errors import HttpRefused
from bos_http.url import canonical_host, parse

ANY_PUBLIC = "*"
_WILDCARD = "*."
_TOKEN = re.compile(r"[A-Z]{1,20}\Z")
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/(?:\*|[a-z0-9][a-z0-9!#$&^_.+-]*)\Z")
_MAX_URL_CHARS = 65536


class HttpPolicy(Settings):
    """What outgoing HTTP may reach, and its limits. Nothing is allowed until it is named.

    A service composes it: ``http: HttpPolicy = Field(default_factory=HttpPolicy.load)``.
    """

    model_config = SettingsConfigDict(env_prefix="BOS_HTTP_")

    hosts: tuple[str, ...] = Field(
        default=(),
        description='Public hosts: names, "*.domain" for all below a domain, "*" for any',
    )
    ports: tuple[int, ...] = Field(default=(80, 443), description="Ports of public hosts")
    allow_http: bool = Field(default=False, description="Let public hosts be called without TLS")
    internal_origins: Mapping[str, tuple[IPv4Network | IPv6Network, ...]] = Field(
        default_factory=dict,
        description="Origins inside the network, such as `http://erp.corp:8080`, each with the "
        "networks that its addresses must be in, such as `10.1.0.0/16`",
    )
    trace_hosts: tuple[str, ...] = Field(
        default=(),
        description="Public hosts that are sent W3C trace context, written as the hosts are; "
        "internal origins always are",
    )
    methods: tuple[str, ...] = Field(default=("GET", "HEAD"), description="Methods allowed")
    content_types: tuple[str, ...] = Field(
        default=(), description='Types of response bodies, such as "text/*"; empty for any'
    )
    connect_timeout_s: float = Field(
        default=5.0, gt=0, description="Time for one connection, TLS included"
    )
    read_timeout_s: float = Field(default=15.0, gt=0, description="Longest silence of a host")
    total_timeout_s: float = Field(
        default=30.0, gt=0, description="Time for a call with all its redirects"
    )
    max_redirects: int = Field(default=5, ge=0, le=20, description="Redirects followed in a call")
    max_url_chars: int = Field(
        default=4096, ge=16, le=_MAX_URL_CHARS, description="Longest URL, as given"
    )
    max_request_header_bytes: int = Field(
        default=16 * 1024, ge=0, description="Headers that a caller may add to a request"
    )
    max_request_bytes: int = Field(default=1024 * 1024, ge=0, description="Largest request body")
    max_response_header_bytes: int = Field(
        default=32 * 1024, ge=512, description="All headers of a response; at most 128 of them"
    )
    max_response_bytes: int = Field(
        default=5 * 1024 * 1024,
        ge=0,
        description="Largest response body, packed or not",
    )
    max_compression_ratio: int = Field(
        default=100,
        ge=1,
        description="Growth of a body when unpacked; 64 KiB are always allowed",
    )
    max_connections: int = Field(
        default=50,
        ge=1,
        description="Connections at once; more calls wait within their time. As many again for "
        "requests that may change things",
    )
    keepalive_s: float = Field(
        default=15.0, gt=0, description="How long an idle connection is kept for the next call"
    )
    user_agent: str = Field(
        default="bos", pattern=r"^[!-~]([ -~]*[!-~])?$", description="User-Agent sent"
    )
    ca_file: Path | None = Field(
        default=None, description="Certificate authorities (PEM) instead of the system's"
    )

    @field_validator("hosts", "trace_hosts")
    @classmethod
    def _canonical_patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_canonical_pattern(pattern) for pattern in patterns)

    @field_validator("internal_origins")
    @classmethod
    def _canonical_origins(
        cls, origins: Mapping[str, tuple[IPv4Network | IPv6Network, ...]]
    ) -> Mapping[str, tuple[IPv4Network | IPv6Network, ...]]:
        return MappingProxyType({_canonical_origin(key): nets for key, nets in origins.items()})

    @field_validator("ports")
    @classmethod
    def _ports_exist(cls, ports: tuple[int, ...]) -> tuple[int, ...]:
        if not all(0 < port < 65536 for port in ports):
            raise ValueError("a port is from 1 to 65535")
        return ports

    @field_validator("methods")
    @classmethod
    def _plain_methods(cls, methods: tuple[str, ...]) -> tuple[str, ...]:
        methods = tuple(method.upper() for method in methods)
        if not all(_TOKEN.match(m) and m not in ("CONNECT", "TRACE") for m in methods):
            raise ValueError("methods are words such as GET; CONNECT and TRACE are never allowed")
        return methods

    @field_validator("content_types")
    @classmethod
    def _plain_types(cls, types: tuple[str, ...]) -> tuple[str, ...]:
        types = tuple(text.lower() for text in types)
        if not all(_MEDIA_TYPE.match(text) for text in types):
            raise ValueError('a content type is written as "text/html" or "text/*"')
        return types


def _canonical_pattern(pattern: str) -> str:
    if pattern == ANY_PUBLIC:
        return pattern
    prefix = _WILDCARD if pattern.startswith(_WILDCARD) else ""
    try:
        return prefix + canonical_host(pattern.removeprefix(prefix))
    except HttpRefused:
        raise ValueError(
            f'{pattern!r} is not a host; write "api.example.com", "*.example.com" or "*"'
        ) from None


def _canonical_origin(origin: str) -> str:
    try:
        target = parse(origin, max_chars=_MAX_URL_CHARS)
    except HttpRefused:
        target = None
    if target is None or target.path != "/" or target.query or "#" in origin:
        raise ValueError(f'{origin!r} is not an origin; write it as "http://erp.corp:8080"')
    return target.url.removesuffix("/")
