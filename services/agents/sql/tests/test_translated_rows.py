"""Translated queries on both databases return the same rows, including NULL and fractions."""

import sqlite3
from contextlib import closing
from typing import Any

import asyncpg

from bos_demo.expectations import same_rows
from bos_sql.dialects.translate import translate
from bos_sqlguard import Dialect, Guard, GuardPolicy

from .test_dialects import COLUMNS, SHOP

_CREATE = f"CREATE TABLE t ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())});"
_ROWS = """
INSERT INTO t VALUES
    (1, 5, 10.50, 0.5, '2026-01-31', '2026-01-31 10:00:00', 'Asha', TRUE),
    (2, -3, 4.00, 1.25, '2026-02-28', '2026-02-28 23:59:59', 'ravi', FALSE),
    (3, NULL, 3.00, NULL, NULL, NULL, NULL, NULL),
    (4, 7, NULL, 2.0, '2025-12-01', '2025-12-01 00:00:00', 'Mira B', TRUE),
    (5, 5, 0.00, 0.1, '2026-01-01', '2026-01-01 00:00:00', 'asha', FALSE);
"""

EVERYWHERE = """
SELECT id FROM t ORDER BY n DESC, id
SELECT id FROM t ORDER BY n, id LIMIT 2
SELECT id FROM t ORDER BY name, id LIMIT 2 OFFSET 1
SELECT name, SUM(net) AS s FROM t GROUP BY name ORDER BY s DESC, name
SELECT n / 2, n % 3 FROM t ORDER BY id
SELECT 100.0 * net / n FROM t ORDER BY id
SELECT ROUND(100.0 * n / 7, 2), ROUND(net / 3.0, 1), ROUND(net, 0) FROM t ORDER BY id
SELECT AVG(net), AVG(n), SUM(n), COUNT(n), MIN(name), MAX(d), COUNT(DISTINCT n) FROM t
SELECT COALESCE(SUM(net), 0), SUM(net) FROM t WHERE id > 99
SELECT name || '!', UPPER(name), SUBSTR(name, 1, 2), REPLACE(name, 'a', 'x') FROM t ORDER BY id
SELECT CASE WHEN n > 0 THEN 'p' ELSE 'q' END FROM t ORDER BY id
SELECT id FROM t WHERE n NOT IN (5, 7) ORDER BY id
SELECT id FROM t WHERE d >= '2026-01-01' AND d < '2026-02-01' ORDER BY id
SELECT id FROM t WHERE d BETWEEN '2026-01-01' AND '2026-01-31' ORDER BY id
SELECT id FROM t WHERE at >= '2026-01-01' AND at < '2026-02-01' ORDER BY id
SELECT id, ROW_NUMBER() OVER (ORDER BY n DESC, id), RANK() OVER (ORDER BY net) FROM t ORDER BY id
SELECT COUNT(*) FILTER (WHERE n > 0), SUM(CASE WHEN n > 0 THEN net ELSE 0 END) FROM t
SELECT DISTINCT n FROM t ORDER BY n
SELECT n FROM t EXCEPT SELECT id FROM t ORDER BY n
SELECT a.id FROM t a LEFT JOIN t b ON b.id = a.n ORDER BY a.id
SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM t u WHERE u.n = t.id) ORDER BY id
SELECT CAST(n AS TEXT), NULLIF(n, 5), ABS(n), net * n FROM t ORDER BY id
WITH r AS (SELECT n, COUNT(*) AS c FROM t GROUP BY n) SELECT n, c FROM r WHERE c > 1 ORDER BY n
SELECT n, COUNT(*) AS c FROM t GROUP BY n HAVING COUNT(*) > 1 ORDER BY n
""".strip().splitlines()
OF_POSTGRESQL = """
SELECT to_char(d, 'YYYY-MM') AS m, COUNT(*) FROM t GROUP BY 1 ORDER BY 1
SELECT d::date, at::date, n::float / 2 FROM t ORDER BY id
SELECT id FROM t WHERE ok ORDER BY id
SELECT id FROM t WHERE ok IS NOT TRUE ORDER BY id
SELECT id FROM t WHERE name ILIKE 'A%' ORDER BY id
SELECT id FROM t WHERE n IS DISTINCT FROM 5 ORDER BY id
SELECT position('a' in name), trunc(net) FROM t ORDER BY id
SELECT id FROM t ORDER BY n FETCH FIRST 2 ROWS ONLY
""".strip().splitlines()
OF_SQLITE = """
SELECT strftime('%Y-%m', d) AS m, COUNT(*) FROM t GROUP BY m ORDER BY m
SELECT CAST(strftime('%m', d) AS INTEGER), date(at) FROM t ORDER BY id
SELECT ifnull(n, 0), iif(n > 0, 1, 2), instr(name, 'a') FROM t ORDER BY id
SELECT 1.0 * n / 0, n / 0, CAST(n AS REAL) / 2 FROM t ORDER BY id
SELECT id FROM t WHERE n == 5 OR n IS 7 ORDER BY id
SELECT ROUND(SUM(net) * 100.0 / (SELECT SUM(net) FROM t), 1) FROM t
""".strip().splitlines()
CASES = [
    *((source, sql) for source in ("postgres", "sqlite") for sql in EVERYWHERE),
    *(("postgres", sql) for sql in OF_POSTGRESQL),
    *(("sqlite", sql) for sql in OF_SQLITE),
]


async def test_translated_queries_give_the_same_rows(postgres_dsn: str) -> None:
    connection = await asyncpg.connect(postgres_dsn)
    with closing(sqlite3.connect(":memory:")) as lite:
        lite.executescript(_CREATE + _ROWS)
        await connection.execute(_CREATE + _ROWS)

        async def rows(dialect: Dialect, sql: str) -> list[tuple[Any, ...]]:
            if dialect == "sqlite":
                return lite.execute(sql).fetchall()
            return [tuple(row) for row in await connection.fetch(sql)]

        differing = []
        for source, sql in CASES:
            target: Dialect = "sqlite" if source == "postgres" else "postgres"
            written = _translated(sql, source, target)
            own, found = await rows(source, sql), await rows(target, written)
            if not same_rows(own, found):
                differing.append((source, sql, written, own, found))
    await connection.close()

    assert differing == []


def _translated(sql: str, source: Dialect, target: Dialect) -> str:
    done = translate(sql, source, target, SHOP)
    assert done.withheld == "", sql
    verdict = Guard(GuardPolicy(target, frozenset({"t"}))).check(done.sql)
    assert verdict.is_safe, (sql, verdict.violations)
    return verdict.safe_sql
