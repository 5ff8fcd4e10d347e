"""Whether a query computes a named metric, judged on its syntax tree."""

from typing import Any

import pytest

from bos_demo.company import DEFAULT_TODAY
from bos_demo.dialects import DIALECTS
from bos_demo.questions import SqlStep, load_every_question
from bos_sql.grounding.catalog import Catalog, Metric, read_catalog
from bos_sql.grounding.curated import parse_curated
from bos_sql.semantics.agreement import disagreement
from bos_sql.semantics.naming import MetricNames

from .test_demo_company import company, index
from .wide_schema import described

__all__ = ["company", "index"]

METRICS = """
metrics:
  revenue:
    formula: SUM(sales.net)
    filters: [sales.state <> 'void']
    time: sales.sold_on
    dimensions: [shops, sales.channel]
    synonyms: [turnover, net sales]
    alternatives: [revenue by item]
  revenue by item:
    formula: SUM(items.amount)
    filters: [sales.state <> 'void']
    time: sales.sold_on
  margin:
    formula: SUM(items.amount) - SUM(items.pieces * items.cost)
  late sales:
    formula: SUM(CASE WHEN sales.paid_on > sales.due_on THEN 1 ELSE 0 END)
  rate of returns:
    formula: 100.0 * SUM(sales.returned) / SUM(sales.net)
"""
PLAIN = "SELECT SUM(net) AS revenue FROM sales WHERE state <> 'void'"
MAY = "sold_on >= '2026-05-01' AND sold_on < '2026-06-01'"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    tables = [
        described("shops", "shop_id int, city text"),
        described(
            "sales",
            "sale_id int, shop_id int, net numeric, gross numeric, returned numeric ?,"
            " state text, channel text, sold_on date, due_on date, paid_on date ?",
            shop_id=("shops", "shop_id"),
        ),
        described(
            "items",
            "item_id int, sale_id int, article text, amount numeric, pieces int, cost numeric",
            sale_id=("sales", "sale_id"),
        ),
        described("sales_targets", "target_id int, city text"),
        described("goals", "month date, amount numeric"),
    ]
    return parse_curated(METRICS).applied_to(read_catalog("shop", tables))


def _metric(catalog: Catalog, name: str) -> Metric:
    return next(each for each in catalog.metrics if each.name == name)


