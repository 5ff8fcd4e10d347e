"""Queries of the checks: which are asked in each dialect, all of them passed by the guard."""

import pytest

from bos_chassis.values import make_table
from bos_sql.checks.empty import empty_probes, is_empty
from bos_sql.checks.joins import fan_out, fan_out_probe, repeating_sources
from bos_sql.checks.reading import read_shapes
from bos_sql.checks.shape import Shape, is_aggregated, parsed
from bos_sql.checks.totals import totals_probe
from bos_sql.grounding.catalog import Catalog, Field, Join, Table
from bos_sqlguard import Dialect, Guard, GuardPolicy

DIALECTS: tuple[Dialect, ...] = ("postgres", "sqlite", "tsql")


def table(name: str, *columns: str) -> Table:
    """Table whose first column is its key."""
    first, *others = (Field(column, "integer") for column in columns)
    return Table(name, "table", (Field(first.name, "integer", key="primary key"), *others))


SHOP = Catalog(
    "shop",
    (
        table("orders", "order_id", "customer_id", "amount", "status"),
        table("lines", "line_id", "order_id", "quantity"),
        table("customers", "customer_id", "region_id", "city"),
        table("regions", "region_id", "name"),
    ),
    (Join("orders", ("customer_id",), "customers", ("customer_id",)),),
)
PER_REGION = """\
SELECT r.name, SUM(o.amount) AS total FROM orders o
JOIN customers c ON c.customer_id = o.customer_id
JOIN regions r ON r.region_id = c.region_id
WHERE o.status = 'open' GROUP BY r.name"""
REPEATED = """\
SELECT SUM(o.amount) AS total FROM orders o JOIN lines l ON l.order_id = o.order_id
WHERE l.quantity > 1"""


def shape(sql: str, dialect: Dialect = "postgres") -> Shape:
    (found,) = read_shapes(parsed(sql, dialect), dialect, SHOP)
    return found


def parts(sql: str, dialect: Dialect = "postgres") -> dict[str, Shape]:
    """Parts of a query by name; that of the query itself is empty."""
    return {each.part: each for each in read_shapes(parsed(sql, dialect), dialect, SHOP)}


def passed(sql: str, dialect: Dialect) -> str:
    """The query as the guard lets it run."""
    tables = frozenset(each.name for each in SHOP.tables)
    verdict = Guard(GuardPolicy(dialect, tables)).check(sql)
    assert verdict.is_safe, verdict.violations
    return verdict.safe_sql


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.requirement("D-13", "D-15")
def test_probes_of_every_check_pass_the_guard(dialect: Dialect) -> None:
    rows = make_table(["name", "total"], [["North", 1], ["South", 2]])
    breakdown, repeated = shape(PER_REGION, dialect), shape(REPEATED, dialect)
    totals, counts = totals_probe(breakdown, rows), fan_out_probe(repeated)
    assert totals is not None
    assert counts is not None
    probes = empty_probes(breakdown, 9)
    assert probes
    for query in (totals.query, counts, *(probe.query for probe in probes)):
        assert passed(query.sql(dialect=dialect), dialect)


def test_total_leaves_out_the_joins_that_only_name_groups() -> None:
    rows = make_table(["name", "total"], [["North", 1]])
    found = totals_probe(shape(PER_REGION), rows)
    assert found is not None
    assert found.query.sql() == (
        "SELECT SUM(o.amount) AS total_1 FROM orders AS o WHERE o.status = 'open'"
    )
    assert found.left_out == ("customers", "regions")
    filtered = PER_REGION.replace("o.status = 'open'", "c.city = 'Pune'")
    found = totals_probe(shape(filtered), rows)
    assert found is not None
    assert found.left_out == ("regions",)


@pytest.mark.parametrize(
    ("replaced", "is_probed"),
    [
        (("SUM(o.amount)", "COUNT(*)"), True),
        (("SUM(o.amount)", "ROUND(SUM(o.amount) / 1, 0)"), False),
        (("SUM(o.amount)", "AVG(o.amount)"), False),
        (("GROUP BY r.name", "GROUP BY ROLLUP (r.name)"), False),
        (("GROUP BY r.name", "GROUP BY r.name LIMIT 1"), False),
        (("GROUP BY r.name", "GROUP BY r.name LIMIT 20"), True),
        (("GROUP BY r.name", "GROUP BY r.name HAVING SUM(o.amount) > 10"), False),
    ],
)
def test_sums_and_counts_of_all_groups_have_a_total(
    replaced: tuple[str, str], is_probed: bool
) -> None:
    rows = make_table(["name", "total"], [["North", 1]])
    assert (totals_probe(shape(PER_REGION.replace(*replaced)), rows) is not None) == is_probed


