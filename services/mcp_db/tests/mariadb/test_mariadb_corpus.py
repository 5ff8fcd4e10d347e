"""The guard's statements against a real MariaDB.

With only mcp_db's guard on, every hostile one is refused. With no guard at all nothing is written,
no table that was not granted is read, and nothing runs longer than the time limit. Legitimate ones,
as the guard writes them, are understood.
"""

from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

import pytest
from mariadb_server import MariaDb, mariadb_database
from mcp_db_rig import (
    BRIEF,
    CANARY,
    CORPUS_TABLES,
    all_refused,
    guard_statements,
    hostile,
    left_behind,
    run_unguarded,
)

from bos_mcp_db.backends.backend import Limits
from bos_mcp_db.backends.mysql.backend import MySqlBackend
from bos_mcp_db.backends.mysql.session import parse_address
from bos_mcp_db.failures import QueryFailed
from bos_sqlguard import Guard, GuardPolicy

pytestmark = [pytest.mark.security, pytest.mark.timeout(600)]

_NO_SUCH_SYNTAX = "1064"

_SHOP = f"""\
CREATE TABLE customers (customer_id INT PRIMARY KEY, name TEXT, email TEXT, city TEXT);
CREATE TABLE orders (order_id INT PRIMARY KEY, customer_id INT, status TEXT, amount DECIMAL(12, 2),
    note TEXT, placed_on DATE, shipped_on DATE);
CREATE TABLE invoices (invoice_id INT PRIMARY KEY, order_id INT, customer_id INT, name TEXT,
    amount DECIMAL(12, 2), issued_on DATE);
CREATE TABLE products (product_id INT PRIMARY KEY, name TEXT, tags TEXT, attributes TEXT);
CREATE TABLE employees (employee_id INT PRIMARY KEY, manager_id INT, name TEXT);
CREATE TABLE salaries (employee TEXT, amount DECIMAL(12, 2));
INSERT INTO customers VALUES (1, 'Asha', 'a@example.com', 'Pune'), (2, 'Ravi', 'r@example.com', '');
INSERT INTO orders VALUES (1, 1, 'open', 10, 'x', '2025-01-01', NULL),
    (2, 2, 'done', 20, NULL, NULL, NULL);
INSERT INTO invoices VALUES (1, 1, 1, 'x', 10, '2025-01-01');
INSERT INTO employees VALUES (1, NULL, 'Asha');
INSERT INTO salaries VALUES ('{CANARY}', 4711);
CREATE VIEW big_orders AS SELECT o.order_id, s.employee FROM orders AS o, salaries AS s;
CREATE SEQUENCE s;
CREATE FUNCTION evil() RETURNS INT MODIFIES SQL DATA
    BEGIN INSERT INTO orders (order_id) VALUES (666); RETURN 1; END;
CREATE TABLE IF NOT EXISTS test.shared (a INT)
"""


def backend_of(mariadb: MariaDb, name: str) -> AbstractAsyncContextManager[MySqlBackend]:
    return aclosing(MySqlBackend(parse_address(mariadb.url(name)), default_schema=name))


@pytest.fixture
async def shop(mariadb: MariaDb) -> str:
    return await mariadb.provisioned(_SHOP, CORPUS_TABLES)


async def test_mcp_db_alone_refuses_the_corpus(mariadb: MariaDb, shop: str) -> None:
    await all_refused("mysql", mariadb_database(mariadb.url(shop), allowed_tables=CORPUS_TABLES))


async def test_without_any_guard_the_data_stay_as_they_are(mariadb: MariaDb, shop: str) -> None:
    before = await _digest(mariadb)

    async with backend_of(mariadb, shop) as backend:
        answered = await run_unguarded(backend, hostile("mysql"))
        still_answers = await backend.query("SELECT COUNT(*) FROM orders", BRIEF)

    assert await _digest(mariadb) == before
    assert still_answers.rows == [[2]]
    assert left_behind() == []
    assert [statement for statement, rows in answered if CANARY in repr(rows)] == []


async def test_the_canary_would_be_seen(mariadb: MariaDb, shop: str) -> None:
    """The digest and the canary notice what the test above looks for."""
    before = await _digest(mariadb)
    assert CANARY in repr(await mariadb.administer("SELECT * FROM big_orders", shop))
    await mariadb.administer("UPDATE orders SET note = 'y' WHERE order_id = 1", shop)

    assert await _digest(mariadb) != before


async def test_what_the_guard_writes_is_understood(mariadb: MariaDb, shop: str) -> None:
    guard = Guard(
        GuardPolicy("mysql", frozenset({*CORPUS_TABLES, "sales.targets"}), default_schema=shop)
    )
    written = [
        guard.check(each.replace("main.", f"{shop}.")).safe_sql
        for each in guard_statements("legitimate", "mysql")
    ]
    misread, answered = [], 0

    async with backend_of(mariadb, shop) as backend:
        for statement in written:
            try:
                await backend.query(statement, Limits(200, 50, 1_000_000, 30))
                answered += 1
            except QueryFailed as error:
                # Columns of the corpus are not all there; words must be.
                if error.sqlstate == _NO_SUCH_SYNTAX and "->" not in statement:
                    misread.append((statement, error.message))

    assert all(written)
    assert misread == []
    assert answered > 0.7 * len(written)


async def test_texts_mean_the_same_to_guard_and_server(mariadb: MariaDb, shop: str) -> None:
    texts = {
        r"'it''s'": "it's",
        r"'it\'s'": "it's",
        r"'a\\'": "a\\",
        r"'a\\\' OR 1 -- '": "a\\' OR 1 -- ",
        r"'50\% of x\_y'": "50\\% of x\\_y",
        r"'tab\tline\nnul\0sub\Zq\q'": "tab\tline\nnul\0sub\x1aqq",
        r'"say ""hi"" it' + "'" + r's"': 'say "hi" it\'s',
        r'"a\"b\\"': 'a"b\\',
        "'größe ‘’ \U0001f600'": "größe ‘’ \U0001f600",
        "'/*! x */ -- # ; `'": "/*! x */ -- # ; `",
    }
    guard = Guard(GuardPolicy("mysql", frozenset(CORPUS_TABLES), default_schema=shop))
    verdict = guard.check(f"SELECT {', '.join(texts)}")

    async with backend_of(mariadb, shop) as backend:
        found = await backend.query(verdict.safe_sql, BRIEF)

    assert found.rows == [list(texts.values())]


async def _digest(mariadb: MariaDb) -> dict[str, Any]:
    """Contents of every table but the server's statistics, and what there is besides."""
    tables = await mariadb.administer(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type ="
        " 'BASE TABLE' AND table_schema NOT IN ('information_schema', 'performance_schema')"
        " AND table_name NOT LIKE 'innodb\\_%' AND table_name NOT LIKE '%\\_log'"
    )
    names = ", ".join(f"`{schema}`.`{table}`" for schema, table in tables)
    digest: dict[str, Any] = {}
    for row in await mariadb.administer(f"CHECKSUM TABLE {names} EXTENDED"):
        digest[row[0]] = row[1]
    for query in (
        "SELECT routine_schema, routine_name FROM information_schema.routines ORDER BY 1, 2",
        "SELECT @@general_log, @@global.sql_mode, @@global.read_only, @@global.max_statement_time",
        "SELECT schema_name FROM information_schema.schemata ORDER BY 1",
        "SHOW PLUGINS",
    ):
        digest[query] = await mariadb.administer(query)
    return digest
