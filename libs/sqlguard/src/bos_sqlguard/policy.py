"""Policy of a guard: dialect, tables, limits."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from importlib import resources

from bos_sqlguard.names import DIALECTS, Dialect, fold, is_system_table

_DEFAULT_SCHEMAS: dict[Dialect, str] = {
    "duckdb": "main",
    "mysql": "main",
    "postgres": "public",
    "sqlite": "main",
    "tsql": "dbo",
}


@dataclass(frozen=True, slots=True)
class GuardPolicy:
    """What a query may read and how much it may return.

    Attributes:
        dialect: ``duckdb``, ``mysql`` (MariaDB as well), ``postgres``, ``sqlite`` or ``tsql``.
        allowed_tables: ``table`` (in ``default_schema``) or ``schema.table``, spelled as the
            database spells them. Nothing else can be read.
        default_schema: where an unqualified name lives; by default ``public``, ``main`` or ``dbo``.
            In MySQL the database of the connection.
            The connection that runs the query must resolve names the same way.
        max_rows: rows a result may have. The guard writes ``max_rows + 1``, one row of look-ahead,
            so that the caller can say whether more rows exist.
        max_columns: columns a result may have.

    Raises:
        ValueError: an impossible limit, or a system catalogue on the allow-list.
    """

    dialect: Dialect
    allowed_tables: frozenset[str]
    default_schema: str = ""
    max_rows: int = 200
    max_columns: int = 50

    def __post_init__(self) -> None:
        if self.dialect not in DIALECTS:
            raise ValueError(f"dialect must be one of {', '.join(DIALECTS)}, not {self.dialect!r}")
        if self.max_rows < 1 or self.max_columns < 1:
            raise ValueError("max_rows and max_columns must be at least 1")
        if not self.default_schema:
            object.__setattr__(self, "default_schema", _DEFAULT_SCHEMAS[self.dialect])
        for entry in self.allowed_tables:
            schema, table = split_table(entry, self.default_schema)
            if not table or not schema or "*" in entry:
                raise ValueError(f"allowed_tables: {entry!r} is not a table or schema.table")
            if is_system_table(self.dialect, schema, table):
                raise ValueError(f"allowed_tables: {entry!r} is a system catalogue")

    def for_dialect(self, dialect: Dialect) -> GuardPolicy:
        """Return the same policy for another dialect, for a variant written in it.

        Tables of the default schema move to the default schema of ``dialect``.
        """
        if dialect == self.dialect:
            return self
        tables = set()
        for entry in self.allowed_tables:
            schema, table = split_table(entry, self.default_schema)
            tables.add(table if schema == self.default_schema else entry)
        return replace(self, dialect=dialect, allowed_tables=frozenset(tables), default_schema="")

    def table_index(self) -> dict[tuple[str, str], str]:
        """Return allow-list entries by (schema, table), folded as the dialect compares names."""
        index = {}
        for entry in self.allowed_tables:
            schema, table = split_table(entry, self.default_schema)
            index[(self.fold_stored(schema), self.fold_stored(table))] = entry
        return index

    def fold_stored(self, name: str) -> str:
        """Return how ``name``, spelled as the database stores it, compares with a reference."""
        return fold(self.dialect, name, quoted=True)


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions a dialect may call, and names that stand for others; all in lower case.

    Attributes:
        scalar: callable in expressions.
        table: callable where a table stands.
        session_names: read like a column, with values of the session.
        bounded: the place of the argument that must be a small number.
        formats: their first argument must be text without wide fields.
        of_a_row: called when they are written like a column of a row.
        of_a_row_prefixes: families of such functions.
        system_columns: columns that every table has and no question needs.
    """

    scalar: frozenset[str]
    table: frozenset[str]
    session_names: frozenset[str]
    bounded: dict[str, int]
    formats: frozenset[str] = frozenset()
    of_a_row: frozenset[str] = frozenset()
    of_a_row_prefixes: tuple[str, ...] = ()
    system_columns: frozenset[str] = frozenset()


def load_functions(dialect: Dialect) -> Functions:
    """Return the allow-list of ``functions/<dialect>.toml``."""
    file = resources.files(__package__).joinpath("functions", f"{dialect}.toml")
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    return Functions(
        scalar=frozenset(data["scalar"]),
        table=frozenset(data["table"]),
        session_names=frozenset(data["session_names"]),
        bounded=data["bounded"],
        formats=frozenset(data.get("formats", ())),
        of_a_row=frozenset(data.get("of_a_row", ())),
        of_a_row_prefixes=tuple(data.get("of_a_row_prefixes", ())),
        system_columns=frozenset(data.get("system_columns", ())),
    )


def split_table(entry: str, default_schema: str) -> tuple[str, str]:
    """Split ``table`` or ``schema.table`` into schema and table."""
    schema, dot, table = entry.rpartition(".")
    return (schema, table) if dot else (default_schema, entry)
