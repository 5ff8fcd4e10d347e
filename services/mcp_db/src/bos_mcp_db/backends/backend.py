"""The port to a database: two questions; one adapter for each kind of database."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from bos_errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bos_sqlguard import Dialect, Kept

MAX_LISTED: Final = 2_000
"""Tables of a database that are listed; more are no schema to propose an allow-list for."""

TableName = tuple[str, str]
"""Schema and table."""

ColumnType = Literal[
    "bool",
    "int64",
    "double",
    "decimal",
    "string",
    "bytes",
    "date",
    "timestamp",
    "structured",
    "unspecified",
]
"""Lower-case names of ``bos.common.v1.ColumnType``."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one query.

    ``max_estimated_cost`` is in the units of the database's planner; None: not asked. A database
    whose planner estimates no cost ignores it. ``max_kept_bytes`` is what aggregates that keep
    values may hold at once by the estimate of PostgreSQL; None: not asked.
    """

    max_rows: int
    max_columns: int
    max_bytes: int
    timeout_s: float
    max_estimated_cost: float | None = None
    max_kept_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """Rows as the driver gave them. ``truncated``: the query had more rows than these."""

    columns: list[str]
    types: list[ColumnType]
    rows: list[list[Any]]
    truncated: bool


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Columns that point at a table of the allow-list."""

    columns: list[str]
    table: str
    references: list[str]


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column as declared."""

    name: str
    type: str
    nullable: bool
    comment: str = ""
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class TableInfo:
    """One table of the allow-list; ``name`` is spelled as there. ``row_estimate`` None: unknown."""

    name: str
    kind: Literal["table", "view"]
    comment: str
    row_estimate: int | None
    columns: list[TableColumn] = field(default_factory=list)
    primary_key: list[str] = field(default_factory=list)
    unique_keys: list[list[str]] = field(default_factory=list)
    foreign_keys: list[ForeignKey] = field(default_factory=list)
    title: str = ""
    """What users call it, where that is not its name."""


def refuse_role(role: str) -> None:
    """For databases that know no roles.

    Raises:
        ConfigurationError: there is one.
    """
    if role:
        raise ConfigurationError(
            f'BOS_ACCESS_GROUPS: database_role "{role}" is for a database that is not PostgreSQL. '
            "Leave it out; tables can be limited by group in every database."
        )


class Backend(Protocol):
    """A database that is only ever read.

    A backend does not rely on the guard: writes, tables outside the allow-list (as far as the
    database itself knows) and endless queries fail without it as well.
    """

    dialect: Dialect
    default_schema: str

    def reading(self, tables: Sequence[str], role: str) -> Backend:
        """The same for callers who may read less; connections are shared with it.

        Args:
            tables: The part of the allow-list that they may read.
            role: What reads for them in place of the user of the connection; empty: that user.

        Raises:
            ConfigurationError: a role, where the database knows no such thing.
        """

    async def query(self, sql: str, limits: Limits, kept: Kept | None = None) -> Result:
        """Run one query; cancelling the call stops the query in the database.

        Args:
            sql: the query.
            limits: its limits.
            kept: what its aggregates hold of each row, as the guard knows it.

        Raises:
            QueryRefused: more columns, a higher estimated cost or more kept than allowed.
            QueryFailed: the database refused or failed it.
            QueryTimedOut: longer than ``limits.timeout_s``.
            ResultTooLarge: the first row alone exceeds ``limits.max_bytes``.
            DatabaseUnavailable: no connection.
            RoleUnavailable: the role cannot be taken on.
        """

    async def describe(self, tables: Sequence[str]) -> list[TableInfo]:
        """Return the given tables (names of the allow-list) that exist, in their order.

        Raises:
            DatabaseUnavailable: no connection.
        """

    async def aclose(self) -> None:
        """Stop running queries and close every connection."""


class ListedBackend(Backend, Protocol):
    """A database of an address of its own, which can be looked through before it is connected."""

    async def listed(self) -> list[TableName]:
        """Schema and name of every table and view that the connection may read, sorted.

        Without system catalogues, and at most ``MAX_LISTED`` and one more. For
        proposing an allow-list: it reveals tables that agents must not know of.

        Raises:
            QueryFailed: the database refused.
            DatabaseUnavailable: no connection.
        """

    async def view_sources(self) -> Mapping[TableName, frozenset[TableName]] | None:
        """What each view reads, other views and what they read included.

        As far as the catalogue knows: not by functions, nor of the system catalogue itself.
        None: this database's catalogue does not say.

        Raises:
            QueryFailed: the database refused.
            DatabaseUnavailable: no connection.
        """
