"""Settings of the demo."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from bos_chassis.settings import Settings, TelemetrySettings
from bos_demo.company import DEFAULT_TODAY
from bos_demo.generators.generate import SEED


class DemoSettings(Settings):
    """Settings ``BOS_DEMO_…``: databases, today and scripted model of the sample company."""

    model_config = SettingsConfigDict(env_prefix="BOS_DEMO_")

    database_url: SecretStr = Field(
        description="PostgreSQL database that receives the sample company"
    )
    database_schema: str = Field(
        default="company",
        pattern=r"^[a-z_][a-z0-9_]{0,62}$",
        description="Schema that holds the sample company and nothing else",
    )
    sqlite_path: Path | None = Field(
        default=None, description="SQLite file that receives the same rows; unset for none"
    )
    today: date = Field(
        default=DEFAULT_TODAY, description="The company's fixed today, such as 2026-06-15"
    )
    seed: int = Field(default=SEED, ge=0, le=2**31 - 1, description="Seed of the sample rows")
    model_host: str = Field(
        default="127.0.0.1", min_length=1, description="Address of the scripted model"
    )
    model_port: int = Field(
        default=0, ge=0, le=65535, description="Port of the scripted model; 0 takes a free one"
    )
    model_key: SecretStr | None = Field(
        default=None,
        min_length=16,
        description="Key that callers of the scripted model present, which it demands beyond "
        "loopback; unset: none",
    )
    api_port: int = Field(
        default=0, ge=0, le=65535, description="Port of the company's REST API; 0 takes a free one"
    )
    mailbox: bool = Field(
        default=False, description="Run the sample mailbox's IMAP and SMTP servers on loopback"
    )
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings.load)
