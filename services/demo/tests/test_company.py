from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from contextlib import closing
from datetime import date
from pathlib import Path

import asyncpg
import pytest
from asyncpg import Connection

from bos_demo.company import load_postgres, table_names, write_sqlite
from bos_demo.rows import CompanyRows
from bos_errors import FailedPrecondition, InvalidArgument


async def _digest(dsn: str) -> str:
    connection = await asyncpg.connect(dsn)
    sha = hashlib.sha256()
    try:
        for table in table_names():
            found = await connection.fetch(
                f"SELECT t::text AS row FROM company.{table} t ORDER BY 1"
            )
            sha.update("\n".join(record["row"] for record in found).encode())
    finally:
        await connection.close()
    return sha.hexdigest()


async def test_postgres_holds_every_row(company: Connection, rows: CompanyRows) -> None:
    counts = {t: await company.fetchval(f"SELECT count(*) FROM {t}") for t in table_names()}
    assert counts == {name: len(records) for name, records in rows.tables().items()}


async def test_postgres_enforces_the_relations_of_the_tables(company: Connection) -> None:
    constraints = await company.fetchval(
        "SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND convalidated "
        "AND connamespace = 'company'::regnamespace"
    )
    assert constraints == 29


async def test_every_table_and_column_has_its_comment_in_postgres(company: Connection) -> None:
    described = await company.fetch(
        """
        SELECT c.relname AS table_name, coalesce(a.attname, '') AS column_name, d.description
        FROM pg_class c
        JOIN pg_description d ON d.objoid = c.oid AND d.classoid = 'pg_class'::regclass
        LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.objsubid AND d.objsubid > 0
        WHERE c.relnamespace = 'company'::regnamespace AND c.relkind = 'r'
        """
    )
    dictionary = await company.fetch("SELECT * FROM data_dictionary")
    assert {tuple(record) for record in described} == {tuple(record) for record in dictionary}


async def test_of_loads_at_once_one_fills_the_schema_and_another_today_reloads(
    postgres_dsn: str,
) -> None:
    both = await asyncio.gather(load_postgres(postgres_dsn), load_postgres(postgres_dsn))
    assert sorted(loaded.skipped for loaded in both) == [False, True]
    before = await _digest(postgres_dsn)
    assert (await load_postgres(postgres_dsn)).skipped
    moved = await load_postgres(postgres_dsn, today=date(2026, 3, 31))
    assert not moved.skipped
    assert await _digest(postgres_dsn) != before


async def test_schema_with_other_content_is_not_changed(postgres_dsn: str) -> None:
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute("CREATE SCHEMA company; CREATE TABLE company.precious (id integer)")
    with pytest.raises(FailedPrecondition, match="schema company"):
        await load_postgres(postgres_dsn)
    with pytest.raises(InvalidArgument):
        await load_postgres(postgres_dsn, schema='company"; DROP SCHEMA public; --')
    assert await connection.fetchval("SELECT count(*) FROM company.precious") == 0
    await connection.close()


def test_sqlite_holds_the_same_rows(sqlite_company: sqlite3.Connection, rows: CompanyRows) -> None:
    counts = {
        name: sqlite_company.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
        for name in table_names()
    }
    assert counts == {name: len(records) for name, records in rows.tables().items()}
    assert sqlite_company.execute("PRAGMA foreign_key_check").fetchall() == []
    query = "SELECT sql FROM sqlite_master WHERE name = 'invoices'"
    (ddl,) = sqlite_company.execute(query).fetchone()
    assert "this is revenue" in ddl


def test_a_sqlite_file_is_written_once_and_the_same_each_time(
    sqlite_path: Path, tmp_path: Path
) -> None:
    assert write_sqlite(sqlite_path).skipped
    other = tmp_path / "other.sqlite"
    assert not write_sqlite(other).skipped
    dumps = []
    for path in (sqlite_path, other):
        with closing(sqlite3.connect(path)) as connection:
            dumps.append(hashlib.sha256("\n".join(connection.iterdump()).encode()).hexdigest())
    assert dumps[0] == dumps[1]
    assert not write_sqlite(other, today=date(2026, 3, 31)).skipped


def test_file_with_other_content_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, and precious")
    with pytest.raises(FailedPrecondition, match=r"notes\.txt"):
        write_sqlite(path)
    assert path.read_text() == "not a database, and precious"
