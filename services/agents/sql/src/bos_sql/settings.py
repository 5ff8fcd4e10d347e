"""Settings of the SQL agent; databases and credentials are settings of mcp_db."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from bos_agentkit import AgentServiceSettings
from bos_sqlguard import Dialect


class SqlSettings(AgentServiceSettings):
    """``BOS_SQL_…``."""

    model_config = SettingsConfigDict(env_prefix="BOS_SQL_")

    mcp_url: str = Field(
        pattern=r"^https?://",
        description="Where mcp_db answers, such as http://127.0.0.1:8080/mcp",
    )
    database: str = Field(
        default="", description="Name of the database at mcp_db; empty for its default one"
    )
    dialect: Dialect | None = Field(
        default=None,
        description="Dialect that the database must have: duckdb, mysql (MariaDB as well),"
        " postgres, sqlite or tsql; unset accepts what mcp_db reports",
    )
    max_attempts: int = Field(
        default=4, ge=1, le=10, description="Attempts at one question, the first included"
    )
    max_clarification_turns: int = Field(
        default=5, ge=0, le=20, description="Turns after which nothing more is asked"
    )
    max_rows: int = Field(default=200, ge=1, le=10_000, description="Rows of a result")
    max_columns: int = Field(default=50, ge=1, le=500, description="Columns of a result")
    query_timeout_s: float = Field(
        default=30.0, gt=0, le=600, description="Time for one query, in seconds"
    )
    preview_rows: int = Field(
        default=20, ge=1, le=200, description="Rows that the model sees when it words the answer"
    )
    review: Literal["auto", "always", "never"] = Field(
        default="auto",
        description="Whether the model reviews a query while it runs: auto only where a mistake is"
        " likely (three tables, outer joins, windows, assumptions and the like)",
    )
    variants: Literal["transpiled", "model", "none"] = Field(
        default="transpiled",
        description="How the query is given in the other dialects, which do not run: transpiled, as"
        " far as that is known to be right; model: the rest written by the model; none",
    )
    variant_dialects: Annotated[tuple[Dialect, ...], NoDecode] = Field(
        default=("postgres", "sqlite", "tsql"),
        description="The dialects of these variants, separated by commas: duckdb, mysql,"
        " postgres, sqlite, tsql",
    )
    aggregate_first: bool = Field(
        default=True,
        description="Whether single rows that reach the row limit are asked for as totals instead,"
        " once, and the answer says that rows were cut where that does not help",
    )
    check_empty: bool = Field(
        default=True,
        description="Whether an empty result is explained: which filter removed all rows",
    )
    check_joins: bool = Field(
        default=True,
        description="Whether joins that may repeat rows are checked by comparing counts; such a"
        " query is written anew once",
    )
    check_totals: bool = Field(
        default=True,
        description="Whether the rows of a breakdown are reconciled with their total by a second"
        " query",
    )
    check_queries: int = Field(
        default=4, ge=0, le=20, description="Queries that the checks of one step may take"
    )
    check_timeout_s: float = Field(
        default=5.0,
        gt=0,
        le=600,
        description="Time for all checks of one step, in seconds; never more than a part of the"
        " step's own",
    )
    small_schema_tables: int = Field(
        default=8,
        ge=0,
        le=100,
        description="Up to this many tables, all are described; of more, those that seem to matter",
    )
    suggested_tables: int = Field(
        default=6,
        ge=1,
        le=50,
        description="Of more tables, as many are described at first: those that the metadata index"
        " finds relevant",
    )
    max_listed_tables: int = Field(
        default=60,
        ge=1,
        le=1_000,
        description="Tables listed with their meaning where the model has to choose among them, the"
        " most relevant first if there are more; the others are named only",
    )
    metadata_path: Path | None = Field(
        default=None,
        description="YAML file with descriptions, synonyms, metrics and joins of the database;"
        " unset: its own catalogue alone",
    )
    metadata_ttl_s: float = Field(
        default=300.0,
        ge=0,
        le=86_400,
        description="How old sample values and row estimates may be, in seconds; a changed schema"
        " is noticed at once",
    )
    max_described_tables: int = Field(
        default=16, ge=1, le=100, description="Tables that are described for one question"
    )
    max_schema_chars: int = Field(
        default=24_000, ge=1_000, description="Longest description of tables in a prompt"
    )
    verified_queries: int = Field(
        default=3,
        ge=0,
        le=10,
        description="Verified queries for similar questions that the model is shown as examples; 0:"
        " none",
    )
    max_verified_chars: int = Field(
        default=4_000, ge=0, le=20_000, description="Size of these examples together"
    )
    max_reply_bytes: int = Field(
        default=16 * 1024 * 1024, ge=1024 * 1024, description="Largest reply of mcp_db"
    )

    @field_validator("variant_dialects", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value
