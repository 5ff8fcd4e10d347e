"""Checks of results on real databases: cut rows, repeated rows, totals, empty results."""

from typing import Any

import pytest

from bos.common.v1 import OUTCOME_PARTLY
from bos_chassis.values import table_rows
from bos_testkit.postgres import PostgresServer
from bos_testkit.scripted_model.replies import Fixture, fixture

from .conftest import (
    POSTGRES_SCHEMA,
    SUCCEEDED,
    TOTALS,
    Outcome,
    StartHarness,
    draft,
    fixtures,
    shared_database,
)

ORDERS = "SELECT order_id, amount FROM orders ORDER BY order_id"
PER_CITY = (
    "SELECT city, SUM(amount) AS total FROM orders JOIN customers USING (customer_id) GROUP BY city"
)
LINES = """
CREATE TABLE lines (
    line_id integer PRIMARY KEY,
    order_id integer NOT NULL REFERENCES orders (order_id),
    quantity integer NOT NULL
);
INSERT INTO lines VALUES (1, 1, 5), (2, 1, 1), (3, 2, 2), (4, 3, 7), (5, 4, 3);
CREATE TABLE carriers (carrier_id integer PRIMARY KEY, name text NOT NULL);
INSERT INTO carriers VALUES (1, 'Konkan');
ALTER TABLE orders ADD COLUMN carrier_id integer REFERENCES carriers (carrier_id);
UPDATE orders SET carrier_id = 1 WHERE order_id < 4;
CREATE TABLE empty_notes (note text);
INSERT INTO customers SELECT n, 'N' || n, 'Pune' FROM generate_series(10, 60) AS n;
ANALYZE customers;
"""
WIDE = ("customers", "orders", "lines", "carriers", "empty_notes")
AMOUNTS = """\
SELECT c.city, SUM(o.amount) AS total FROM orders o
JOIN customers c ON c.customer_id = o.customer_id
JOIN lines l ON l.order_id = o.order_id GROUP BY c.city"""
PER_CARRIER = """\
SELECT k.name, SUM(o.amount) AS total FROM orders o
JOIN carriers k ON k.carrier_id = o.carrier_id GROUP BY k.name"""
FANNED_IN_A_CTE = """\
WITH amounts AS (
    SELECT o.customer_id, SUM(o.amount) AS total FROM orders o
    JOIN lines l ON l.order_id = o.order_id GROUP BY o.customer_id
) SELECT c.city, SUM(a.total) AS total FROM amounts a
JOIN customers c ON c.customer_id = a.customer_id GROUP BY c.city"""
FANNED_OVER_A_CTE = """\
WITH amounts AS (SELECT customer_id, SUM(amount) AS total FROM orders GROUP BY customer_id)
SELECT c.city, SUM(a.total) AS total FROM amounts a
JOIN customers c ON c.customer_id = a.customer_id
JOIN orders o ON o.customer_id = c.customer_id GROUP BY c.city"""


@pytest.fixture(scope="session")
def wide_url(postgres_server: PostgresServer) -> str:
    """PostgreSQL with lines that repeat orders, carriers that one order lacks, an empty table."""
    return shared_database(postgres_server, "sql_wide", POSTGRES_SCHEMA + LINES)


def rewritten(sql: str, *asked: str) -> Fixture:
    """The model's reply to a query that is to be rewritten."""
    return fixture("rewritten", ["The query ran", *asked], schema="QueryDraft", json=draft(sql))


def outcomes(done: Outcome) -> dict[str, str]:
    """What each check found."""
    return {each["check"]: each["found"] for each in done.data["checks"]}


@pytest.mark.requirement("D-16", "T-08")
async def test_rows_beyond_the_limit_are_asked_for_as_totals(start: StartHarness, url: str) -> None:
    replies = fixtures(rewritten(f"{TOTALS} LIMIT 2", "single rows"), drafted=draft(ORDERS))
    harness = await start(replies, url=url, max_rows=3)

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    assert [row["city"] for row in table_rows(done.result.table)] == ["Agra", "Pune"]
    assert done.data["execution_stats"]["aggregated"] is True
    assert "SUM" in done.data["sql"]
    assert not done.result.caveats
    (event,) = done.events("Rewrote the query after a check")
    assert event["state"] == "used"
    _, asked = harness.prompts("QueryDraft")
    assert "SELECT order_id, amount FROM orders ORDER BY order_id LIMIT 4" in asked


