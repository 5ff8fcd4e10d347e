"""The query by which a planner estimates what aggregates hold: what hostile conditions do to it."""

import pytest

from bos_sqlguard import Guard

pytestmark = pytest.mark.security

PAIRS = "SELECT array_agg(a.note) FROM orders AS a JOIN orders AS b ON"


@pytest.mark.parametrize(
    ("query", "left"),
    [
        (f"{PAIRS} a.status = b.status", "ON a.status = b.status"),
        (f"{PAIRS} lower(a.status) = trim(b.status)", "ON a.status = b.status"),
        (f"{PAIRS} length(a.status) = length(b.status)", "ON TRUE"),
        (f"{PAIRS} a.order_id * 0 = b.order_id * 0", "ON TRUE"),
        (f"{PAIRS} a.order_id = b.order_id + 0", "ON TRUE"),
        (f"{PAIRS} a.status = b.status AND a.amount < b.amount", "ON a.status = b.status"),
        (f"{PAIRS} a.status = b.status AND a.status = a.note", "ON a.status = b.status"),
        (f"{PAIRS} a.amount BETWEEN b.amount AND b.order_id", "ON TRUE"),
        (
            f"{PAIRS} a.status = b.status OR a.note = b.note",
            "a.status = b.status OR a.note = b.note",
        ),
        (f"{PAIRS} a.status = b.status OR length(a.note) = b.amount", "ON TRUE"),
        (f"{PAIRS} status = note", "ON TRUE"),
    ],
)
def test_joins_stay_where_columns_are_equal(
    query: str, left: str, guards: dict[str, Guard]
) -> None:
    assert _for_estimates(guards, query).partition(" LIMIT ")[0].endswith(left)


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("status = 'open' AND amount > 5", "status = 'open' AND amount > 5"),
        (
            "NOT (status IN ('a', 'b')) AND note IS NULL",
            "NOT (status IN ('a', 'b')) AND note IS NULL",
        ),
        ("amount BETWEEN 1 AND 5", "amount BETWEEN 1 AND 5"),
        ("placed_on >= now() - interval '3 days'", "placed_on >= now() - INTERVAL '3 DAYS'"),
        ("lower(status) = 'open'", "status = 'open'"),
        ("note LIKE '%x%'", "TRUE"),
        ("amount * 0 = 0", "TRUE"),
        ("amount = (SELECT 1)", "TRUE"),
        ("amount IN (SELECT 1)", "TRUE"),
        ("EXISTS (SELECT 1)", "TRUE"),
        ("random() < 2", "TRUE"),
        ("amount = 1 OR amount * 0 = 0", "TRUE"),
        ("status = status", "TRUE"),
    ],
)
def test_filters_stay_for_constants(condition: str, left: str, guards: dict[str, Guard]) -> None:
    query = f"SELECT string_agg(note, ',') FROM orders WHERE {condition}"
    assert _for_estimates(guards, query).partition(" WHERE ")[2].partition(" LIMIT ")[0] == left


@pytest.mark.parametrize(
    ("source", "is_stored"),
    [
        ("(SELECT order_id AS z FROM orders)", True),
        ("(SELECT order_id * 0 AS z FROM orders)", False),
        ("(SELECT * FROM orders)", False),
        ("(SELECT order_id AS z FROM orders UNION ALL SELECT amount FROM orders)", True),
        ("(SELECT order_id AS z FROM orders UNION ALL SELECT order_id * 0 FROM orders)", False),
        # A star stands for any number of columns: which one is the second is not known.
        (
            "(SELECT order_id AS y, amount AS z, amount AS x FROM orders UNION ALL"
            " SELECT p.*, o.amount FROM (SELECT amount * 0 AS a, amount * 0 AS b FROM orders) AS p"
            " JOIN orders AS o ON o.amount = p.a)",
            False,
        ),
        ("(SELECT x.z FROM (SELECT order_id AS z FROM orders) AS x)", True),
        ("(SELECT x.z FROM (SELECT order_id * 0 AS z FROM orders) AS x)", False),
        ("(SELECT customer_id AS z, count(*) AS n FROM orders GROUP BY customer_id)", True),
        ("(SELECT max(amount) AS z FROM orders GROUP BY customer_id)", False),
        ("(VALUES (1), (2))", False),
    ],
)
def test_columns_are_followed_to_tables(
    source: str, is_stored: bool, guards: dict[str, Guard]
) -> None:
    for query in (
        f"SELECT array_agg(o.note) FROM orders AS o JOIN {source} AS s ON o.order_id = s.z",
        f"WITH s AS {source} SELECT array_agg(o.note) FROM orders AS o JOIN s ON o.order_id = s.z",
    ):
        left = _for_estimates(guards, query)
        assert left.partition(" LIMIT ")[0].endswith("o.order_id = s.z") == is_stored, left


@pytest.mark.parametrize(
    "query",
    [
        "SELECT array_agg(o.note) FROM orders AS o"
        " JOIN (SELECT order_id AS z, amount * 0 AS y FROM orders) AS s(y, z) ON o.amount = s.z",
        "WITH s(y, z) AS (SELECT order_id AS z, order_id * 0 FROM orders)"
        " SELECT array_agg(o.note) FROM orders AS o JOIN s ON o.order_id = s.z",
        "WITH s AS (SELECT order_id AS z, order_id * 0 AS y FROM orders)"
        " SELECT array_agg(o.note) FROM orders AS o JOIN s AS t(y, z) ON o.order_id = t.z",
    ],
)
def test_another_name_does_not_make_a_column_stored(query: str, guards: dict[str, Guard]) -> None:
    assert "ON TRUE" in _for_estimates(guards, query)


def test_what_keeps_nothing_of_tables_has_no_estimate(guards: dict[str, Guard]) -> None:
    for query in (
        "SELECT count(*), max(note) FROM orders",
        "SELECT array_agg(g) FROM generate_series(1, 9) AS g",
    ):
        assert guards["postgres"].check(query).kept is None
    kept = guards["postgres"].check("SELECT array(SELECT repeat(note, 3) FROM orders)").kept
    assert kept is not None
    assert (kept.lists, kept.copies) == (True, 3)
    having = "SELECT status, array_agg(note) FROM orders GROUP BY status HAVING"
    assert "HAVING TRUE" in _for_estimates(guards, f"{having} count(*) * 0 = 0")
    # There the aggregate is, so it stays.
    assert "string_agg" in _for_estimates(guards, f"{having} length(string_agg(note, '')) > 1")


def _for_estimates(guards: dict[str, Guard], query: str) -> str:
    verdict = guards["postgres"].check(query)
    assert verdict.kept is not None, verdict
    return verdict.kept.query
