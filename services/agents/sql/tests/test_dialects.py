"""Translation of queries into other dialects, and withheld translations."""

from typing import Any

import pytest

from bos_sql.dialects.translate import translate
from bos_sql.grounding.catalog import Field, Table
from bos_testkit.scripted_model.replies import fixture

from .conftest import SUCCEEDED, StartHarness, draft, fixtures

pytestmark = pytest.mark.requirement("D-09", "D-15")

COLUMNS = {
    "id": "integer",
    "n": "integer",
    "net": "numeric(14, 2)",
    "share": "double precision",
    "d": "date",
    "at": "timestamp without time zone",
    "name": "text",
    "ok": "boolean",
}
SHOP = (Table("t", "table", tuple(Field(*each) for each in COLUMNS.items())),)
COUNTED = "SELECT name, COUNT(*) AS many FROM t GROUP BY name ORDER BY many DESC LIMIT 5"
# Source and target dialect, a query, and its translation; between PostgreSQL and SQLite they are
# run in test_translated_rows.py.
RIGHT = [
    ("postgres", "tsql", COUNTED,
     "SELECT TOP 5 name, COUNT_BIG(*) AS many FROM t GROUP BY name ORDER BY many DESC"),
    ("sqlite", "tsql", COUNTED,
     "SELECT TOP 5 name, COUNT_BIG(*) AS many FROM t GROUP BY name ORDER BY many DESC"),
    ("postgres", "duckdb", COUNTED,
     "SELECT name, COUNT(*) AS many FROM t GROUP BY name ORDER BY many DESC NULLS FIRST LIMIT 5"),
    ("duckdb", "postgres", COUNTED,
     "SELECT name, COUNT(*) AS many FROM t GROUP BY name ORDER BY many DESC NULLS LAST LIMIT 5"),
    ("postgres", "tsql", "SELECT to_char(d, 'YYYY-MM') AS m, SUM(net) AS s FROM t GROUP BY 1",
     "SELECT FORMAT(d, 'yyyy-MM') AS m, SUM(net) AS s FROM t GROUP BY FORMAT(d, 'yyyy-MM')"),
    ("postgres", "tsql", "SELECT to_char(d, 'YYYY-MM') AS m, SUM(net) AS s FROM t GROUP BY m",
     "SELECT FORMAT(d, 'yyyy-MM') AS m, SUM(net) AS s FROM t GROUP BY FORMAT(d, 'yyyy-MM')"),
    # SQL Server sorts NULL first and allows no alias within an expression.
    ("postgres", "tsql", "SELECT name, SUM(net) AS s FROM t GROUP BY name ORDER BY s DESC",
     "SELECT name, SUM(net) AS s FROM t GROUP BY name"
     " ORDER BY CASE WHEN (SUM(net)) IS NULL THEN 1 ELSE 0 END DESC, s DESC"),
    ("postgres", "tsql", "SELECT COUNT(*) FILTER (WHERE n > 1) AS c FROM t",
     "SELECT COUNT(IIF(n > 1, 1, NULL)) AS c FROM t"),
    ("sqlite", "tsql", "SELECT name || '!' AS s FROM t", "SELECT name + '!' AS s FROM t"),
    ("sqlite", "postgres", "SELECT group_concat(name) AS s FROM t",
     "SELECT STRING_AGG(name, ',') AS s FROM t"),
    ("postgres", "tsql", "SELECT AVG(net) AS a FROM t", "SELECT AVG(net) AS a FROM t"),
    ("postgres", "tsql", "SELECT EXTRACT(QUARTER FROM d) AS q FROM t",
     "SELECT DATEPART(QUARTER, d) AS q FROM t"),
    ("postgres", "tsql", "SELECT id FROM t WHERE ok", "SELECT id FROM t WHERE ok <> 0"),
]  # fmt: skip
BOTH = ("sqlite", "tsql")
OTHERS = ("postgres", "tsql")
# Queries by dialect, with the targets for which the translation is known to be wrong.
WRONG = [
    ("postgres", ("duckdb",), "SELECT upper(name) || 'x' FROM t", "not known to mean the same"),
    ("duckdb", BOTH, "SELECT id FROM t QUALIFY row_number() OVER (ORDER BY n) = 1", ""),
    ("postgres", BOTH, "SELECT d + INTERVAL '1 month' FROM t", "an interval"),
    ("postgres", BOTH, "SELECT d - 7 FROM t", "arithmetic with dates"),
    ("postgres", BOTH, "SELECT id FROM t WHERE d < now()", "the clock of another database"),
    ("sqlite", OTHERS, "SELECT id FROM t WHERE d < date('now')", "the clock of another database"),
    ("postgres", ("sqlite",), "SELECT date_trunc('month', d) FROM t", "the start of a period"),
    ("postgres", BOTH, "SELECT EXTRACT(DOW FROM d) FROM t", "a part of a date"),
    ("postgres", BOTH, "SELECT to_char(d, 'Mon YYYY') FROM t", "a format of dates or numbers"),
    ("postgres", BOTH, "SELECT age(d) FROM t", "a function that only one of the dialects has"),
    ("sqlite", OTHERS, "SELECT date(d, '+1 month') FROM t",
     "a function that only one of the dialects has"),
    ("sqlite", OTHERS, "SELECT strftime('%W', d) FROM t", "a format of dates or numbers"),
    ("postgres", BOTH, "SELECT DISTINCT ON (name) name, id FROM t ORDER BY name, id",
     "DISTINCT ON"),
    ("postgres", BOTH, "SELECT string_agg(DISTINCT name, ', ') FROM t",
     "a list of distinct texts"),
    ("sqlite", ("postgres",), "SELECT group_concat(id) FROM t",
     "a list of values that are no texts"),
    ("postgres", ("sqlite",), "SELECT id FROM t ORDER BY n FETCH FIRST 5 ROWS WITH TIES",
     "ties with the last row"),
    ("postgres", BOTH, "SELECT id FROM t WHERE name LIKE 'A%'", "LIKE"),
    ("sqlite", ("postgres",), "SELECT id FROM t WHERE name LIKE 'A%'", "LIKE"),
    ("postgres", ("tsql",), "SELECT id FROM t WHERE name ILIKE 'A%'", "ILIKE"),
    ("postgres", BOTH, "SELECT id FROM t WHERE name ~ '^A'", "a regular expression"),
    ("postgres", BOTH, "SELECT n > 1 AS large FROM t", "a condition used as a value"),
    ("sqlite", OTHERS, "SELECT SUM(n > 1) FROM t", "a condition used as a value"),
    ("sqlite", ("postgres",), "SELECT id FROM t WHERE n", "a value used as a condition"),
    ("sqlite", ("postgres",), "SELECT id FROM t WHERE ok = 1", "a truth value compared"),
    ("postgres", ("tsql",), "SELECT id FROM t WHERE ok IS TRUE", "IS TRUE"),
    ("postgres", ("sqlite",), "SELECT SUM(net) / COUNT(*) FROM t", "a division"),
    ("sqlite", OTHERS, "SELECT net / n FROM t", "a division"),
    ("postgres", ("tsql",), "SELECT AVG(n) FROM t", "an average of whole numbers"),
    ("postgres", ("tsql",), "SELECT n::numeric / 7 FROM t", "a decimal without places"),
    ("postgres", ("sqlite",), "SELECT n::numeric(9, 2) FROM t", "a decimal with places"),
    ("sqlite", ("postgres",), "SELECT ROUND(share, 2) FROM t", "rounding of a binary number"),
    ("sqlite", OTHERS, "SELECT MAX(n, id) FROM t", "the greatest of several values"),
    ("sqlite", OTHERS, "SELECT name, n, MAX(net) FROM t GROUP BY name",
     "columns that are not grouped"),
    ("postgres", ("tsql",), "SELECT name, SUM(net) FROM t GROUP BY id",
     "columns that are not grouped"),
    ("sqlite", OTHERS, "SELECT name, SUM(net) AS s FROM t GROUP BY name HAVING s > 1",
     "a condition on a column's new name"),
    ("postgres", BOTH, "SELECT lower(name) AS name, COUNT(*) FROM t GROUP BY name",
     "a group whose name means two things"),
    ("postgres", ("tsql",), "SELECT id FROM t JOIN t AS u USING (id)", "a join by common names"),
    ("postgres", ("tsql",), "SELECT id FROM t WHERE (id, n) IN (SELECT id, n FROM t)",
     "a comparison of rows"),
    ("postgres", ("tsql",), "SELECT id FROM t UNION SELECT n FROM t ORDER BY id",
     "a sorted set operation"),
    ("postgres", ("tsql",), "SELECT DISTINCT name FROM t ORDER BY name",
     "distinct rows in an order"),
    ("postgres", ("tsql",), "SELECT s.id FROM (SELECT id FROM t ORDER BY n) AS s",
     "a sorted subquery"),
    ("postgres", ("tsql",), "SELECT n || name FROM t", "joining what may be no text"),
    ("postgres", ("tsql",), "SELECT LENGTH(name) FROM t", "the length of a text"),
    ("postgres", ("sqlite",), "SELECT name, SUM(n) FROM t GROUP BY ROLLUP (name)", "subtotals"),
    ("postgres", BOTH, "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY n) FROM t",
     "percentiles"),
    ("postgres", BOTH, "SELECT id FROM t ORDER BY random()", "chance"),
    ("postgres", BOTH, "SELECT array_agg(id) FROM t", "arrays"),
    ("postgres", BOTH, "SELECT bool_and(ok) FROM t", "AND or OR over all rows"),
    ("postgres", BOTH, "SELECT at::timestamp FROM t WHERE n (", "cannot be translated"),
    # Each of these gave other rows.
    ("postgres", ("sqlite",), "SELECT SUBSTR(name, -2) FROM t", ""),
    ("sqlite", ("postgres",), "SELECT SUBSTR(name, -2) FROM t", ""),
    ("postgres", ("sqlite",), "SELECT id FROM t WHERE at <= '2026-01-01'", ""),
    ("sqlite", ("postgres",), "SELECT id FROM t WHERE at BETWEEN '2025-12-01' AND '2026-01-01'",
     ""),
    ("postgres", ("sqlite",), "SELECT CAST(net AS INTEGER) FROM t", ""),
    ("sqlite", ("postgres",), "SELECT CAST(share AS INTEGER) FROM t", ""),
    ("postgres", ("sqlite",), "SELECT CONCAT(name, n) FROM t", ""),
    ("postgres", ("sqlite",), "SELECT string_agg(name, ', ' ORDER BY name) FROM t", ""),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target", "sql", "expected"), RIGHT)
def test_a_query_is_translated(source: Any, target: Any, sql: str, expected: str) -> None:
    done = translate(sql, source, target, SHOP)

    assert (done.sql, done.withheld) == (expected, "")


@pytest.mark.parametrize(
    ("source", "target", "sql", "reason"),
    # The targets take turns: which of them a rule is about does not depend on the query.
    [
        (source, targets[at % len(targets)], sql, reason)
        for at, (source, targets, sql, reason) in enumerate(WRONG)
    ],
)
def test_wrong_translations_are_withheld(source: Any, target: Any, sql: str, reason: str) -> None:
    done = translate(sql, source, target, SHOP)

    assert done.sql == ""
    assert done.withheld
    assert done.withheld.startswith(reason)


def test_translation_of_a_deeply_nested_query_is_withheld() -> None:
    deep = "SELECT " + "(" * 3_000 + "1" + ")" * 3_000

    assert translate(deep, "postgres", "tsql", SHOP).withheld.startswith("cannot be translated")


@pytest.mark.requirement("T-04", "D-09", "D-16", "D-17")
async def test_variants_have_the_text_of_the_guard(start: StartHarness, url: str) -> None:
    harness = await start(fixtures(drafted=draft("SELECT city FROM customers")), url=url)

    done = await harness.ask()

    assert done.data["sql_postgres"] == "SELECT city FROM customers LIMIT 201"
    assert done.data["sql_server"] == "SELECT TOP 201 city FROM customers"
    assert done.data["sql_sqlite"] == "SELECT city FROM customers LIMIT 201"
    live = "sql_postgres" if url.startswith("postgres") else "sql_sqlite"
    assert done.data["sql"] == done.data[live]
    assert done.events("variants")[0]["withheld"] == {}


GLOB = "SELECT name FROM customers WHERE name GLOB 'A*'"


async def test_a_known_wrong_variant_is_withheld_with_its_reason(start: StartHarness) -> None:
    harness = await start(fixtures(drafted=draft(GLOB)))

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    assert done.data["row_count"] == 1
    assert (done.data["sql_postgres"], done.data["sql_server"]) == ("", "")
    assert done.events("variants")[0]["withheld"] == {
        "postgres": "a regular expression",
        "tsql": "a regular expression",
    }
    assert harness.prompts("DialectVariant") == []


async def test_the_model_may_write_variants_that_the_guard_passes(start: StartHarness) -> None:
    written = [
        fixture(name, [f"same query for {name}"], schema="DialectVariant", json={"sql": sql})
        for name, sql in {
            "PostgreSQL": "SELECT name FROM customers WHERE name ~ '^A'",
            "SQL Server": "SELECT employee FROM salaries",
        }.items()
    ]
    harness = await start(fixtures(*written, drafted=draft(GLOB)), variants="model")

    done = await harness.ask()

    assert done.data["row_count"] == 1
    assert "### Query\n<untrusted>\nSELECT name" in harness.prompts("DialectVariant")[0]
    assert done.data["sql_postgres"] == "SELECT name FROM customers WHERE name ~ '^A' LIMIT 201"
    assert done.data["sql_server"] == ""
    assert done.events("variants")[0]["withheld"] == {
        "tsql": "refused by the guard: TABLE_NOT_ALLOWED"
    }
    assert harness.queries() == 1


async def test_the_model_writes_no_variant_that_can_be_translated(start: StartHarness) -> None:
    harness = await start(variants="model")

    done = await harness.ask()

    assert done.data["sql_server"].startswith("SELECT TOP 3 c.city")
    assert harness.prompts("DialectVariant") == []


async def test_without_variants_only_the_query_that_ran_is_in_the_data(start: StartHarness) -> None:
    harness = await start(variants="none")

    done = await harness.ask()

    assert done.data["sql_sqlite"] == done.data["sql"]
    assert (done.data["sql_postgres"], done.data["sql_server"]) == ("", "")
    assert done.events("variants") == []