@pytest.mark.parametrize(
    "another",
    ["DELETE FROM orders", "SELECT nothing FROM orders", "SELECT amount FROM orders", ""],
    ids=["blocked", "refused by the database", "rows again", "no query"],
)
@pytest.mark.requirement("D-16")
async def test_rows_that_stay_cut_have_a_caveat(start: StartHarness, another: str) -> None:
    replies = fixtures(rewritten(another), drafted=draft(ORDERS))
    harness = await start(replies, max_rows=3)

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    assert [row["order_id"] for row in table_rows(done.result.table)] == [1, 2, 3]
    assert done.data["execution_stats"]["aggregated"] is False
    assert done.result.outcome == OUTCOME_PARTLY
    (caveat,) = done.result.caveats
    assert caveat.startswith("Only the first 3 rows were read")
    assert "Ask for totals" in caveat
    assert done.result.answer.endswith(caveat)
    assert len(harness.prompts("QueryDraft")) == 2


@pytest.mark.parametrize(
    ("settings", "asked"),
    [
        ({"max_rows": 5}, {}),
        ({"max_rows": 3}, {"max_rows": 3}),
        ({"max_rows": 3, "aggregate_first": False}, {}),
    ],
)
@pytest.mark.requirement("D-16")
async def test_rows_within_what_was_wanted_are_not_asked_for_anew(
    start: StartHarness, settings: dict[str, Any], asked: dict[str, int]
) -> None:
    harness = await start(fixtures(drafted=draft(ORDERS)), **settings)

    done = await harness.ask(**asked)

    assert not done.result.caveats
    assert len(harness.prompts("QueryDraft")) == 1


async def test_a_join_that_repeats_rows_is_rewritten(start: StartHarness, wide_url: str) -> None:
    replies = fixtures(rewritten(TOTALS, "repeats rows"), drafted=draft(AMOUNTS))
    harness = await start(replies, url=wide_url, tables=WIDE)

    done = await harness.ask()

    totals = {row["city"]: str(row["total"]) for row in table_rows(done.result.table)}
    assert totals == {"Pune": "30.30", "Delhi": "5.00", "Agra": "40.40"}
    assert not done.result.caveats
    assert outcomes(done) == {"totals": ""}


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        (
            AMOUNTS,
            "The join with lines repeats rows of orders: 4 of them are counted 5 times, so that"
            " totals and averages over them may be wrong.",
        ),
        (FANNED_IN_A_CTE, "In amounts: the join with lines repeats rows of orders: 4 of them"),
        (FANNED_OVER_A_CTE, "The join with orders repeats rows of amounts: 3 of them are"),
    ],
    ids=["query", "inside a CTE", "over a CTE"],
)
async def test_repeated_rows_that_stay_are_stated_with_their_counts(
    start: StartHarness, wide_url: str, sql: str, found: str
) -> None:
    replies = fixtures(rewritten(sql), drafted=draft(sql))
    harness = await start(replies, url=wide_url, tables=WIDE)

    done = await harness.ask(is_final_answer=True)

    (caveat,) = done.result.caveats
    assert caveat.startswith(found)
    assert done.result.answer == f"Agra leads. {caveat}"


async def test_joins_that_repeat_nothing_have_no_caveat(start: StartHarness, wide_url: str) -> None:
    sql = AMOUNTS.replace("GROUP BY", "WHERE o.order_id <> 1 GROUP BY")
    harness = await start(fixtures(drafted=draft(sql)), url=wide_url, tables=WIDE)

    done = await harness.ask()

    assert not done.result.caveats
    assert len(harness.prompts("QueryDraft")) == 1


async def test_breakdown_that_lacks_rows_has_a_caveat(start: StartHarness, wide_url: str) -> None:
    harness = await start(fixtures(drafted=draft(PER_CARRIER)), url=wide_url, tables=WIDE)

    done = await harness.ask()

    assert list(done.result.caveats) == [
        "total adds up to 35.3 over these rows, but to 75.7 in total: some rows have no match in "
        "carriers and are left out here."
    ]


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        (PER_CARRIER.replace("JOIN carriers", "LEFT JOIN carriers"), {}),
        (PER_CITY.replace("SUM(amount)", "ROUND(SUM(amount), 0)"), {"totals": ""}),
    ],
)
async def test_breakdowns_that_add_up_are_reconciled(
    start: StartHarness, wide_url: str, sql: str, found: dict[str, str]
) -> None:
    harness = await start(fixtures(drafted=draft(sql)), url=wide_url, tables=WIDE)

    done = await harness.ask()

    assert outcomes(done) == found
    assert not done.result.caveats
    assert harness.queries("ok") == 1 + len(found)


