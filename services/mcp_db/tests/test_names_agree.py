"""Guard and database take the same words of a statement for names.

Every keyword is drawn in every place of a name. ``make trial NAME=differential`` draws 20,000
statements for each database.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing

import asyncpg
import duckdb
import pytest
from name_readings import (
    Comparison,
    DuckDbReader,
    PostgresReader,
    SqliteReader,
    compared,
)
from name_statements import parser_words, statements

from bos_sqlguard import Dialect, Guard, GuardPolicy
from bos_sqlguard.reserved import RESERVED

pytestmark = [pytest.mark.security, pytest.mark.timeout(3600)]
COUNT = int(os.environ.get("BOS_TEST_STATEMENTS", "400"))
SEED = int(os.environ.get("BOS_TEST_SEED", "20261129"))


def guard_of(dialect: Dialect, words: Sequence[str], schema: str = "") -> Guard:
    return Guard(GuardPolicy(dialect, frozenset({*words, "sales"}), default_schema=schema))


def schema_of(words: Sequence[str], quote: str) -> list[str]:
    names = [f"{quote}{word}{quote}" for word in words]
    columns = "".join(f", {name} integer" for name in names)
    return [f"CREATE TABLE sales (pk integer, amount integer{columns})"] + [
        f"CREATE TABLE {name} (pk integer, amount integer, {name} integer)" for name in names
    ]


def agree(dialect: Dialect, found: Comparison) -> None:
    """Most statements are compared, and of none do guard and database think differently."""
    print(dialect, dict(found.outcomes), *found.disagreements[:40], sep="\n   ")
    assert not found.disagreements
    assert found.outcomes["same"] > 0.3 * found.outcomes.total() / 2
    # Such as functions without their arguments, which the database refuses.
    assert found.outcomes["syntax"] < 0.01 * found.outcomes.total()


@pytest.mark.parametrize(
    ("dialect", "statement"),
    [
        ("postgres", "SELECT * FROM user"),
        ("postgres", "SELECT u.* FROM user AS u"),
        ("postgres", "SELECT regexp + 1 FROM sales"),
        ("postgres", "SELECT fetch + 1 FROM sales"),
        ("postgres", "SELECT user.pk FROM sales AS user"),
        ("sqlite", "SELECT semi.pk FROM sales semi JOIN x ON semi.pk = x.pk"),
        ("duckdb", "SELECT pk FROM pivot"),
        ("mysql", "SELECT pk FROM dual"),
        ("mysql", "WITH Totals AS (SELECT pk FROM sales) SELECT pk FROM totals"),
        ("tsql", "SELECT pk FROM plan"),
    ],
)
def test_misread_names_are_refused_and_corrected(dialect: Dialect, statement: str) -> None:
    words = ["user", "x", "pivot", "dual", "plan", "totals"]
    verdict = guard_of(dialect, words).check(statement)
    assert [each.rule for each in verdict.violations] != []
    assert "GUARD_ERROR" not in {each.rule for each in verdict.violations}


def test_unknown_quoted_names_of_sqlite_are_no_texts() -> None:
    """SQLite would answer with the misspelt name in each row."""
    written = guard_of("sqlite", []).check('SELECT "amuont" FROM sales').safe_sql
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE sales (amount)")
        with pytest.raises(sqlite3.OperationalError, match="no such column: amuont"):
            connection.execute(written)


async def test_postgres(postgres_dsn: str) -> None:
    connection = await asyncpg.connect(postgres_dsn)
    try:
        rows = await connection.fetch("SELECT word, catcode::text FROM pg_get_keywords()")
        assert {row["word"] for row in rows if row["catcode"] in "RT"} == RESERVED["postgres"]
        words = sorted({row["word"] for row in rows} | parser_words("postgres"))
        await connection.execute(";".join(schema_of(words, '"')))
        given = statements("postgres", words, schema="public", seed=SEED, count=COUNT)
        found = await compared(PostgresReader(connection), guard_of("postgres", words), given)
    finally:
        await connection.close()
    agree("postgres", found)


async def test_sqlite() -> None:
    words = sorted(parser_words("sqlite"))
    with closing(sqlite3.connect(":memory:")) as connection:
        for each in schema_of(words, '"'):
            connection.execute(each)
        given = statements("sqlite", words, schema="main", seed=SEED, count=COUNT)
        found = await compared(SqliteReader(connection), guard_of("sqlite", words), given)
    agree("sqlite", found)


async def test_duckdb() -> None:
    with duckdb.connect(":memory:") as connection:
        rows = connection.execute("SELECT * FROM duckdb_keywords()").fetchall()
        columns = {row[0] for row in rows if row[1] == "column_name"}
        reserved = {row[0] for row in rows if row[1] in ("reserved", "type_function")} - columns
        assert reserved - RESERVED["duckdb"] <= {
            "try_cast",
            "struct",
            "columns",
            "generated",
            "tuple",
        }
        words = sorted({row[0] for row in rows} | parser_words("duckdb"))
        for each in schema_of(words, '"'):
            connection.execute(each)
        given = statements("duckdb", words, schema="main", seed=SEED, count=COUNT)
        found = await compared(DuckDbReader(connection), guard_of("duckdb", words), given)
    agree("duckdb", found)
