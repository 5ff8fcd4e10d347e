"""Endpoint of a server of others: address, credentials, and a policy that reaches nothing else."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from bos_errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_http.policy import HttpPolicy

_MAX_TOKEN_BYTES = 64 * 1024


class Endpoint(BaseModel):
    """Address of a server with its credentials, which are sent to the origin of ``url`` alone."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str = Field(description="Address, such as https://x.com/path")
    token: SecretStr | None = Field(default=None, description="Bearer token for the endpoint")
    token_file: Path | None = Field(
        default=None, description="File with the bearer token; read at each connection"
    )
    headers: dict[str, SecretStr] = Field(
        default={}, max_length=32, description="Headers of every request, such as X-Api-Key"
    )
    networks: tuple[IPv4Network | IPv6Network, ...] = Field(
        default=(),
        description="Networks that the endpoint's addresses must be in, if it is not a public one",
    )

    @field_validator("url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        if url and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
            raise ValueError("write the endpoint as https://host/path")
        return url

    @model_validator(mode="after")
    def _one_token(self) -> Self:
        if self.token and self.token_file:
            raise ValueError("give either token or token_file")
        return self

    @property
    def where(self) -> str:
        """Name of the endpoint for people, without path or credentials."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"

    def is_origin_of(self, url: str) -> bool:
        """Whether an address is of the endpoint's origin, which alone gets its credentials."""
        try:
            return _origin(url) == _origin(self.url)
        except ValueError:
            return False

    def credentials(self, variable: str) -> dict[str, str]:
        """Headers of every request.

        Args:
            variable: That the endpoint is configured by, for the error.

        Raises:
            ConfigurationError: the token file cannot be read.
        """
        headers = {name: value.get_secret_value() for name, value in self.headers.items()}
        token = self.token.get_secret_value() if self.token else ""
        if self.token_file is not None:
            try:
                with self.token_file.open("rb") as file:
                    token = file.read(_MAX_TOKEN_BYTES).decode().strip()
            except (OSError, ValueError):
                raise ConfigurationError(
                    f"The token for {self.where} cannot be read; correct token_file in {variable}."
                ) from None
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def reached_by(
        self, policy: HttpPolicy, *, methods: Sequence[str], silence_s: float, max_bytes: int
    ) -> HttpPolicy:
        """Policy that reaches the endpoint's origin and nothing else.

        Args:
            policy: The operator's, from which limits and certificate authorities are taken; hosts
                and networks are those of the endpoint alone.
            methods: HTTP methods allowed.
            silence_s: Longest silence of the server.
            max_bytes: Largest body of a request, and of a response.
        """
        parts = urlsplit(self.url)
        origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        inside = {origin: tuple(map(ip_network, self.networks))} if self.networks else {}
        return policy.model_copy(
            update={
                "hosts": () if inside else (str(parts.hostname),),
                "ports": (_origin(self.url)[2],),
                "internal_origins": inside,
                "methods": tuple(methods),
                "content_types": (),
                "read_timeout_s": silence_s,
                "max_response_bytes": max_bytes,
                "max_request_bytes": max_bytes,
            }
        )


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, (parts.hostname or "").lower(), port
