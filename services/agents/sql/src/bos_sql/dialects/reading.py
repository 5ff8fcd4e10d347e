"""Parser of guarded queries with bounded time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot.dialects.dialect import Dialect as SqlglotDialect
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.parsers.mysql import MySQLParser
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.parsers.sqlite import SQLiteParser
from sqlglot.parsers.tsql import TSQLParser

from bos_sqlguard import BoundedParser, TooComplex

if TYPE_CHECKING:
    from sqlglot import exp

    from bos_sqlguard import Dialect

# A legitimate query takes fewer than 5 steps per token. Some short ones make sqlglot backtrack
# exponentially, and this grammar is larger than the guard's own.
_STEPS_PER_TOKEN = 50


class Unreadable(ValueError):
    """The query cannot be parsed, or not within the step limit."""


class _DuckDB(BoundedParser, DuckDBParser):
    pass


class _MySQL(BoundedParser, MySQLParser):
    pass


class _Postgres(BoundedParser, PostgresParser):
    pass


class _SQLite(BoundedParser, SQLiteParser):
    pass


class _TSQL(BoundedParser, TSQLParser):
    pass


_PARSERS: dict[Dialect, type[BoundedParser]] = {
    "duckdb": _DuckDB,
    "mysql": _MySQL,
    "postgres": _Postgres,
    "sqlite": _SQLite,
    "tsql": _TSQL,
}


def read_query(sql: str, dialect: Dialect) -> exp.Expr:
    """Parse one query.

    Raises:
        Unreadable: it is no query of this dialect, or exceeds the step limit.
    """
    language = SqlglotDialect.get_or_raise(dialect)
    try:
        tokens = list(language.tokenize(sql))
        parser = _PARSERS[dialect](dialect=language, error_level=ErrorLevel.IMMEDIATE)
        parser.allow(_STEPS_PER_TOKEN * (len(tokens) + 20))
        (tree,) = parser.parse(tokens, sql)
    except (SqlglotError, RecursionError, TooComplex, ValueError) as error:
        raise Unreadable(type(error).__name__) from None
    if tree is None:
        raise Unreadable("empty")
    return tree
