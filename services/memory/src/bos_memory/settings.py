"""Settings of the memory service."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from bos_chassis.settings import AuthSettings, ServerSettings, Settings, TelemetrySettings
from bos_postgres.audit import AuditSettings


class MemorySettings(Settings):
    """Settings ``BOS_MEMORY_…``; the model is set by ``MEMORY_MODEL`` and related variables."""

    model_config = SettingsConfigDict(env_prefix="BOS_MEMORY_")

    server: ServerSettings = Field(default_factory=ServerSettings.load)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings.load)
    auth: AuthSettings = Field(default_factory=AuthSettings.load)
    audit: AuditSettings = Field(default_factory=AuditSettings.load)

    store_url: str = Field(
        min_length=1,
        description="PostgreSQL URL of conversations and long-term memory, whose option "
        "password_file names a file in the place of a password",
    )
    extraction_timeout_s: float = Field(
        default=20.0,
        gt=0,
        description="Timeout of the model for extracting personal facts from a question",
    )
    max_extractions: int = Field(
        default=16, ge=1, description="Maximum concurrent extractions; more are skipped"
    )
    max_reply_tokens: int = Field(
        default=512,
        ge=64,
        description="Longest reply of the model; those that are known to think get room for that "
        "beside it (BOS_MODEL_REASONING_TOKENS)",
    )
    summary_timeout_s: float = Field(
        default=30.0,
        gt=0,
        description="Timeout of the model for a summary; then questions and answers are shortened "
        "instead",
    )
    max_summaries: int = Field(
        default=64, ge=1, description="Maximum summaries waiting or running; more are postponed"
    )
