"""Demo queries translated by the sql agent's guard return the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bos_demo.company import DEFAULT_TODAY, table_names
from bos_demo.dialogues import load_approved, load_followups
from bos_demo.expectations import same_rows
from bos_demo.questions import SqlStep, load_questions
from bos_demo.schema import read_tables
from bos_sql.dialects.translate import translate
from bos_sql.grounding.catalog import Field, Table
from bos_sqlguard import Guard, GuardPolicy

if TYPE_CHECKING:
    import sqlite3

    import asyncpg

    from bos_sqlguard import Dialect

    Connection = asyncpg.Connection[asyncpg.Record]

pytestmark = pytest.mark.requirement("D-09")

QUESTIONS = [*load_questions(), *load_followups(), *load_approved()]
STEPS = [step for each in QUESTIONS for step in each.steps if isinstance(step, SqlStep)]
TABLES = [
    Table(
        each.name,
        "table",
        tuple(Field(column.name, column.definition.split()[0]) for column in each.columns),
    )
    for each in read_tables()
]


def _name(value: SqlStep) -> str:
    return value.id


def translated(step: SqlStep, source: Dialect, target: Dialect) -> str:
    """The step's query as the agent sends it: translated by the guard to the other dialect."""

    def guarded(sql: str, dialect: Dialect) -> str:
        policy = GuardPolicy(dialect, frozenset(table_names()), default_schema="company")
        verdict = Guard(policy).check(sql)
        assert verdict.is_safe, verdict.violations
        return verdict.safe_sql

    tables = [table for table in TABLES if table.name in step.tables]
    done = translate(guarded(step.query(source, DEFAULT_TODAY), source), source, target, tables)
    assert done.withheld == ""
    return guarded(done.sql, target)


@pytest.mark.parametrize("step", STEPS, ids=_name)
async def test_queries_for_postgresql_give_the_same_rows_on_sqlite_and_back(
    step: SqlStep, company: Connection, sqlite_company: sqlite3.Connection
) -> None:
    own = [tuple(row) for row in await company.fetch(step.query("postgres", DEFAULT_TODAY))]
    for_sqlite = sqlite_company.execute(translated(step, "postgres", "sqlite")).fetchall()
    for_postgres = await company.fetch(translated(step, "sqlite", "postgres"))

    assert own
    assert same_rows(for_sqlite, own)
    assert same_rows([tuple(row) for row in for_postgres], own)


@pytest.mark.parametrize("source", ["postgres", "sqlite"])
@pytest.mark.parametrize("step", STEPS, ids=_name)
def test_every_query_is_written_for_sql_server(step: SqlStep, source: Dialect) -> None:
    written = translated(step, source, "tsql")

    assert written.startswith("SELECT TOP ")
    assert "LIMIT" not in written
