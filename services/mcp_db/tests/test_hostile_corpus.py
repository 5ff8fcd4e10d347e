"""The hostile corpus of the guard against real databases.

With only mcp_db's guard on, every statement is refused. With no guard at all nothing is written, no
table that was not granted is read, and nothing runs longer than the time limit.
"""

import hashlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from mcp_db_rig import (
    BRIEF,
    CANARY,
    CORPUS_TABLES,
    all_refused,
    as_reader,
    hostile,
    left_behind,
    provisioned,
    run_unguarded,
)

from bos_mcp_db.backends.postgres.backend import PostgresBackend
from bos_mcp_db.backends.sqlite import SqliteBackend
from bos_mcp_db.settings import DatabaseSettings
from bos_sqlguard import load_functions

pytestmark = [pytest.mark.security, pytest.mark.timeout(600)]

POSTGRES_TABLES = (*CORPUS_TABLES, "sales.targets")

_COMMON = f"""
CREATE TABLE customers (customer_id integer PRIMARY KEY, name text, email text);
CREATE TABLE orders (order_id integer PRIMARY KEY, customer_id integer, status text,
    amount numeric, note text, placed_on date);
CREATE TABLE invoices (invoice_id integer PRIMARY KEY, customer_id integer, amount numeric);
CREATE TABLE products (product_id integer PRIMARY KEY, name text, tags text, attributes text);
CREATE TABLE employees (employee_id integer PRIMARY KEY, manager_id integer, name text);
CREATE TABLE salaries (employee text, amount numeric);
INSERT INTO customers VALUES (1, 'Asha', 'a@example.com'), (2, 'Ravi', 'r@example.com');
INSERT INTO orders VALUES (1, 1, 'open', 10, 'x', '2025-01-01'), (2, 2, 'done', 20, NULL, NULL);
INSERT INTO invoices VALUES (1, 1, 10);
INSERT INTO employees VALUES (1, NULL, 'Asha');
INSERT INTO salaries VALUES ('{CANARY}', 4711);
CREATE VIEW big_orders AS SELECT o.order_id, s.employee FROM orders AS o, salaries AS s;
"""
_POSTGRES = f"""
CREATE SCHEMA sales;
CREATE SCHEMA private;
CREATE TABLE sales.targets (region text, amount numeric);
CREATE TABLE private.orders (note text);
INSERT INTO private.orders VALUES ('{CANARY}');
CREATE SEQUENCE orders_seq;
CREATE FUNCTION evil() RETURNS integer LANGUAGE sql AS
    $$ INSERT INTO public.orders (order_id) VALUES (666) RETURNING order_id $$;
CREATE FUNCTION evil(orders) RETURNS integer LANGUAGE sql AS
    $$ DELETE FROM public.orders RETURNING order_id $$;
"""
_CONTENTS = """
SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1
"""
_CATALOGUES = (
    "SELECT array_agg((oid, relname, relkind)::text ORDER BY oid) FROM pg_class WHERE oid > 16383",
    "SELECT array_agg((oid, proname)::text ORDER BY oid) FROM pg_proc WHERE oid > 16383",
    "SELECT array_agg((rolname, rolsuper)::text ORDER BY rolname) FROM pg_roles",
    "SELECT array_agg((setdatabase, setconfig)::text ORDER BY setdatabase) FROM pg_db_role_setting",
    "SELECT count(*)::text FROM pg_largeobject_metadata",
    "SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory'",
    "SELECT (last_value, is_called)::text FROM orders_seq",
)


@pytest.fixture
def shop_file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(_COMMON)
    return path


@pytest.fixture
async def shop_admin(postgres_dsn: str) -> AsyncIterator[asyncpg.Connection]:
    async with provisioned(postgres_dsn, _COMMON + _POSTGRES, POSTGRES_TABLES) as connection:
        yield connection


@pytest.fixture
def shop_dsn(shop_admin: asyncpg.Connection, postgres_dsn: str) -> str:
    return as_reader(postgres_dsn)


async def test_mcp_db_alone_refuses_the_corpus_on_sqlite(shop_file: Path) -> None:
    await all_refused(
        "sqlite", DatabaseSettings(url=f"sqlite:///{shop_file}", allowed_tables=CORPUS_TABLES)
    )


async def test_mcp_db_alone_refuses_the_corpus_on_postgres(shop_dsn: str) -> None:
    await all_refused("postgres", DatabaseSettings(url=shop_dsn, allowed_tables=POSTGRES_TABLES))


async def test_sqlite_without_any_guard_keeps_its_data(shop_file: Path) -> None:
    before = _sqlite_digest(shop_file)
    backend = SqliteBackend(
        shop_file, tables=CORPUS_TABLES, functions=load_functions("sqlite").scalar, threads=2
    )

    async with aclosing(backend):
        answered = await run_unguarded(backend, hostile("sqlite"))

    assert _sqlite_digest(shop_file) == before
    assert left_behind() == []
    assert [statement for statement, rows in answered if CANARY in repr(rows)] == []


async def test_postgres_without_guard_is_kept(
    shop_dsn: str, shop_admin: asyncpg.Connection
) -> None:
    before = await _postgres_digest(shop_admin)
    backend = PostgresBackend(shop_dsn, default_schema="public", pool_size=2)

    async with aclosing(backend):
        answered = await run_unguarded(backend, hostile("postgres"))
        still_answers = await backend.query("SELECT count(*) FROM orders", BRIEF)

    assert await _postgres_digest(shop_admin) == before
    assert still_answers.rows == [[2]]
    assert left_behind() == []
    assert [statement for statement, rows in answered if CANARY in repr(rows)] == []


async def test_the_canary_would_be_seen(shop_admin: asyncpg.Connection) -> None:
    """The digest and the canary notice what the tests above look for."""
    before = await _postgres_digest(shop_admin)
    assert CANARY in repr(await shop_admin.fetch("SELECT * FROM big_orders"))
    await shop_admin.execute("UPDATE orders SET note = 'y' WHERE order_id = 1")

    assert await _postgres_digest(shop_admin) != before


def _sqlite_digest(file: Path) -> tuple[str, list[Path]]:
    """Every byte of the file, and the files beside it."""
    return hashlib.sha256(file.read_bytes()).hexdigest(), sorted(file.parent.iterdir())


async def _postgres_digest(admin: asyncpg.Connection) -> dict[str, Any]:
    """Contents of every table, and what there is in the catalogues."""
    digest = {query: await admin.fetchval(query) for query in _CATALOGUES}
    for row in await admin.fetch(_CONTENTS):
        digest[row[0]] = await admin.fetchval(
            f"SELECT md5(string_agg(t::text, ';' ORDER BY t::text)) FROM {row[0]} AS t"
        )
    return digest