async def test_cut_groups_are_stated_with_the_total(start: StartHarness, wide_url: str) -> None:
    replies = fixtures(drafted=draft(f"{PER_CITY} ORDER BY city"))
    harness = await start(replies, url=wide_url, tables=WIDE, max_rows=2)

    done = await harness.ask()

    (caveat,) = done.result.caveats
    assert caveat == "total adds up to 45.4 over these rows, and to 75.7 over all."


WHERE = "SELECT name, amount FROM orders JOIN customers USING (customer_id) WHERE"


@pytest.mark.parametrize(
    ("sql", "explained"),
    [
        (f"{WHERE} city = 'Agra' AND amount < 9", "The filters “city = 'Agra'” and “amount < 9”"),
        (f"{WHERE} city = 'Goa' AND amount > 1", "The filter “city = 'Goa'” removes all rows: wi"),
        (
            f"{WHERE} orders.amount > 1 AND orders.amount + 0 < 2",
            "The filter “orders.amount > 1 and orders.amount + 0 < 2” removes all rows of",
        ),
        (
            f"{WHERE} city = 'Goa' AND amount > 50 AND name = 'Asha'",
            "No single filter removes all rows, but several of them together do.",
        ),
        (f"{WHERE} LOWER(city) = 'goa'", "The filter “LOWER(city) = 'goa'” removes all rows of"),
        ("SELECT SUM(amount) AS n FROM orders WHERE order_id = 99 AND amount > 1", "The filter"),
        (f"{PER_CITY} HAVING SUM(amount) > 1000", "Rows match the filters, but no group"),
        ("SELECT note FROM empty_notes WHERE note = 'a'", "Without any filter there are no rows"),
        (
            "SELECT total FROM (SELECT SUM(amount) AS total, customer_id FROM orders"
            " GROUP BY customer_id) AS t WHERE total < 0",
            "The filter “total < 0” removes all rows of t.",
        ),
        (
            "SELECT name FROM customers WHERE city = 'Goa' AND customer_id > 0"
            " UNION SELECT name FROM customers WHERE city = 'Diu' AND customer_id > 0",
            "In part 1: the filter “city = 'Goa'” removes all rows: without it",
        ),
        (
            "WITH a AS (SELECT customer_id FROM orders WHERE amount > 1), b AS (SELECT customer_id"
            " FROM customers WHERE city = 'Pune' AND customer_id < 0)"
            " SELECT customer_id FROM a INTERSECT SELECT customer_id FROM b",
            "In b: the filter “customer_id < 0” removes all rows: without it",
        ),
    ],
)
async def test_empty_result_is_explained_by_its_filter_or_part(
    start: StartHarness, wide_url: str, sql: str, explained: str
) -> None:
    harness = await start(fixtures(drafted=draft(sql)), url=wide_url, tables=WIDE)

    done = await harness.ask()

    assert done.result.status == SUCCEEDED, done.result.error
    (caveat,) = done.result.caveats
    assert caveat.startswith(explained)
    assert done.result.answer.endswith(caveat)
    assert harness.queries() <= 1 + 4


async def test_filters_without_match_name_known_values(start: StartHarness, wide_url: str) -> None:
    sql = "SELECT name FROM customers WHERE city = 'pune'"
    harness = await start(fixtures(drafted=draft(sql)), url=wide_url, tables=WIDE)

    done = await harness.ask()

    (caveat,) = done.result.caveats
    assert caveat.startswith("The filter “city = 'pune'” removes all rows of customers. Values of")
    assert "Pune" in caveat


@pytest.mark.parametrize(
    "settings",
    [
        {"check_queries": 0},
        {"check_empty": False},
        {"check_timeout_s": 0.01},
        {"check_joins": False, "check_totals": False},
    ],
    ids=str,
)
async def test_checks_take_no_query_where_none_may_run(
    start: StartHarness, wide_url: str, settings: dict[str, Any]
) -> None:
    empty = "SELECT name FROM customers WHERE city = 'Goa' AND name = 'Asha'"
    sql = AMOUNTS if "check_joins" in settings else empty
    harness = await start(fixtures(drafted=draft(sql)), url=wide_url, tables=WIDE, **settings)

    done = await harness.ask()

    assert done.data["checks"] == []
    assert not done.result.caveats
    assert harness.queries() == 1


async def test_number_of_probes_is_bounded(start: StartHarness) -> None:
    conditions = " AND ".join(f"order_id + {n} = 99" for n in range(8))
    sql = f"SELECT amount FROM orders WHERE customer_id = 9 AND amount > 1 AND {conditions}"
    harness = await start(fixtures(drafted=draft(sql)), check_queries=2)

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    assert harness.queries() == 3
