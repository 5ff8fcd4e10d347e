"""Settings of a standalone; settings of each service apply as well, except addresses."""

from __future__ import annotations

from pathlib import Path

from pydantic import AliasChoices, Field, SecretStr
from pydantic_settings import SettingsConfigDict

from bos_chassis.settings import Settings


class StandaloneSettings(Settings):
    """``BOS_STANDALONE_…`` and ``BOS_STORE_URL``. Times are in seconds."""

    model_config = SettingsConfigDict(env_prefix="BOS_STANDALONE_")

    data_dir: Path = Field(
        default=Path(".data"), description="Folder of everything that is kept; created"
    )
    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address of what people call: gateway, identity, REST. Any but a loopback one "
        "wants secrets that are configured",
    )
    port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="Port of the gateway; 0 takes that of the last start, or any",
    )
    identity_port: int = Field(
        default=0, ge=0, le=65535, description="Port of identity; 0 takes any"
    )
    rest: bool = Field(default=True, description="Start the REST gateway too, if it is built")
    rest_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Its port; 0 takes any, unset that of the last start, 8000, or any",
    )
    rest_binary: Path | None = Field(
        default=None,
        description="The REST gateway's program; unset takes the one that `make rest` builds",
    )
    store_url: SecretStr | None = Field(
        default=None,
        validation_alias=AliasChoices("BOS_STORE_URL"),
        description="PostgreSQL URL of the run log; unset starts an embedded server",
    )
    demo_documents: bool = Field(
        default=True,
        description="Load the sample company's documents, and a file into the workspace, for the "
        "local user at the first start, if the sample company is the database; a configured model "
        "is asked once about each document",
    )
    demo_mailbox: bool = Field(
        default=True,
        description="Serve a sample mailbox on loopback and connect it for the local user, if the "
        "sample company is the database and the user has connected no mailbox",
    )
    grace_s: float = Field(default=3.0, ge=0, description="Time for calls in flight at shutdown")
