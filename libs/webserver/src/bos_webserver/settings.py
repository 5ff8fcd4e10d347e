"""Settings that services with an HTTP server share."""

from __future__ import annotations

from pydantic import Field

from bos_chassis.settings import Settings
from bos_webserver.connections import ConnectionLimits


class WebServerSettings(Settings):
    """Time limits and numbers of HTTP connections."""

    header_timeout_s: float = Field(
        default=10.0, gt=0, le=600, description="Time for the headers of a request to arrive"
    )
    body_timeout_s: float = Field(
        default=20.0, gt=0, le=600, description="Time for the body of a request to arrive"
    )
    keep_alive_s: float = Field(
        default=30.0, gt=0, le=600, description="A connection without requests is closed after this"
    )
    max_connections: int = Field(
        default=512, ge=1, le=65_536, description="HTTP connections; the idlest makes room"
    )
    max_connections_per_peer: int = Field(
        default=256, ge=1, le=65_536, description="HTTP connections of one address"
    )

    def connection_limits(self, answer_s: float) -> ConnectionLimits:
        """The limits, with ``answer_s`` seconds for an answer to be made and taken."""
        return ConnectionLimits(
            header_s=self.header_timeout_s,
            body_s=self.body_timeout_s,
            answer_s=answer_s,
            keep_alive_s=self.keep_alive_s,
            total=self.max_connections,
            per_peer=self.max_connections_per_peer,
        )
