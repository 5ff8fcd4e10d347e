"""The SQL agent in front of a real MariaDB: `make test-mariadb`."""

import sqlite3
from contextlib import closing
from typing import Any

import asyncmy
import asyncpg
import pytest
from mariadb_server import PASSWORD, READER, MariaDb, mariadb

from bos_demo.expectations import same_rows
from bos_sql.dialects.translate import translate
from bos_sql.grounding.catalog import Field, Table
from bos_sqlguard import Dialect, Guard, GuardPolicy

from .conftest import SUCCEEDED, StartHarness, draft, fixtures
from .test_translated_rows import EVERYWHERE

__all__ = ["mariadb"]

_SHOP = """\
CREATE TABLE customers (customer_id INT PRIMARY KEY, name TEXT NOT NULL, city VARCHAR(40) NOT NULL)
    COMMENT 'Who buys';
CREATE TABLE orders (
    order_id INT PRIMARY KEY, customer_id INT NOT NULL, amount DECIMAL(12, 2) NOT NULL,
    FOREIGN KEY (customer_id) REFERENCES customers (customer_id)
);
CREATE TABLE salaries (employee TEXT, salary DECIMAL(12, 2));
INSERT INTO customers VALUES (1, 'Asha', 'Pune'), (2, 'Ravi', 'Delhi'), (3, 'Mira', 'Agra');
INSERT INTO orders VALUES (1, 1, 10.10), (2, 1, 20.20), (3, 2, 5), (4, 3, 40.40)
"""
TABLES = ("customers", "orders")
PER_CITY = """\
SELECT c.city, GROUP_CONCAT(o.amount ORDER BY o.amount SEPARATOR ' + ') AS amounts,
    SUM(o.amount) AS total
FROM orders AS o JOIN customers AS c ON c.customer_id = o.customer_id
GROUP BY c.city ORDER BY total DESC"""


@pytest.fixture
async def shop_url(mariadb: MariaDb) -> str:
    return mariadb.url(await mariadb.provisioned(_SHOP, TABLES))


@pytest.mark.requirement("D-09", "D-19")
async def test_answers_are_in_the_dialect_of_the_server(start: StartHarness, shop_url: str) -> None:
    harness = await start(fixtures(drafted=draft(PER_CITY)), url=shop_url, tables=TABLES)

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    assert [(row["city"], row["amounts"]) for row in done.data["rows"]] == [
        ("Agra", "40.40"),
        ("Pune", "10.10 + 20.20"),
        ("Delhi", "5.00"),
    ]
    assert done.data["sql"] == done.data["sql_mysql"]
    assert {source.title for source in done.result.sources} == set(TABLES)
    assert "MySQL (or MariaDB) database" in harness.prompts("QueryDraft")[0]
    # The list in a text has no counterpart that is known to be the same.
    assert done.data["sql_postgres"] == done.data["sql_sqlite"] == done.data["sql_server"] == ""
    assert set(done.events("variants")[0]["withheld"]) == {"postgres", "sqlite", "tsql"}


@pytest.mark.requirement("D-15", "D-18")
async def test_an_unlisted_table_is_never_queried(start: StartHarness, shop_url: str) -> None:
    hostile = "SELECT city /*! , (SELECT employee FROM salaries) */ FROM customers"
    harness = await start(fixtures(drafted=draft(hostile)), url=shop_url, tables=TABLES)

    done = await harness.ask()

    assert done.result.error.type == "QueryError"
    assert harness.queries() == 0


_COLUMNS = {
    "id": ("integer", "INT"),
    "n": ("integer", "INT"),
    "net": ("numeric(14, 2)", "DECIMAL(14, 2)"),
    "share": ("double precision", "DOUBLE"),
    "d": ("date", "DATE"),
    "at": ("timestamp", "DATETIME"),
    "name": ("text", "VARCHAR(40) COLLATE utf8mb4_bin"),
}
_ROWS = """
INSERT INTO t VALUES
    (1, 5, 10.50, 0.5, '2026-01-31', '2026-01-31 10:00:00', 'Asha'),
    (2, -3, 4.00, 1.25, '2026-02-28', '2026-02-28 23:59:59', 'ravi'),
    (3, NULL, 3.00, NULL, NULL, NULL, NULL),
    (4, 7, NULL, 2.0, '2025-12-01', '2025-12-01 00:00:00', 'Mira B'),
    (5, 5, 0.00, 0.1, '2026-01-01', '2026-01-01 00:00:00', 'asha')
"""
_TABLES = (Table("t", "table", tuple(Field(name, each[0]) for name, each in _COLUMNS.items())),)
OF_MYSQL = [
    *EVERYWHERE,
    "SELECT `name`, IFNULL(n, 0) FROM t ORDER BY name DESC, id",
    "SELECT id FROM t WHERE n > 3 && net > 1 || id = 3 ORDER BY id",
    "SELECT IF(n > 3, 'a', 'b') AS x, id FROM t ORDER BY id",
    "SELECT id FROM t ORDER BY n, id LIMIT 1, 2",
]


def _create(place: int) -> str:
    return (
        f"CREATE TABLE t ({', '.join(f'{name} {each[place]}' for name, each in _COLUMNS.items())});"
    )


async def test_translated_queries_give_the_same_rows(postgres_dsn: str, mariadb: MariaDb) -> None:
    """To MariaDB and from it; what is withheld is not compared, and is less than half."""
    name = await mariadb.provisioned(f"{_create(1)}\n{_ROWS}", ["t"])
    server = asyncmy.Connection(
        host="127.0.0.1", port=mariadb.port, user=READER, password=PASSWORD, db=name
    )
    await server.connect()
    postgres = await asyncpg.connect(postgres_dsn)
    with closing(sqlite3.connect(":memory:")) as lite:
        lite.executescript(_create(0) + _ROWS)
        await postgres.execute(_create(0) + _ROWS)

        async def rows(dialect: Dialect, sql: str) -> list[tuple[Any, ...]]:
            if dialect == "sqlite":
                return lite.execute(sql).fetchall()
            if dialect == "postgres":
                return [tuple(row) for row in await postgres.fetch(sql)]
            cursor = server.cursor()
            await cursor.execute(sql)
            return list(await cursor.fetchall())

        differing, compared = [], 0
        pairs: list[tuple[Dialect, Dialect, list[str]]] = [
            ("postgres", "mysql", EVERYWHERE),
            ("sqlite", "mysql", EVERYWHERE),
            ("mysql", "postgres", OF_MYSQL),
            ("mysql", "sqlite", OF_MYSQL),
        ]
        for source, target, queries in pairs:
            for sql in queries:
                done = translate(sql, source, target, _TABLES)
                if done.withheld:
                    continue
                verdict = Guard(GuardPolicy(target, frozenset({"t"}))).check(done.sql)
                own, found = await rows(source, sql), await rows(target, verdict.safe_sql)
                compared += 1
                if not same_rows(own, found):
                    differing.append((source, sql, verdict.safe_sql, own, found))
    await postgres.close()
    server.close()

    assert differing == []
    assert compared > 50