@pytest.mark.parametrize("measured", ["COUNT(DISTINCT o.order_id)", "SUM(l.quantity)"])
def test_measures_that_repeated_rows_keep_are_not_probed(measured: str) -> None:
    assert fan_out_probe(shape(REPEATED.replace("SUM(o.amount)", measured))) is None


def test_tables_joined_without_their_key_repeat_rows() -> None:
    assert repeating_sources(shape(PER_REGION), "o") == []
    assert repeating_sources(shape(REPEATED), "o") == ["l"]
    assert repeating_sources(shape(REPEATED), "l") == []
    from_parent = "SELECT SUM(o.amount) AS total FROM customers c JOIN orders o USING (customer_id)"
    assert fan_out_probe(shape(from_parent)) is None
    in_where = REPEATED.replace("JOIN lines l ON", "CROSS JOIN lines l WHERE").replace(
        "\nWHERE", " AND"
    )
    assert fan_out_probe(shape(in_where)) is not None


@pytest.mark.parametrize(
    ("counts", "is_found"),
    [([5, 4], True), ([4, 4], False), ([0, 0], False), ([None, None], False), ([5], False)],
)
def test_more_joined_than_distinct_rows_are_a_fan_out(counts: list[object], is_found: bool) -> None:
    assert bool(fan_out(shape(REPEATED), counts)) == is_found


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT order_id FROM orders", False),
        ("SELECT order_id, (amount) FROM orders JOIN lines USING (order_id)", False),
        ("SELECT order_id FROM orders WHERE amount > (SELECT AVG(amount) FROM orders)", False),
        ("SELECT order_id, SUM(amount) OVER () FROM orders", False),
        ("SELECT status, COUNT(*) FROM orders GROUP BY status", True),
        ("SELECT DISTINCT status FROM orders", True),
        ("WITH t AS (SELECT SUM(amount) AS s FROM orders) SELECT * FROM t", True),
        ("SELECT (((", True),
    ],
)
def test_single_rows_are_distinguished_from_groups(sql: str, expected: bool) -> None:
    assert is_aggregated(parsed(sql, "postgres")) is expected


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "SELECT * FROM elsewhere",
        "SELECT * FROM orders, orders",
        "SELECT * FROM orders JOIN LATERAL (SELECT 1) AS t ON TRUE",
        "WITH RECURSIVE t AS (SELECT 1 AS n UNION SELECT n FROM t) SELECT * FROM t",
        "SELECT (((",
    ],
)
def test_unknown_lateral_and_recursive_queries_are_not_checked(sql: str) -> None:
    assert parts(sql) == {}


NESTED = """\
WITH per_order AS (
    SELECT o.order_id, o.customer_id, SUM(o.amount) AS amount
    FROM orders o JOIN lines l ON l.order_id = o.order_id
    WHERE l.quantity > 1 GROUP BY o.order_id, o.customer_id
), per_customer AS (
    SELECT customer_id, SUM(amount) AS amount FROM per_order GROUP BY 1
), everything AS (SELECT SUM(amount) AS amount FROM orders)
SELECT r.name, SUM(p.amount) AS total, MAX(e.amount) AS everything
FROM per_customer p
JOIN customers c ON c.customer_id = p.customer_id
JOIN (SELECT region_id, name FROM regions WHERE name <> 'x') r ON r.region_id = c.region_id
CROSS JOIN everything e GROUP BY r.name"""


@pytest.mark.parametrize("dialect", DIALECTS)
def test_ctes_and_subqueries_are_checked_from_the_outside(dialect: Dialect) -> None:
    found = parts(NESTED, dialect)
    assert list(found) == ["", "r", "everything", "per_customer", "per_order"]
    assert [table.name for table in found[""].tables.values()] == [
        "per_customer",
        "customers",
        "r",
        "everything",
    ]
    for each in found.values():
        for probe in empty_probes(each, 9):
            assert passed(probe.query.sql(dialect=dialect), dialect)
    repeated = fan_out_probe(found["per_order"])
    assert repeated is not None
    assert passed(repeated.sql(dialect=dialect), dialect)


