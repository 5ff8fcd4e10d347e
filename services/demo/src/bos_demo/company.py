"""Loading of the sample company into PostgreSQL or SQLite; idempotent."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg

from bos_demo.generators.generate import SEED, generate
from bos_demo.rows import CompanyRows
from bos_demo.schema import comment_statements, read_tables, schema_sql
from bos_errors import FailedPrecondition, InvalidArgument
from bos_postgres import connect

VERSION = 1
"""Version of the rows; raise it when they change, so that loaded databases are refilled."""

DEFAULT_TODAY = date(2026, 6, 15)
LOCK = 0x_B05_DE30
STATEMENT_TIMEOUT_S = 60.0

_MARKER = """
CREATE TABLE demo_load (version integer NOT NULL, seed integer NOT NULL, today date NOT NULL)
"""
_READ_MARKER = "SELECT version, seed, today FROM demo_load"


class Loaded(NamedTuple):
    """Outcome of a load; `rows` is 0 when the data was there already."""

    rows: int
    skipped: bool


def table_names() -> tuple[str, ...]:
    """Return the company's tables in alphabetical order; the marker table is not one of them."""
    return tuple(sorted(table.name for table in read_tables()))


async def load_postgres(
    dsn: str, *, schema: str = "company", today: date = DEFAULT_TODAY, seed: int = SEED
) -> Loaded:
    """Fill `schema` of the database, in one transaction and under an advisory lock.

    The schema is dropped and filled anew when it holds another version, seed or today.

    Raises:
        InvalidArgument: `schema` is not a plain lower-case identifier.
        FailedPrecondition: the schema exists and was not made by this function.
        Unavailable: the database cannot be reached.
    """
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
        raise InvalidArgument.field("schema", "use lower-case letters, digits and underscores")
    marker = (VERSION, seed, today)
    async with (
        connect(
            dsn, application_name="bos-demo", statement_timeout_s=STATEMENT_TIMEOUT_S
        ) as session,
        session.transaction(),
    ):
        # Concurrent loads: the second waits for the first, then is skipped.
        await session.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
        if await _marker(session, schema) == marker:
            return Loaded(0, skipped=True)
        rows = await asyncio.to_thread(generate, today, seed)
        return Loaded(await _fill(session, schema, rows, marker), skipped=False)


async def _marker(
    connection: asyncpg.Connection[asyncpg.Record], schema: str
) -> tuple[int, int, date] | None:
    """Return version, seed and today that the schema was loaded with; None without a schema."""
    if not await connection.fetchval(
        "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", schema
    ):
        return None
    if await connection.fetchval("SELECT to_regclass($1)", f"{schema}.demo_load") is None:
        raise FailedPrecondition(
            f"schema {schema} exists and does not hold the sample company; "
            "choose another schema or database for it"
        )
    await connection.execute(f"SET LOCAL search_path = {schema}")
    record = await connection.fetchrow(_READ_MARKER)
    return tuple(record) if record else (0, 0, date.min)


async def _fill(
    connection: asyncpg.Connection[asyncpg.Record],
    schema: str,
    rows: CompanyRows,
    marker: tuple[int, int, date],
) -> int:
    await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    await connection.execute(f"CREATE SCHEMA {schema}")
    await connection.execute(f"SET LOCAL search_path = {schema}")
    await connection.execute(schema_sql())
    await connection.execute(comment_statements(read_tables()))
    await connection.execute(_MARKER)
    total = 0
    for name, records in rows.tables().items():
        await connection.copy_records_to_table(name, schema_name=schema, records=records)
        total += len(records)
    await connection.copy_records_to_table("demo_load", schema_name=schema, records=[marker])
    for name in rows.tables():
        await connection.execute(f"ANALYZE {name}")
    return total


def write_sqlite(path: Path, *, today: date = DEFAULT_TODAY, seed: int = SEED) -> Loaded:
    """Write the same rows to a SQLite file; an older file is replaced.

    Dates and timestamps become ISO 8601 text, money numbers. The file is replaced atomically.
    """
    marker = (VERSION, seed, today.isoformat())
    if path.exists() and _sqlite_marker(path) == marker:
        return Loaded(0, skipped=True)
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    total = 0
    with closing(sqlite3.connect(partial)) as connection:
        connection.executescript(schema_sql() + ";" + _MARKER)
        for name, records in generate(today, seed).tables().items():
            slots = ", ".join("?" * len(records[0]))
            connection.executemany(f"INSERT INTO {name} VALUES ({slots})", _plain(records))  # noqa: S608
            total += len(records)
        connection.execute("INSERT INTO demo_load VALUES (?, ?, ?)", marker)
        connection.commit()
        connection.execute("ANALYZE")
        connection.commit()
    partial.replace(path)
    return Loaded(total, skipped=False)


def _sqlite_marker(path: Path) -> tuple[Any, ...] | None:
    with closing(sqlite3.connect(path)) as connection:
        try:
            record: tuple[Any, ...] | None = connection.execute(_READ_MARKER).fetchone()
        except sqlite3.DatabaseError as error:
            raise FailedPrecondition(
                f"{path.name} exists and does not hold the sample company; choose another path"
            ) from error
    return record


def _plain(records: Iterable[tuple[Any, ...]]) -> Iterable[tuple[Any, ...]]:
    for record in records:
        yield tuple(_plain_value(value) for value in record)


def _plain_value(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, date):
        return value.isoformat()
    return value
