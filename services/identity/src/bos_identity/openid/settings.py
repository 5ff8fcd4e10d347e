"""Settings of signing in by an OpenID provider."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from bos_chassis.settings import Settings, is_loopback

_LOOPBACK_HOSTS = ("127.0.0.1", "[::1]")
_PORT = re.compile(r"[1-9][0-9]{0,4}\Z")


class OpenIdSettings(Settings):
    """Signing in by an OpenID provider; off unless an issuer is named. Times are in seconds."""

    model_config = SettingsConfigDict(env_prefix="BOS_IDENTITY_OPENID_")

    issuer: str | None = Field(
        default=None,
        min_length=1,
        description="URL of the OpenID provider that people can sign in by; unset: by none. It "
        "must publish its configuration below `/.well-known/openid-configuration`",
    )
    name: str = Field(
        default="OpenID", min_length=1, max_length=64, description="Display name of the provider"
    )
    client_id: str = Field(default="", max_length=256, description="Client ID at the provider")
    client_secret: SecretStr | None = Field(
        default=None,
        min_length=1,
        description="Client secret at the provider; unset for a public client",
    )
    client_secret_file: Path | None = Field(
        default=None,
        description="File with that secret, instead of the variable; it may be "
        "replaced while identity runs",
    )
    scopes: tuple[str, ...] = Field(
        default=("openid", "profile", "email"), description="Scopes requested from the provider"
    )
    redirect_uris: tuple[str, ...] = Field(
        default=("http://127.0.0.1/callback", "http://127.0.0.1/sign-in/openid"),
        description="Where browsers may come back to, each exactly as clients name it; one on "
        "`http://127.0.0.1` or `http://[::1]` without port means every port, as the command line "
        "needs it. That of the web console ends with `/sign-in/openid`",
    )
    device_flow: bool = Field(
        default=True,
        description="Let people sign in on another device, where the provider can do that. False "
        "prevents attackers from luring users into typing a code of theirs (device code phishing)",
    )
    registration: bool = Field(
        default=True,
        description="Make an account at a user's first sign-in by the provider; "
        "False: only users who have an account by the provider already can sign in",
    )
    roles_claim: str = Field(
        default="",
        description="Claim that names a person's roles, such as `roles` or `realm_access.roles`; "
        "they are set at every sign-in, to none if it is missing. Empty: roles are set here",
    )
    groups_claim: str = Field(
        default="",
        description="Claim that names a person's groups, set at every sign-in, to none if it is "
        "missing. Empty: groups are set here",
    )
    origins: tuple[str, ...] = Field(
        default=(),
        description="Origins beside the issuer's own on which the provider has endpoints that "
        "identity calls, such as `https://oauth2.example.com`",
    )
    networks: tuple[IPv4Network | IPv6Network, ...] = Field(
        default=(),
        description="Networks that the provider's addresses must be in, if it is inside yours, "
        "such as `10.1.0.0/16`",
    )
    ca_file: Path | None = Field(
        default=None,
        description="Certificate authorities (PEM) of the provider, instead of the system's",
    )
    flow_s: float = Field(
        default=600.0, ge=30, le=3600, description="Time to complete a sign-in at the provider"
    )
    fresh_s: float = Field(
        default=300.0,
        ge=30,
        le=3600,
        description="How long a new sign-in by the provider replaces the password of a user "
        "who has none, where it is required: to delete the own account",
    )
    max_flows: int = Field(default=10000, ge=1, description="Maximum sign-ins in progress")
    max_flows_address: int = Field(
        default=50, ge=1, description="Maximum sign-ins in progress from one address"
    )

    @field_validator("redirect_uris")
    @classmethod
    def _redirect_uris_are_plain(cls, uris: tuple[str, ...]) -> tuple[str, ...]:
        for uri in uris:
            parts = urlsplit(uri)
            local = parts.scheme == "http" and is_loopback(parts.hostname or "")
            if not parts.netloc or parts.fragment or not (parts.scheme == "https" or local):
                raise ValueError(
                    f"{uri} must be an https URL without fragment, or http on this machine"
                )
        return uris

    @field_validator("scopes")
    @classmethod
    def _scopes_have_openid(cls, scopes: tuple[str, ...]) -> tuple[str, ...]:
        if "openid" not in scopes:
            raise ValueError("must contain `openid`")
        return scopes

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.issuer is None:
            return self
        for url in (self.issuer, *self.origins):
            parts = urlsplit(url)
            inside = bool(self.networks) or is_loopback(parts.hostname or "")
            if not parts.netloc or not (
                parts.scheme == "https" or (parts.scheme == "http" and inside)
            ):
                raise ValueError(
                    "BOS_IDENTITY_OPENID_ISSUER and BOS_IDENTITY_OPENID_ORIGINS must be https "
                    "URLs; http is for this machine, and for BOS_IDENTITY_OPENID_NETWORKS"
                )
        if not self.client_id:
            raise ValueError("BOS_IDENTITY_OPENID_CLIENT_ID must be set beside the issuer")
        if self.client_secret is not None and self.client_secret_file is not None:
            raise ValueError(
                "BOS_IDENTITY_OPENID_CLIENT_SECRET and BOS_IDENTITY_OPENID_CLIENT_SECRET_FILE "
                "exclude each other"
            )
        return self


def is_listed(redirect_uri: str, listed: tuple[str, ...]) -> bool:
    """Whether browsers may come back to ``redirect_uri``: as it is listed, letter by letter.

    On this machine's own addresses any port will do where the list has none (RFC 8252).
    """
    if redirect_uri in listed:
        return True
    for host in _LOOPBACK_HOSTS:
        start = f"http://{host}:"
        if redirect_uri.startswith(start):
            port, slash, path = redirect_uri.removeprefix(start).partition("/")
            any_port = f"http://{host}/{path}" if slash else f"http://{host}"
            return any_port in listed and bool(_PORT.match(port)) and int(port) < 65536
    return False