@pytest.mark.parametrize(
    "sql",
    [
        PLAIN,
        "SELECT ROUND(COALESCE(SUM(s.net), 0), 2) FROM sales AS s WHERE (NOT s.state = 'void')",
        "SELECT h.city, SUM(s.net) AS turnover FROM sales s JOIN shops h ON h.shop_id = s.shop_id"
        " WHERE 'void' <> s.state GROUP BY h.shop_id, h.city ORDER BY turnover DESC LIMIT 5",
        "SELECT shop_id FROM sales WHERE state <> 'void' GROUP BY shop_id ORDER BY SUM(net) DESC",
        "SELECT channel, SUM(net) FROM sales WHERE state <> 'void' GROUP BY 1 HAVING SUM(net) > 9",
        f"SELECT SUM(CASE WHEN {MAY} THEN net ELSE 0 END) AS may,"
        " SUM(net) FILTER (WHERE sold_on < '2026-05-01') AS before FROM sales"
        " WHERE state <> 'void'",
        "SELECT SUM(CASE WHEN state <> 'void' THEN net END) AS revenue FROM sales",
        "WITH m AS (SELECT sold_on AS d, net AS n FROM sales WHERE state <> 'void')"
        " SELECT d, SUM(n) AS revenue FROM m GROUP BY d",
        "WITH m AS (SELECT channel, SUM(net) AS r FROM sales WHERE state <> 'void'"
        " GROUP BY channel) SELECT channel, 100.0 * r / (SELECT SUM(r) FROM m) AS share FROM m",
        f"{PLAIN} AND channel = 'web' UNION ALL {PLAIN} AND channel = 'shop'",
        "SELECT sale_id, net FROM sales WHERE state <> 'void' ORDER BY net DESC LIMIT 3",
        # What the metric means at the grain of items, split by what sales do not have.
        "SELECT i.article, SUM(i.amount) AS revenue FROM items i JOIN sales s USING (sale_id)"
        " WHERE s.state <> 'void' GROUP BY i.article",
        "SELECT SUM(s.net) AS revenue, SUM(s.gross) AS with_tax FROM sales s"
        " WHERE s.state <> 'void'",
        "SELECT COUNT(*) AS sales, SUM(net) AS revenue, SUM(net) / COUNT(*) AS each_sale"
        " FROM sales WHERE state <> 'void'",
        f"{PLAIN} AND {MAY} AND paid_on > '2026-06-15' AND due_on < paid_on",
        "WITH r AS (SELECT date_trunc('month', sold_on) AS m, SUM(net) AS revenue FROM sales"
        f" WHERE state <> 'void' AND {MAY} GROUP BY 1), t AS (SELECT month, SUM(amount) AS target"
        " FROM goals WHERE month >= '2026-05-01' GROUP BY month)"
        " SELECT r.m, r.revenue, t.target FROM r JOIN t ON r.m = t.month",
        "SELECT SUM(s.net) AS revenue, SUM(s.net) FILTER (WHERE s.gross > 9) AS large FROM sales s"
        " WHERE s.state <> 'void'",
        # What is joined without dropping rows, or beside a sum of its own, narrows nothing.
        "SELECT SUM(s.net) AS revenue, SUM(i.n) AS x FROM sales s LEFT JOIN (SELECT sale_id,"
        " SUM(amount) AS n FROM items WHERE article = 'x' GROUP BY sale_id) i"
        " ON i.sale_id = s.sale_id WHERE s.state <> 'void'",
        "WITH r AS (SELECT channel, SUM(net) AS n FROM sales WHERE state <> 'void' GROUP BY 1)"
        " SELECT SUM(n) AS revenue, MAX(g.goal) FROM r CROSS JOIN"
        " (SELECT SUM(amount) AS goal FROM goals WHERE amount > 4) g",
        "SELECT s.channel, SUM(s.net) FROM sales s, goals g WHERE s.state <> 'void'"
        " AND date_trunc('month', s.sold_on) = g.month GROUP BY 1",
        "SELECT channel, COUNT(*) FROM sales WHERE state <> 'void' GROUP BY 1 ORDER BY SUM(net)",
        "SELECT SUM(net) FILTER (WHERE gross > 9) / SUM(net) AS share FROM sales"
        " WHERE state <> 'void'",
    ],
)
def test_queries_that_compute_the_metric_agree(catalog: Catalog, sql: str) -> None:
    assert disagreement(sql, "postgres", _metric(catalog, "revenue"), catalog) == ""


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT SUM(gross) AS revenue FROM sales WHERE state <> 'void'", "its result does not"),
        ("SELECT AVG(net) FROM sales WHERE state <> 'void'", "its result does not hold"),
        ("SELECT SUM(DISTINCT net) FROM sales WHERE state <> 'void'", "its result does not hold"),
        ("SELECT SUM(net * 2) FROM sales WHERE state <> 'void'", "its result does not hold"),
        ("SELECT SUM(net) AS revenue FROM sales", "leaves out a condition"),
        (
            "SELECT SUM(net) FROM sales WHERE state <> 'void' OR channel = 'web'",
            "leaves out a condition",
        ),
        (f"{PLAIN} AND due_on >= '2026-05-01'", "period is taken from sales.due_on"),
        (f"{PLAIN} AND gross > 100", "restricts it by sales.gross"),
        (
            "SELECT SUM(CASE WHEN gross > 100 THEN net END) FROM sales WHERE state <> 'void'",
            "restricts it by sales.gross",
        ),
        (
            "SELECT due_on, SUM(net) FROM sales WHERE state <> 'void' GROUP BY due_on",
            "period is taken from sales.due_on",
        ),
        (
            "SELECT returned, SUM(net) FROM sales WHERE state <> 'void' GROUP BY returned",
            "splits it by sales.returned",
        ),
        (
            "SELECT SUM(gross) AS revenue, SUM(net) AS net FROM sales WHERE state <> 'void'",
            "its column revenue is not",
        ),
        (
            "WITH m AS (SELECT gross AS net FROM sales WHERE state <> 'void')"
            " SELECT SUM(net) AS revenue FROM m",
            "its result does not hold",
        ),
        (
            f"{PLAIN} UNION ALL SELECT SUM(gross) AS revenue FROM sales WHERE state <> 'void'",
            "its column revenue is not",
        ),
        (
            "SELECT 1 AS one FROM shops WHERE 5 < (SELECT SUM(net) FROM sales)",
            "its result does not hold",
        ),
        *[
            (
                f"WITH big AS (SELECT sale_id FROM {of} GROUP BY sale_id{having}) SELECT"
                " SUM(s.net) AS revenue FROM sales s JOIN big b ON b.sale_id = s.sale_id"
                " WHERE s.state <> 'void'",
                f"restricts it by {column}",
            )
            for of, having, column in (
                ("sales WHERE gross > 1000", "", "sales.gross"),
                ("sales", " HAVING SUM(gross) > 1000", "sales.gross"),
                ("items WHERE article = 'x'", "", "items.article"),
            )
        ],
        (
            "WITH a AS (SELECT sale_id, SUM(net) AS n FROM sales WHERE state <> 'void'"
            " GROUP BY sale_id), b AS (SELECT sale_id FROM items WHERE article = 'x'"
            " GROUP BY sale_id) SELECT SUM(a.n) AS revenue FROM a JOIN b ON b.sale_id = a.sale_id",
            "restricts it by items.article",
        ),
        (
            "SELECT SUM(s.net) AS revenue FROM sales s, goals g WHERE s.state <> 'void'"
            " AND s.gross = g.amount * 2",
            "restricts it by goals.amount",
        ),
        (
            "SELECT SUM(s.net) AS revenue FROM sales s JOIN items i ON i.amount + 0 = s.gross"
            " WHERE s.state <> 'void'",
            "restricts it by items.amount",
        ),
        (f"{PLAIN} AND {MAY} AND paid_on IS NULL", "restricts it by sales.paid_on"),
        (f"{PLAIN} AND {MAY} AND NOT (paid_on IS NULL)", "restricts it by sales.paid_on"),
        (
            f"{PLAIN} AND sold_on IS NOT NULL AND due_on >= '2026-05-01'",
            "period is taken from sales.due_on",
        ),
        (f"{PLAIN} AND sold_on = due_on", "period is taken from sales.due_on"),
        (
            "SELECT SUM(CASE WHEN gross > 5 THEN net END) AS income, SUM(net) AS x FROM sales"
            " WHERE state <> 'void'",
            "name the one that is revenue so",
        ),
        *[
            (
                f"SELECT channel, {shown} AS income FROM sales WHERE state <> 'void'"
                f" GROUP BY 1 {hidden}",
                problem,
            )
            for shown, hidden, problem in (
                ("SUM(net) FILTER (WHERE gross > 5)", "ORDER BY SUM(net)", "by sales.gross"),
                ("SUM(gross)", "ORDER BY SUM(net)", "its result does not hold"),
                ("SUM(gross)", "HAVING SUM(net) > 9", "its result does not hold"),
            )
        ],
    ],
)
def test_queries_that_compute_other_values_do_not(catalog: Catalog, sql: str, problem: str) -> None:
    assert problem in disagreement(sql, "postgres", _metric(catalog, "revenue"), catalog)


