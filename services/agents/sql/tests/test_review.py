"""The model's review of queries: when it is needed, and effects of corrections."""

import asyncio
from typing import Any

import pytest

from bos.agent.v1 import AgentInput
from bos_agentkit import AgentTask
from bos_demo.company import DEFAULT_TODAY
from bos_demo.dialogues import load_approved, load_followups
from bos_demo.questions import SqlStep, load_questions
from bos_sql.grounding.catalog import Catalog, Field, Join, Table
from bos_sql.model_calls import ModelCalls
from bos_sql.steps.replies import QueryReview
from bos_sql.steps.review_need import risks

from .conftest import FAILED, GOOD, MISSING_COLUMN, SUCCEEDED, StartHarness, draft, fixtures
from .test_demo_company import company

__all__ = ["company"]

pytestmark = pytest.mark.requirement("D-12", "D-13")


def table(name: str, *columns: str) -> Table:
    return Table(name, "table", tuple(Field(column, "integer") for column in columns))


SHOP = Catalog(
    "shop",
    (
        table("customers", "customer_id", "region_id", "name"),
        table("orders", "order_id", "customer_id", "amount"),
        table("regions", "region_id", "region"),
        table("stock", "warehouse", "product", "units"),
        table("moves", "warehouse", "product", "moved"),
    ),
    (
        Join("orders", ("customer_id",), "customers", ("customer_id",)),
        Join("customers", ("region_id",), "regions", ("region_id",)),
        Join("moves", ("warehouse", "product"), "stock", ("warehouse", "product")),
    ),
)
ON = "ON o.customer_id = c.customer_id"
PLAIN = [
    "SELECT COUNT(*) FROM orders",
    "SELECT SUM(amount) FROM orders WHERE customer_id IN (1, 2)",
    f"SELECT c.name, SUM(o.amount) FROM orders o JOIN customers c {ON} GROUP BY c.name",
    f"SELECT c.name FROM orders AS o INNER JOIN customers AS c {ON} AND o.amount > 5",
    "SELECT name FROM orders JOIN customers USING (customer_id)",
    f"SELECT c.name, (SELECT SUM(t.amount) FROM orders t) FROM orders o JOIN customers c {ON}",
    "SELECT y.n FROM (SELECT COUNT(*) AS n FROM orders) y",
    "WITH y AS (SELECT COUNT(*) AS n FROM orders) SELECT n FROM y",
    "SELECT m.moved FROM moves m JOIN stock s ON s.product = m.product"
    " AND m.warehouse = s.warehouse",
    "SELECT name FROM customers WHERE customer_id IN (SELECT customer_id FROM orders)",
]
RISKY = [
    (f"SELECT 1 FROM orders o JOIN customers c {ON} JOIN regions r ON r.region_id = c.region_id",
     "3 tables"),
    (f"SELECT 1 FROM customers c LEFT JOIN orders o {ON}", "an outer join"),
    ("SELECT 1 FROM orders o JOIN customers c ON o.order_id = c.customer_id", "known"),
    ("SELECT 1 FROM moves m JOIN stock s ON s.product = m.product", "known"),
    ("SELECT 1 FROM orders, customers", "known"),
    ("SELECT 1 FROM orders CROSS JOIN customers", "known"),
    ("SELECT 1 FROM orders a JOIN orders b ON a.order_id = b.customer_id", "known"),
    ("SELECT order_id FROM orders UNION ALL SELECT region_id FROM regions", "set operation"),
    ("SELECT SUM(amount) OVER (ORDER BY order_id) FROM orders", "window"),
    ("SELECT name FROM customers WHERE customer_id NOT IN (SELECT customer_id FROM orders)",
     "NOT IN"),
    ("SELECT name FROM customers c WHERE EXISTS (SELECT 1 FROM orders)", "EXISTS"),
    ("SELECT name, (SELECT SUM(amount) FROM orders o WHERE o.customer_id = c.customer_id)"
     " FROM customers c", "correlated"),
    ("SELECT name FROM customers WHERE (SELECT SUM(amount) FROM orders WHERE region_id = 1) > 5",
     "correlated"),
    ("SELECT (", "cannot be read"),
]  # fmt: skip


@pytest.mark.parametrize("sql", PLAIN)
def test_a_plain_query_needs_no_review(sql: str) -> None:
    assert risks(sql, "postgres", SHOP) == ()


@pytest.mark.parametrize(("sql", "risk"), RISKY)
def test_error_prone_queries_are_reviewed(sql: str, risk: str) -> None:
    assert any(risk in each for each in risks(sql, "postgres", SHOP))


def test_demo_questions_over_one_or_two_tables_are_not_reviewed(company: Catalog) -> None:
    questions = [*load_questions(), *load_followups(), *load_approved()]
    steps = [each for q in questions for each in q.steps if isinstance(each, SqlStep)]
    assert len(steps) > 30
    for step in steps:
        found = risks(step.query("postgres", DEFAULT_TODAY), "postgres", company)
        assert bool(found) == (len(step.tables) > 2), (step.task, found)


@pytest.mark.parametrize(
    ("settings", "drafted", "reviews"),
    [
        ({}, GOOD, 0),
        ({"review": "always"}, GOOD, 1),
        ({"review": "auto"}, {**GOOD, "assumptions": ["Amounts are in rupees"]}, 1),
        ({"review": "never"}, {**GOOD, "assumptions": ["Amounts are in rupees"]}, 0),
    ],
    ids=str,
)
async def test_review_is_a_setting(
    start: StartHarness, settings: dict[str, Any], drafted: dict[str, Any], reviews: int
) -> None:
    harness = await start(fixtures(drafted=drafted), settings=settings)

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    assert len(harness.prompts("QueryReview")) == reviews
    assert done.events("check_query")[0]["state"] == (
        "beside execute_query" if reviews else "skipped"
    )


