"""Reading and writing SQL exactly: sqlglot without its translations.

sqlglot rewrites functions into a common form so that they can be translated. Here a query is only
checked and written again in its own dialect, so functions stay what they are: every call is an
``Anonymous`` node with the name as written, except the few whose arguments have a syntax of their
own (``CAST(x AS t)``). That makes the function allow-list one of plain names, and what the guard
checked is, name by name, what runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect as SqlglotDialect
from sqlglot.errors import ErrorLevel
from sqlglot.generator import Generator
from sqlglot.generators.duckdb import DuckDBGenerator
from sqlglot.generators.mysql import MySQLGenerator
from sqlglot.generators.postgres import PostgresGenerator
from sqlglot.generators.sqlite import SQLiteGenerator
from sqlglot.generators.tsql import TSQLGenerator
from sqlglot.parser import Parser
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.parsers.mysql import MySQLParser
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.parsers.sqlite import SQLiteParser
from sqlglot.parsers.tsql import TSQLParser

from bos_sqlguard.bounded import BoundedParser
from bos_sqlguard.names import Dialect
from bos_sqlguard.reserved import RESERVED

# Legitimate queries take fewer than 2 steps a token.
_STEPS_PER_TOKEN = 20
_TYPED_LITERAL = "typed_literal"
_SEPARATOR = "separator"


def _only(parser: type[Parser], *names: str) -> dict[str, Callable[..., Any]]:
    return {name: parser.FUNCTION_PARSERS[name] for name in names}


def _json_get(_: Parser, this: exp.Expr, path: exp.Expr) -> exp.Expr:
    return exp.JSONExtract(this=this, expression=path)


def _json_get_text(_: Parser, this: exp.Expr, path: exp.Expr) -> exp.Expr:
    return exp.JSONExtractScalar(this=this, expression=path)


def _typed_literal(parser: Parser, this: exp.Expr, to: exp.Expr) -> exp.Expr:
    """Read ``DATE '2026-01-31'``; it is written as it was read."""
    cast = parser.expression(exp.Cast(this=this, to=to))
    cast.meta[_TYPED_LITERAL] = isinstance(this, exp.Literal) and not to.expressions
    return cast


class _PostgresReader(BoundedParser, PostgresParser):
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS = _only(PostgresParser, "CAST", "EXTRACT", "POSITION", "SUBSTRING", "TRIM")
    TYPE_LITERAL_PARSERS: ClassVar[dict[exp.DType, Callable[..., Any]]] = {
        **PostgresParser.TYPE_LITERAL_PARSERS,
        exp.DType.DATE: _typed_literal,
        exp.DType.TIMESTAMP: _typed_literal,
    }
    # Paths stay the literal that was written; sqlglot would parse and respell them.
    JSON_OPERATORS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        **PostgresParser.JSON_OPERATORS,
        TokenType.ARROW: _json_get,
        TokenType.DARROW: _json_get_text,
    }


class _DuckDBReader(BoundedParser, DuckDBParser):
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS = _only(
        DuckDBParser, "CAST", "TRY_CAST", "EXTRACT", "POSITION", "SUBSTRING", "TRIM"
    )


class _SQLiteReader(BoundedParser, SQLiteParser):
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS = _only(SQLiteParser, "CAST")
    CONCAT_OPERATORS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        **SQLiteParser.CONCAT_OPERATORS,
        TokenType.ARROW: _json_get,
        TokenType.DARROW: _json_get_text,
    }


class _TSQLReader(BoundedParser, TSQLParser):
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS = _only(TSQLParser, "CAST", "TRY_CAST", "CONVERT", "TRY_CONVERT")


def _group_concat(parser: Parser) -> exp.Expr:
    """Read ``GROUP_CONCAT([DISTINCT] a, b ORDER BY c SEPARATOR ';')``; the separator comes last."""
    values = parser._parse_csv(parser._parse_lambda)
    call = exp.Anonymous(this="GROUP_CONCAT", expressions=values)
    if parser._match(TokenType.SEPARATOR):
        call.append("expressions", parser._parse_string())
        call.meta[_SEPARATOR] = True
    return call


class _MySQLReader(BoundedParser, MySQLParser):
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        **_only(MySQLParser, "CAST", "EXTRACT", "POSITION", "SUBSTRING", "TRIM"),
        "GROUP_CONCAT": _group_concat,
    }
    TYPE_LITERAL_PARSERS: ClassVar[dict[exp.DType, Callable[..., Any]]] = {
        **MySQLParser.TYPE_LITERAL_PARSERS,
        exp.DType.DATE: _typed_literal,
        exp.DType.TIME: _typed_literal,
        exp.DType.TIMESTAMPTZ: _typed_literal,
    }
    # A column's operators of MySQL; MariaDB has the functions alone.
    COLUMN_OPERATORS: ClassVar[dict[TokenType, Callable[..., Any] | None]] = {
        **MySQLParser.COLUMN_OPERATORS,
        TokenType.ARROW: _json_get,
        TokenType.DARROW: _json_get_text,
    }


class _MySQLWriter(MySQLGenerator):
    # Quoted behind AS; those that MySQL alone reserves are sqlglot's.
    RESERVED_KEYWORDS: ClassVar[set[str]] = {*MySQLGenerator.RESERVED_KEYWORDS, *RESERVED["mysql"]}

    def cast_sql(self, expression: exp.Cast, safe_prefix: str | None = None) -> str:
        if expression.meta.get(_TYPED_LITERAL):
            # sqlglot calls TIMESTAMP of MySQL TIMESTAMPTZ.
            name = expression.to.this.name.removesuffix("TZ")
            return f"{name} {self.sql(expression, 'this')}"
        return str(super().cast_sql(expression, safe_prefix=safe_prefix))

    def regexplike_sql(self, expression: exp.RegexpLike) -> str:
        """Write the operator of both servers; MariaDB has no REGEXP_LIKE."""
        return self.binary(expression, "RLIKE")

    def anonymous_sql(self, expression: exp.Anonymous) -> str:
        if not expression.meta.get(_SEPARATOR):
            return str(super().anonymous_sql(expression))
        *values, separator = expression.expressions
        listed = self.expressions(sqls=values, flat=True)
        return f"{expression.this}({listed} SEPARATOR {self.sql(separator)})"


class _PostgresWriter(PostgresGenerator):
    MULTI_ARG_DISTINCT = True  # string_agg(DISTINCT a, ', ')

    def cast_sql(self, expression: exp.Cast, safe_prefix: str | None = None) -> str:
        if expression.meta.get(_TYPED_LITERAL):
            return f"{self.sql(expression, 'to')} {self.sql(expression, 'this')}"
        return str(super().cast_sql(expression, safe_prefix=safe_prefix))


class _DuckDBWriter(DuckDBGenerator):
    MULTI_ARG_DISTINCT = True  # string_agg(DISTINCT a, ', ')

    def withingroup_sql(self, expression: exp.WithinGroup) -> str:
        """Write what was read; sqlglot would move the order into a call that it renames."""
        within = self.sql(expression, "expression").strip()
        return f"{self.sql(expression, 'this')} WITHIN GROUP ({within})"


class _SQLiteWriter(SQLiteGenerator):
    # CAST(x AS NUMERIC) keeps integers; sqlglot's REAL would turn them into floats.
    TYPE_MAPPING: ClassVar[dict[exp.DType, str]] = {
        **SQLiteGenerator.TYPE_MAPPING,
        exp.DType.DECIMAL: "NUMERIC",
    }

    def identifier_sql(self, expression: exp.Identifier) -> str:
        """Quote names by backticks: SQLite takes an unknown name in double quotes for a text."""
        if not expression.quoted:
            return str(super().identifier_sql(expression))
        return "`" + expression.name.replace("`", "``") + "`"


_PARTS: dict[Dialect, tuple[type[BoundedParser], type[Generator]]] = {
    "duckdb": (_DuckDBReader, _DuckDBWriter),
    "mysql": (_MySQLReader, _MySQLWriter),
    "postgres": (_PostgresReader, _PostgresWriter),
    "sqlite": (_SQLiteReader, _SQLiteWriter),
    "tsql": (_TSQLReader, TSQLGenerator),
}


class Grammar:
    """Reads and writes one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = SqlglotDialect.get_or_raise(dialect)
        self._parser, self._generator = _PARTS[dialect]
        try:
            self._parser(dialect=self._dialect)
        except TypeError as error:
            raise RuntimeError(
                "sqlglotc, the compiled parser, cannot be narrowed for the guard: uninstall it"
            ) from error

    def tokens(self, sql: str) -> list[Token]:
        """Split ``sql`` into tokens. Raises ``sqlglot.errors.TokenError``."""
        return list(self._dialect.tokenize(sql))

    def parse(self, tokens: list[Token], sql: str) -> list[exp.Expr]:
        """Return one tree per statement. Raises ``sqlglot.errors.ParseError`` or ``TooComplex``."""
        parser = self._parser(dialect=self._dialect, error_level=ErrorLevel.IMMEDIATE)
        parser.allow(_STEPS_PER_TOKEN * (len(tokens) + 20))
        return [tree for tree in parser.parse(tokens, sql) if tree is not None]

    def write(self, tree: exp.Expr) -> str:
        """Return the SQL of ``tree`` on one line, without comments; the tree is used up.

        Raises ``sqlglot.errors.UnsupportedError`` rather than leave anything out.
        """
        generator = self._generator(
            dialect=self._dialect,
            comments=False,
            normalize_functions=False,
            unsupported_level=ErrorLevel.RAISE,
        )
        return str(generator.generate(tree, copy=False))
