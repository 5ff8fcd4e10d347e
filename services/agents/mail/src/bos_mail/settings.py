from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Final

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from bos_agentkit import AgentServiceSettings
from bos_http import HttpPolicy

_LOOPBACK_HOST: Final = "127.0.0.1"
_LOOPBACK: Final = IPv4Network("127.0.0.1/32")


class MailSettings(AgentServiceSettings):
    """Settings of the mail agent. Durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="BOS_MAIL_")

    internal_hosts: Mapping[str, tuple[IPv4Network | IPv6Network, ...]] = Field(
        default_factory=dict,
        description="Mail servers inside the network, each with the networks that its addresses "
        'must be in, as JSON such as {"mail.corp": ["10.1.0.0/16"]}; all others must have public '
        "addresses",
    )
    ports: tuple[int, ...] = Field(
        default=(143, 465, 587, 993), description="Ports of mail servers with public addresses"
    )
    sample_servers: tuple[str, ...] = Field(
        default=(),
        description="Mail servers of the demo on loopback as host:port, called without TLS; set by "
        "standalone",
    )
    ca_file: Path | None = Field(
        default=None, description="Certificate authorities (PEM) instead of the system's"
    )
    command_timeout_s: float = Field(
        default=10.0, gt=0, description="Timeout of a mail server's reply"
    )
    operation_timeout_s: float = Field(
        default=25.0, gt=0, description="Timeout of one search, read, draft or sending"
    )
    max_connections: int = Field(
        default=8, ge=1, le=256, description="Concurrent connections to IMAP servers"
    )
    max_results: int = Field(
        default=20, ge=1, le=100, description="Maximum messages that a search lists"
    )
    max_message_bytes: int = Field(
        default=2 * 1024 * 1024, ge=1024, description="Maximum bytes read of one message"
    )
    max_body_chars: int = Field(
        default=20_000,
        ge=200,
        description="Maximum characters of a message's text, read or written",
    )
    max_recipients: int = Field(
        default=20, ge=1, le=1000, description="Maximum recipients of one message, copies included"
    )
    recipient_domains: tuple[str, ...] = Field(
        default=(),
        description="Domains that mail may be sent to, in lower case; empty: any",
    )
    summary_timeout_s: float = Field(
        default=15.0,
        gt=0,
        description="Timeout of the model's summary; after it the result is stated plainly",
    )
    gmail_api_url: str = Field(
        default="https://gmail.googleapis.com", description="Origin of the Gmail API"
    )
    gmail_token_url: str = Field(
        default="https://oauth2.googleapis.com/token",
        description="URL that exchanges refresh tokens of Google",
    )
    http: HttpPolicy = Field(default_factory=HttpPolicy.load)

    @field_validator("recipient_domains")
    @classmethod
    def _domains_in_lower_case(cls, domains: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(domain.strip().lower().removeprefix("@") for domain in domains)

    @field_validator("sample_servers")
    @classmethod
    def _sample_servers_on_loopback(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        for server in servers:
            host, _, port = server.rpartition(":")
            if host != _LOOPBACK_HOST or not (port.isascii() and port.isdigit()):
                raise ValueError(f"must be {_LOOPBACK_HOST}:PORT each")
        return servers

    def networks_of(self, host: str, port: int) -> tuple[IPv4Network | IPv6Network, ...] | None:
        """Networks that the addresses of a server must be in; None: any public one."""
        if f"{host}:{port}" in self.sample_servers:
            return (_LOOPBACK,)
        return self.internal_hosts.get(host)

    @field_validator("internal_hosts")
    @classmethod
    def _hosts_in_lower_case(
        cls, hosts: Mapping[str, tuple[IPv4Network | IPv6Network, ...]]
    ) -> Mapping[str, tuple[IPv4Network | IPv6Network, ...]]:
        return {host.lower(): networks for host, networks in hosts.items()}
