"""Settings of mcp_db: which databases, what of them may be read, and how much at once."""

from __future__ import annotations

from typing import Annotated

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SecretStr, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from bos_chassis.auth.access import AccessSettings
from bos_chassis.settings import ServerSettings
from bos_errors import ConfigurationError
from bos_webserver import WebServerSettings

DEFAULT_DATABASE = "main"

_PRIVATE_WORDS = (
    "password",
    "passwd",
    "secret",
    "token",
    "api_key",
    "private_key",
    "credential",
    "email",
    "phone",
    "mobile",
    "iban",
    "card_number",
    "ssn",
)

_TABLES_HELP = "the tables that may be read, separated by commas: orders,customers,sales.targets"


class DatabaseSettings(BaseModel):
    """One database."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: SecretStr = Field(
        description="postgresql://user:password@host/database, mysql://user:password@host/database"
        " (MariaDB as well), mssql://user:password@host/database or sqlite:///path/to/file.db,"
        " where the option password_file names a file in the place of a password"
    )
    allowed_tables: tuple[str, ...] = Field(min_length=1, description=_TABLES_HELP)
    default_schema: str = Field(
        default="",
        description="Schema of unqualified table names; public, main or dbo by default, and the"
        " database of the URL for MySQL",
    )
    description: str = Field(default="", description="What the database is about, for the agents")
    sample_values: int = Field(
        default=5, ge=0, le=20, description="Frequent values shown per text column; 0 shows none"
    )


class McpDbSettings(WebServerSettings):
    """``BOS_MCP_DB_…``, and ``BOS_DATABASE_…`` for the one database most people have."""

    model_config = SettingsConfigDict(env_prefix="BOS_MCP_DB_")

    server: ServerSettings = Field(default_factory=ServerSettings.load)
    access: AccessSettings = Field(default_factory=AccessSettings.load)
    database_url: SecretStr | None = Field(
        default=None,
        validation_alias=AliasChoices("BOS_DATABASE_URL"),
        description=f"URL of the database {DEFAULT_DATABASE!r}, whose option password_file names"
        " a file in the place of a password",
    )
    database_allowed_tables: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        validation_alias=AliasChoices("BOS_DATABASE_ALLOWED_TABLES"),
        description=_TABLES_HELP,
    )
    databases: dict[str, DatabaseSettings] = Field(
        default_factory=dict,
        description='Databases by name, as JSON: {"sales": {"url": …, "allowed_tables": […]}}',
    )
    files_target: str = Field(
        default="",
        description="Where the files service listens, such as dns:///files:8080: what users have"
        " uploaded (CSV, Excel, Parquet) is then the database 'files' of each of them; empty: it"
        " is not",
    )
    max_rows: int = Field(default=200, ge=1, le=10_000, description="Rows of a result")
    max_columns: int = Field(default=50, ge=1, le=500, description="Columns of a result")
    max_bytes: int = Field(
        default=1_000_000, ge=1_000, le=50_000_000, description="Bytes of a result's cells"
    )
    timeout_s: float = Field(default=30.0, gt=0, le=600, description="Time for a query")
    max_estimated_cost: float | None = Field(
        default=None,
        ge=0,
        description="Most that the planner of PostgreSQL or SQL Server may expect a query to cost;"
        " unset: 10000000 for PostgreSQL, not checked for SQL Server; 0: not checked",
    )
    max_kept_mib: int = Field(
        default=256,
        ge=0,
        le=1_048_576,
        description="Most MiB that lists and texts of aggregates (string_agg, array_agg, ...) may"
        " hold at once by PostgreSQL's estimate; 0: not checked",
    )
    pool_size: int = Field(
        default=8,
        ge=1,
        le=100,
        description="Queries at once against one database; one user alone has all but one",
    )
    queue_timeout_s: float = Field(
        default=10.0, gt=0, le=600, description="Wait for a free connection to a database"
    )
    work_mem_kib: int = Field(
        default=16_384,
        ge=64,
        le=2_097_151,
        description="KiB that PostgreSQL may hold for one sort or hash before it goes to disk",
    )
    sample_hidden_columns: Annotated[tuple[str, ...], NoDecode] = Field(
        default=_PRIVATE_WORDS,
        description="Columns whose name contains one of these words, separated by commas, show no"
        " sample values; a comma alone hides none",
    )

    @field_validator("database_allowed_tables", "sample_hidden_columns", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    def named_databases(self) -> dict[str, DatabaseSettings]:
        """Return every configured database by name.

        Raises:
            ConfigurationError: no database, one without an allow-list, or a name given twice.
        """
        named = dict(self.databases)
        if self.database_url is not None:
            if DEFAULT_DATABASE in named:
                raise ConfigurationError(
                    f"The database {DEFAULT_DATABASE!r} is configured twice: in BOS_DATABASE_URL"
                    " and in BOS_MCP_DB_DATABASES. Remove one of them."
                )
            if not self.database_allowed_tables:
                raise ConfigurationError(
                    "BOS_DATABASE_URL is set and nothing is readable by default:"
                    f" BOS_DATABASE_ALLOWED_TABLES must list {_TABLES_HELP}."
                )
            main = DatabaseSettings(
                url=self.database_url, allowed_tables=self.database_allowed_tables
            )
            named = {DEFAULT_DATABASE: main, **named}
        if not named:
            raise ConfigurationError(
                "No database is configured. Set BOS_DATABASE_URL and BOS_DATABASE_ALLOWED_TABLES,"
                " or BOS_MCP_DB_DATABASES."
            )
        return named