def wrong(corrected: str | None) -> dict[str, Any]:
    return {"checks": "It is wrong.", "is_correct": False, "corrected_sql": corrected}


@pytest.mark.requirement("D-09", "D-13")
async def test_result_of_a_guarded_correction_is_used(start: StartHarness) -> None:
    corrected = "SELECT city FROM customers ORDER BY city"
    harness = await start(fixtures(review=wrong(corrected)), review="always")

    done = await harness.ask()

    assert done.data["sql"] == f"{corrected} LIMIT 201"
    assert [each["city"] for each in done.data["rows"]] == ["Agra", "Delhi", "Pune"]
    # The variants are those of the corrected query, in every dialect.
    assert done.data["sql_server"].startswith("SELECT TOP 201 city FROM customers")
    assert done.data["sql_postgres"].startswith("SELECT city FROM customers ORDER BY city")
    assert done.data["sql_sqlite"] == done.data["sql"]
    assert done.events("variants")[0]["withheld"] == {}
    assert done.data["attempt_history"][0]["query"] == done.data["sql"]
    assert len(done.events("safety_check")) == 2
    assert harness.queries() == 2


@pytest.mark.requirement("D-11")
@pytest.mark.parametrize(
    "corrected",
    [
        None,
        "true",
        "SELECT city FROM WHERE",
        "SELECT * FROM salaries",
        "SELECT colour FROM orders",
        GOOD["sql"],
        # Reads no table, or none of those of the query.
        "SELECT 'true' AS answer",
        "SELECT price FROM exact",
        # Empty result.
        "SELECT city FROM customers WHERE 1 = 0",
        "SELECT MAX(amount) AS most FROM orders WHERE order_id > 99",
    ],
)
async def test_invalid_corrections_are_ignored(start: StartHarness, corrected: str | None) -> None:
    harness = await start(fixtures(review=wrong(corrected)), review="always")

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    assert [row["city"] for row in done.data["rows"]] == ["Agra", "Pune", "Delhi"]
    assert "SUM(o.amount)" in done.data["sql"]
    assert len(done.data["attempt_history"]) == 1
    assert done.events("Review of the query")[0]["is_correct"] is False
    is_empty = " WHERE " in (corrected or "")
    event = "The corrected query found nothing; the first result stands"
    assert bool(done.events(event)) == is_empty


async def test_a_correction_replaces_a_query_that_the_database_refused(start: StartHarness) -> None:
    harness = await start(
        fixtures(drafted=MISSING_COLUMN, review=wrong(GOOD["sql"])), review="always"
    )

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    assert len(done.data["attempt_history"]) == 1
    assert harness.prompts("ErrorTriage") == []


async def test_a_failed_correction_is_the_failed_query(start: StartHarness) -> None:
    replies = fixtures(drafted=MISSING_COLUMN, review=wrong("SELECT colour FROM orders"))
    harness = await start(replies, review="always", max_attempts=1)

    done = await harness.ask()

    assert done.result.status == FAILED
    assert "no such column: colour" in done.result.error.message
    assert done.details["attempt_history"][0]["query"].startswith("SELECT colour")


@pytest.mark.parametrize(
    ("first", "corrected", "found"),
    [
        # Values in place of none, also in other rows; 0 is a value.
        ("SELECT name FROM customers WHERE city = 'Goa'", "SELECT COUNT(*) AS n FROM customers", 3),
        (GOOD["sql"], "SELECT COUNT(*) AS n FROM orders WHERE amount > 99", 0),
        # Both are empty: the corrected query is used.
        (
            "SELECT MAX(amount) AS n FROM orders WHERE order_id > 99",
            "SELECT MAX(amount) AS n FROM orders WHERE order_id > 98",
            None,
        ),
        # A query without tables puts no condition on those of its correction.
        ("SELECT 1 AS n", "SELECT COUNT(*) AS n FROM customers", 3),
    ],
)
async def test_a_correction_is_used_unless_it_alone_finds_nothing(
    start: StartHarness, first: str, corrected: str, found: int | None
) -> None:
    harness = await start(fixtures(drafted=draft(first), review=wrong(corrected)), review="always")

    done = await harness.ask()

    assert [row["n"] for row in done.data["rows"]] == [found]
    assert done.data["sql"].startswith(corrected)


async def test_without_a_review_the_guarded_query_stands(start: StartHarness) -> None:
    harness = await start(review="always")
    harness.model.knobs.prose_next(9, schema="QueryReview")

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    assert done.events("Review of the query")[0]["reviewed"] is False


class Slow:
    """A model that never replies."""

    tier = "standard"
    configured = True

    async def structured(self, *_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()


async def test_an_optional_call_ends_after_its_share_of_the_time() -> None:
    task = AgentTask(AgentInput(task="t"), timeout_s=1_000)

    reply = await ModelCalls(Slow(), task).optional([], QueryReview, share=0.0)  # type: ignore[arg-type]

    assert reply is None
    assert task.remaining_s() > 0


def test_the_names_of_a_query_are_case_insensitive() -> None:
    sql = "SELECT 1 FROM ORDERS O JOIN Customers C ON C.Customer_Id = O.CUSTOMER_ID"

    assert risks(sql, "sqlite", SHOP) == ()
