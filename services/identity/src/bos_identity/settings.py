"""Settings of the identity service."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from bos_chassis.settings import AuthSettings, ServerSettings, Settings, TelemetrySettings
from bos_identity.openid.settings import OpenIdSettings
from bos_postgres.audit import AuditSettings

_DAY_S = 86400.0


class IdentitySettings(Settings):
    """Accounts, sessions and tokens. Times are in seconds."""

    model_config = SettingsConfigDict(env_prefix="BOS_IDENTITY_")

    server: ServerSettings = Field(default_factory=ServerSettings.load)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings.load)
    auth: AuthSettings = Field(default_factory=AuthSettings.load)
    openid: OpenIdSettings = Field(default_factory=OpenIdSettings.load)
    audit: AuditSettings = Field(default_factory=AuditSettings.load)

    store_url: str = Field(
        min_length=1,
        description="PostgreSQL URL of accounts and sessions, whose option password_file "
        "names a file in the place of a password",
    )
    issuer: str = Field(
        default="bos-identity",
        min_length=1,
        description="Issuer (iss) of tokens; the public URL of the REST gateway, if others "
        "discover keys by it",
    )
    audience: str = Field(
        default="bos", min_length=1, description="Audience (aud) of access tokens"
    )
    access_token_s: float = Field(
        default=600.0, ge=1, le=86400, description="Lifetime of an access token"
    )
    session_idle_s: float = Field(
        default=14 * _DAY_S, gt=0, description="Idle timeout of a session"
    )
    session_max_s: float = Field(
        default=90 * _DAY_S, gt=0, description="Maximum lifetime of a session"
    )
    refresh_repeat_s: float = Field(
        default=30.0,
        ge=0,
        le=300,
        description="A refresh token is accepted again for this long, as its answer may have been "
        "lost, while the token issued for it is unused; 0: never",
    )
    registration_open: bool | None = Field(
        default=None,
        description="Let any caller make an account; unset: only callers on this machine, if "
        "identity listens on loopback. Otherwise accounts are made by invitation. Set it to false "
        "where a proxy on this machine, such as a tunnel, lets others in: its clients call from "
        "here, unless BOS_REST_TRUSTED_PROXIES names it and it says whose calls it passes on",
    )
    bootstrap_token: SecretStr | None = Field(
        default=None,
        min_length=32,
        description="What the first account, the administrator's, is registered with as its "
        "invitation where registration is not open; good for nothing once that account exists",
    )
    password_reset_s: float = Field(
        default=_DAY_S,
        ge=60,
        le=7 * _DAY_S,
        description="Lifetime of a password reset code",
    )
    account_data_targets: dict[str, str] = Field(
        default_factory=dict,
        description="Services that hold data of accounts, as gRPC targets by name, in the order in "
        'which they are asked to delete it: {"gateway": "gateway:7100", "memory": "memory:7200", '
        '"documents": "documents:7300", "files": "files:7400"}. Accounts are neither deleted nor '
        "exported without; of a service that is not named everything stays",
    )
    max_sessions: int = Field(
        default=20,
        ge=1,
        le=200,
        description="Maximum open sessions of a user; a further login ends the one idle longest",
    )
    min_password_chars: int = Field(
        default=10, ge=1, le=256, description="Minimum length of new passwords"
    )

    key_encryption_keys: SecretStr | None = Field(
        default=None,
        description="Fernet keys separated by commas that encrypt the signing keys in the store "
        "and the secrets of users' connections; the first one encrypts, the others can still "
        "decrypt",
    )
    signing_key_files: tuple[Path, ...] = Field(
        default=(),
        description="Ed25519 private keys (PEM) instead of keys in the store: the first one signs, "
        "the others are published as well",
    )
    signing_key_life_s: float = Field(
        default=30 * _DAY_S, gt=0, description="Lifetime of a signing key in the store"
    )
    signing_key_ahead_s: float = Field(
        default=3600.0, gt=0, description="Time between publishing a new key and signing with it"
    )
    signing_key_refresh_s: float = Field(
        default=30.0, gt=0, description="Polling interval for keys in the store"
    )

    argon2_time_cost: int = Field(default=3, ge=1, description="Argon2 time cost (passes)")
    argon2_memory_kib: int = Field(
        default=65536, ge=8, description="Argon2 memory of one hash, in KiB"
    )
    hash_threads: int = Field(default=2, ge=1, le=64, description="Concurrent password hashes")
    hash_queue: int = Field(
        default=32,
        ge=1,
        description="Maximum hashes running or waiting; more are RESOURCE_EXHAUSTED",
    )

    account_attempts: int = Field(
        default=5,
        ge=1,
        description="Failed logins of an account from one address before that address has to wait "
        "for it",
    )
    account_attempts_anywhere: int = Field(
        default=50,
        ge=1,
        description="Failed logins of an account from all addresses before it has to wait; "
        "addresses of earlier sign-ins do not wait",
    )
    account_throttle_max_s: float = Field(
        default=30.0,
        gt=0,
        description="Longest wait of an account for failed logins from unknown addresses",
    )
    address_attempts: int = Field(
        default=20, ge=1, description="Failed logins from an address before it has to wait"
    )
    throttle_first_s: float = Field(
        default=1.0, gt=0, description="First throttling delay; each further failure doubles it"
    )
    throttle_max_s: float = Field(default=300.0, gt=0, description="Maximum throttling delay")
    throttle_forget_s: float = Field(
        default=3600.0, gt=0, description="Time without failures after which they are forgotten"
    )

    @model_validator(mode="after")
    def _keys_live_longer_than_their_announcement(self) -> Self:
        if self.signing_key_life_s <= self.signing_key_ahead_s:
            raise ValueError(
                "BOS_IDENTITY_SIGNING_KEY_LIFE_S must be greater than "
                "BOS_IDENTITY_SIGNING_KEY_AHEAD_S"
            )
        if self.signing_key_ahead_s <= 2 * self.signing_key_refresh_s:
            raise ValueError(
                "BOS_IDENTITY_SIGNING_KEY_AHEAD_S must be more than twice "
                "BOS_IDENTITY_SIGNING_KEY_REFRESH_S"
            )
        return self
