"""Settings of the protocols service."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from bos_chassis.settings import ServerSettings
from bos_webserver import WebServerSettings


class ProtocolsSettings(WebServerSettings):
    """Settings ``BOS_PROTOCOLS_…``."""

    model_config = SettingsConfigDict(env_prefix="BOS_PROTOCOLS_")

    server: ServerSettings = Field(default_factory=ServerSettings.load)
    gateway_target: str = Field(
        default="127.0.0.1:8080", description="Address of the gateway: host:port, or a gRPC target"
    )
    documents_target: str = Field(
        default="",
        description="Address of documents, for searching in them by MCP; empty: there are none",
    )
    authorization_servers: tuple[str, ...] = Field(
        default=(),
        description="Issuers of OAuth whose access tokens the gateway accepts, as JSON list;"
        " clients of MCP sign in there. Empty: they send a token or key that they are given",
    )
    mcp_tool_approvals: bool = Field(
        default=False,
        description="Let a call of an MCP tool approve an action without the person's own reply;"
        " any text that the client's model has read may then have actions done",
    )
    public_url: str = Field(
        default="",
        pattern=r"^(https?://[^/\s]+)?$",
        description="Where clients reach Bos, such as https://bos.example.org, for addresses in"
        " replies; empty: where REST was called",
    )
    run_timeout_s: float = Field(
        default=3600.0,
        gt=0,
        le=86_400,
        description="Time to follow a run, which goes on by itself after that",
    )
    heartbeat_s: float = Field(
        default=15.0, gt=0, le=600, description="Time between comments on a silent stream"
    )
    # All connections are those of the REST gateways in front.
    max_connections: int = Field(
        default=4096, ge=1, le=65_536, description="HTTP connections; the idlest makes room"
    )
    max_connections_per_peer: int = Field(
        default=4096, ge=1, le=65_536, description="HTTP connections of one address"
    )
    a2a_server: ServerSettings | None = Field(
        default=None,
        description="Where A2A is offered over gRPC, such as BOS_PROTOCOLS_A2A_SERVER__PORT;"
        " without it over HTTP alone. With certificates,"
        " BOS_PROTOCOLS_A2A_SERVER__TLS__CLIENT_CERTIFICATES false lets in callers"
        " who have none of their own",
    )
    a2a_grpc_address: str = Field(
        default="",
        max_length=255,
        description="Where clients reach that, as host:port, for the agent card; empty: where it"
        " listens",
    )