@pytest.mark.parametrize(
    ("name", "sql", "agrees"),
    [
        ("margin", "SELECT SUM(amount - pieces * cost) FROM items", True),
        ("margin", "SELECT SUM(amount) - SUM(cost * pieces) AS margin FROM items", True),
        ("margin", "SELECT SUM(amount) - SUM(cost) FROM items", False),
        ("margin", "SELECT SUM(pieces * cost) - SUM(amount) FROM items", False),
        (
            "margin",
            "WITH s AS (SELECT amount - pieces * cost AS gain FROM items) SELECT SUM(gain) FROM s",
            True,
        ),
        (
            "margin",
            "SELECT SUM(amount - spent) FROM (SELECT amount, pieces * cost AS spent FROM items) s",
            True,
        ),
        (
            "margin",
            "WITH s AS (SELECT amount - GREATEST(pieces * cost, 0) AS gain FROM items)"
            " SELECT SUM(gain) FROM s",
            False,
        ),
        (
            "margin",
            "WITH s AS (SELECT amount - pieces / cost AS gain FROM items) SELECT SUM(gain) FROM s",
            False,
        ),
        ("late sales", "SELECT COUNT(*) FROM sales WHERE due_on < paid_on", True),
        ("late sales", "SELECT COUNT(*) FILTER (WHERE paid_on > due_on) FROM sales", True),
        ("late sales", "SELECT COUNT(CASE WHEN paid_on > due_on THEN 1 END) FROM sales", True),
        ("late sales", "SELECT COUNT(*) FROM sales WHERE paid_on >= due_on", False),
        (
            "late sales",
            "SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE paid_on > due_on) AS late_sales,"
            " COUNT(*) FILTER (WHERE paid_on > due_on) * 1.0 / COUNT(*) AS share FROM sales",
            True,
        ),
        ("late sales", "SELECT COUNT(*) AS late_sales FROM sales", False),
        ("rate of returns", "SELECT SUM(returned) * 100 / NULLIF(SUM(net), 0) FROM sales", True),
        ("rate of returns", "SELECT SUM(returned) / SUM(net) FROM sales", False),
        # A sale whose returns are NULL counts in one of these sums and not in the other.
        ("rate of returns", "SELECT 100 * SUM(returned / net) FROM sales", False),
    ],
)
def test_formulas_of_aggregates_agree(catalog: Catalog, name: str, sql: str, agrees: bool) -> None:
    assert (disagreement(sql, "postgres", _metric(catalog, name), catalog) == "") is agrees


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM " + "(SELECT * FROM " * 40 + "sales" + ") t" * 40,
        "WITH a0 AS (SELECT net AS n FROM sales)"
        + "".join(f", a{n} AS (SELECT n + n AS n FROM a{n - 1})" for n in range(1, 25))
        + " SELECT SUM(n) AS revenue FROM a24",
        "WITH RECURSIVE r AS (SELECT net AS n FROM sales UNION ALL SELECT n + 1 FROM r)"
        " SELECT SUM(n) AS revenue FROM r",
        "",
    ],
)
def test_queries_that_cannot_be_traced_do_not_agree(catalog: Catalog, sql: str) -> None:
    assert disagreement(sql, "postgres", _metric(catalog, "revenue"), catalog)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What was our REVENUE in May?", ["revenue"]),
        ("Turnovers per shop", ["revenue"]),
        ("net_sales of Pune against its margin", ["revenue", "margin"]),
        ("revenue by item", ["revenue by item"]),
        ("late sales", ["late sales"]),
        ("Which sales targets are there?", []),
        ("How many sales were there?", []),
        ("Is it a revenuer, or marginal?", []),
    ],
)
def test_metrics_are_named_by_whole_words(catalog: Catalog, text: str, expected: list[str]) -> None:
    assert [each.name for each in MetricNames(catalog).named(text)] == expected


STEPS = [
    (question, step)
    for question in load_every_question()
    for step in question.steps
    if isinstance(step, SqlStep)
]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_query_of_the_demo_computes_its_named_metrics(index: Any, dialect: Any) -> None:
    checked = 0
    for question, step in STEPS:
        said = f"{step.task}\n{question.question if len(question.steps) == 1 else ''}"
        for metric in index.metric_names.named(said):
            if metric.enforced:
                sql = step.query(dialect, DEFAULT_TODAY)
                assert disagreement(sql, dialect, metric, index.catalog) == "", question.id
                checked += 1
    assert checked >= 15