def test_grouped_columns_are_the_key_of_a_part() -> None:
    found = parts(NESTED)
    assert repeating_sources(found[""], "p") == ["r"], "its rows have no known key"
    assert repeating_sources(found["per_order"], "o") == ["l"]
    by_group = NESTED.replace("SELECT region_id, name FROM", "SELECT DISTINCT region_id FROM")
    assert repeating_sources(parts(by_group)[""], "p") == []
    open_lists = NESTED.replace("WITH per_order AS", "WITH per_order (a, b, amount) AS")
    assert "per_customer" not in [
        table.name for table in parts(open_lists)["per_order"].tables.values()
    ]


@pytest.mark.parametrize(
    ("inner", "is_unique"),
    [
        ("SELECT order_id, COUNT(*) AS n FROM lines GROUP BY order_id", True),
        ("SELECT order_id AS o, COUNT(*) AS n FROM lines GROUP BY o", True),
        ("SELECT order_id AS o, quantity FROM lines GROUP BY o, 2", False),
        ("SELECT order_id, COUNT(*) AS n FROM lines GROUP BY 1", True),
        ("SELECT order_id, quantity FROM lines GROUP BY order_id, quantity", False),
        ("SELECT order_id FROM lines GROUP BY order_id, quantity", False),
        ("SELECT order_id, COUNT(*) AS n FROM lines GROUP BY ROLLUP (order_id)", False),
        ("SELECT DISTINCT order_id FROM lines", True),
        ("SELECT DISTINCT ON (quantity) order_id FROM lines", False),
        ("SELECT order_id FROM lines UNION SELECT order_id FROM orders", False),
        ("SELECT order_id FROM lines LIMIT 1", True),
        ("SELECT order_id FROM lines LIMIT 2", False),
        ("SELECT MAX(order_id) AS order_id FROM lines", True),
        ("SELECT MAX(order_id) OVER () AS order_id FROM lines", False),
    ],
)
def test_a_subquery_joined_by_its_key_repeats_no_rows(inner: str, is_unique: bool) -> None:
    column = "o" if " AS o," in inner else "order_id"
    sql = f"SELECT SUM(o.amount) FROM orders o JOIN ({inner}) t ON t.{column} = o.order_id"
    assert (repeating_sources(parts(sql)[""], "o") == []) is is_unique


def test_branches_of_set_operations_are_parts_with_their_ctes() -> None:
    sql = """\
WITH big AS (SELECT order_id, amount FROM orders WHERE amount > 5), other AS (SELECT 1 AS x)
SELECT SUM(amount) AS n FROM big WHERE amount < 9
UNION ALL SELECT SUM(quantity) FROM lines WHERE quantity > 3"""
    found = parts(sql)
    assert list(found) == ["part 1", "part 2", "big"]
    (probe,) = empty_probes(found["part 1"], 9)
    assert probe.query.sql() == (
        "WITH big AS (SELECT order_id, amount FROM orders WHERE amount > 5)"
        " SELECT 1 AS found FROM big LIMIT 1"
    )
    assert found["part 2"].ctes == ()
    assert found["big"].said("The join.") == "In big: the join."


def test_unknown_names_hide_a_part_but_not_the_others() -> None:
    sql = "WITH a AS (SELECT * FROM orders), b AS (SELECT order_id FROM orders) SELECT * FROM a, b"
    assert list(parts(sql)) == ["b", "a"], "the columns of a are not known by name"
    hidden = "WITH orders AS (SELECT * FROM nowhere) SELECT SUM(amount) FROM orders"
    assert parts(hidden) == {}, "the CTE hides the table"
    deep = "SELECT order_id FROM orders"
    for number in range(40):
        deep = f"SELECT order_id FROM ({deep}) AS t{number}"
    assert 0 < len(parts(deep)) <= 12
    wide = " UNION ALL ".join(["SELECT order_id FROM orders"] * 60)
    assert len(parts(wide)) <= 12


def test_both_ends_of_a_period_are_one_filter() -> None:
    found = shape("SELECT 1 FROM orders WHERE amount >= 1 AND amount < 5 AND status = 'x'")
    assert [each.text("postgres") for each in found.filters] == [
        "amount >= 1 and amount < 5",
        "status = 'x'",
    ]
    assert len(empty_probes(found, 9)) == 3
    assert len(empty_probes(found, 2)) == 2
    assert empty_probes(shape("SELECT order_id FROM orders"), 9) == []


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([], True),
        ([[0]], True),
        ([[None, 0]], True),
        ([[1]], False),
        ([["x"]], False),
        ([[0], [0]], False),
    ],
)
def test_no_rows_and_one_row_of_zeros_are_empty(cells: list[list[object]], expected: bool) -> None:
    width = len(cells[0]) if cells else 1
    names = [f"c{number}" for number in range(width)]
    assert is_empty(make_table(names, cells)) is expected
