"""Which names a database itself takes in a statement, for comparison with the guard.

A statement and its twin, in which all that the guard takes for a name is quoted, must mean the same
to the database: otherwise it takes one of the words for something else.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import asyncmy
import asyncpg
import duckdb
from asyncmy.errors import MySQLError
from sqlglot import exp

from bos_sqlguard import Dialect, Guard
from bos_sqlguard.grammar import Grammar


@dataclass(frozen=True)
class Reading:
    """What a database makes of a statement; two that are equal have one meaning."""

    meaning: Any
    tables: frozenset[str]
    perhaps: frozenset[str] = frozenset()
    """Names that are asked for, of tables or of CTEs."""


class NotRead(Exception):
    """The database refuses the statement. ``is_syntax``: for its words, not for what they name."""

    def __init__(self, message: str, *, is_syntax: bool) -> None:
        super().__init__(message)
        self.is_syntax = is_syntax


class Database(Protocol):
    async def read(self, sql: str) -> Reading:
        """Raises NotRead."""


@dataclass
class Comparison:
    """Outcomes by name, and statements of which guard and database think differently."""

    outcomes: Counter[str] = field(default_factory=Counter)
    disagreements: list[tuple[str, ...]] = field(default_factory=list)


async def compared(database: Database, guard: Guard, statements: Iterable[str]) -> Comparison:
    """Read every statement that the guard passes by the database, as given and as written."""
    found = Comparison()
    for statement in statements:
        verdict = guard.check(statement)
        if not verdict.is_safe:
            found.outcomes["refused"] += 1
            continue
        tables = frozenset(verdict.used_tables)
        for sql, is_given in ((statement, True), (verdict.safe_sql, False)):
            outcome, *why = await _outcome(database, guard.policy.dialect, sql, tables, is_given)
            found.outcomes[f"{outcome}{' as given' * is_given}"] += 1
            if outcome == "differs":
                found.disagreements.append((statement, sql, *map(str, why)))
    return found


async def _outcome(
    database: Database, dialect: Dialect, sql: str, tables: frozenset[str], is_given: bool
) -> tuple[object, ...]:
    if is_given and dialect == "sqlite" and '"' in sql:
        return ("left out",)  # it takes unknown names in these quotes for texts
    try:
        read = await database.read(sql)
    except NotRead as refusal:
        return "syntax" if refusal.is_syntax else "unknown", refusal
    try:
        twin = await database.read(quoted_twin(dialect, sql))
    except NotRead as refusal:
        return "differs", quoted_twin(dialect, sql), refusal
    if read.meaning != twin.meaning:
        return "differs", read.meaning, twin.meaning
    surely, perhaps = _lower(read.tables), _lower(read.perhaps)
    if not surely <= _lower(tables) <= surely | perhaps:
        return "differs", sorted(surely), sorted(tables)
    return ("same",)


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def quoted_twin(dialect: Dialect, sql: str) -> str:
    """The statement as the guard reads it, with every name in quotes."""
    grammar = Grammar(dialect)
    (tree,) = grammar.parse(grammar.tokens(sql), sql)
    for name in tree.find_all(exp.Identifier):
        if not name.quoted:
            if dialect == "postgres":
                name.set("this", name.this.lower())
            name.set("quoted", True)
    return grammar.write(tree)


class PostgresReader:
    """The definition of a view of the statement, and what the catalogue says it depends on."""

    _DEPENDS = """
    SELECT DISTINCT c.relname, c.oid = 'names_read'::regclass AS own
    FROM pg_depend AS d
    JOIN pg_rewrite AS r ON d.objid = r.oid AND d.classid = 'pg_rewrite'::regclass
    JOIN pg_class AS c ON d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
    WHERE r.ev_class = 'names_read'::regclass
    """

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self._connection = connection

    async def read(self, sql: str) -> Reading:
        """See Database."""
        transaction = self._connection.transaction()
        await transaction.start()
        try:
            await self._connection.execute(f"CREATE TEMP VIEW names_read AS {sql}")
            shown = await self._connection.fetchval("SELECT pg_get_viewdef('names_read'::regclass)")
            rows = await self._connection.fetch(self._DEPENDS)
        except asyncpg.PostgresSyntaxError as error:
            raise NotRead(str(error), is_syntax=True) from None
        except asyncpg.PostgresError as error:
            raise NotRead(str(error), is_syntax=False) from None
        finally:
            await transaction.rollback()
        return Reading(shown, frozenset(row["relname"] for row in rows if not row["own"]))


class SqliteReader:
    """The program of the statement, and every table and column that its authorizer is asked for."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def read(self, sql: str) -> Reading:
        """See Database."""
        asked: list[tuple[int, str | None, str | None]] = []

        def authorize(action: int, first: str | None, second: str | None, *_: object) -> int:
            asked.append((action, first, second))
            return sqlite3.SQLITE_OK

        self._connection.set_authorizer(authorize)
        try:
            program = self._connection.execute(f"EXPLAIN {sql}").fetchall()
        except sqlite3.Error as error:
            is_syntax = "syntax error" in str(error)
            raise NotRead(str(error), is_syntax=is_syntax) from None
        finally:
            self._connection.set_authorizer(None)
        opened = {row[3] for row in program if row[1] == "OpenRead"}
        roots = dict(self._connection.execute("SELECT rootpage, name FROM sqlite_master"))
        # It opens no table of which it needs nothing, as in EXISTS (SELECT max(pk) FROM t).
        asked_for = {first for action, first, _ in asked if action == sqlite3.SQLITE_READ}
        return Reading(
            (program, asked),
            frozenset(roots[page] for page in opened),
            frozenset(name for name in asked_for if name),
        )


class DuckDbReader:
    """Its own parse tree without places, and the names of tables that it finds there."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    async def read(self, sql: str) -> Reading:
        """See Database."""
        row = self._connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
        tree = json.loads(row[0] if row else "null")
        if tree["error"]:
            raise NotRead(tree["error_message"], is_syntax=True)
        try:
            self._connection.execute(f"EXPLAIN {sql}")
            tables = self._connection.get_table_names(sql)
        except duckdb.Error as error:
            raise NotRead(str(error), is_syntax=isinstance(error, duckdb.ParserException)) from None
        return Reading(_without_places(tree), frozenset(tables))


def _without_places(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_without_places(each) for each in tree]
    if isinstance(tree, str):
        return tree.lower()
    if isinstance(tree, dict):
        return {
            key: _without_places(value)
            for key, value in tree.items()
            if not key.startswith("query_location")
        }
    return tree


class MariaDbReader:
    """The definition of a view of the statement, in which the server qualifies every name."""

    def __init__(self, connection: asyncmy.Connection, database: str) -> None:
        self._connection = connection
        self._table = re.compile(rf"`{database}`\.`([^`]*)`")

    async def read(self, sql: str) -> Reading:
        """See Database."""
        cursor = self._connection.cursor()
        try:
            await cursor.execute(f"CREATE OR REPLACE VIEW names_read AS {sql}")
            await cursor.execute(
                "SELECT VIEW_DEFINITION FROM information_schema.VIEWS"
                " WHERE TABLE_NAME = 'names_read'"
            )
            ((shown,),) = await cursor.fetchall()
        except MySQLError as error:
            is_syntax = error.args[0] in (1064, 1149)
            raise NotRead(str(error), is_syntax=is_syntax) from None
        # A column without a name is called by its words, which the guard may respell.
        meaning = re.sub(r"(\w+\(\)) AS `[^`]*`", r"\1", shown)
        return Reading(meaning, frozenset(self._table.findall(shown)))
