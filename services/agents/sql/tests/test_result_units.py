"""Units of results: those declared for the columns that a result is made of, and no others."""

from dataclasses import replace

import pytest

from bos_sql.grounding.catalog import Catalog, read_catalog
from bos_sql.grounding.curated import parse_curated
from bos_sql.semantics.units import result_units

from .wide_schema import described

pytestmark = pytest.mark.requirement("K-05")

CURATED = """
tables:
  sales:
    fields:
      net: {unit: EUR}
      weight: {unit: kg}
"""


def catalog() -> Catalog:
    columns = (
        "sale_id int, net numeric, weight numeric, amount numeric, fee_usd numeric, rate numeric"
    )
    tables = [
        described("sales", columns),
        described("items", "sale_id int, cost money, tax numeric"),
    ]
    found = parse_curated(CURATED).applied_to(read_catalog("shop", tables))
    comments = {"tax": "VAT in EUR", "rate": "in EUR"}
    commented = [
        replace(
            table,
            fields=tuple(
                replace(each, comment=comments.get(each.name, "")) for each in table.fields
            ),
        )
        for table in found.tables
    ]
    return replace(found, tables=tuple(commented))


def test_results_have_the_units_of_their_columns() -> None:
    known = catalog()
    wrong = {}
    for select, unit in (
        ("SUM(net)", "EUR"),
        ("ROUND(AVG(s.net), 2)", "EUR"),
        ("MAX(net) - MIN(net)", "EUR"),
        ("COALESCE(SUM(CASE WHEN rate > 1 THEN net END), 0)", "EUR"),
        ("CAST(net AS integer)", "EUR"),
        ("net + tax", "EUR"),
        ("SUM(weight)", "kg"),
        ("fee_usd", "USD"),
        ("SUM(cost)", "money"),
        ("SUM(amount)", ""),
        ("rate", ""),
        ("net + fee_usd", ""),
        ("net * rate", ""),
        ("net / weight", ""),
        ("net / 1000", ""),
        ("COUNT(net)", ""),
        ("100.0 * SUM(net) / SUM(tax)", ""),
        ("'net'", ""),
    ):
        sql = f"SELECT {select} AS answer FROM sales s JOIN items i ON i.sale_id = s.sale_id"
        found = result_units(sql, "postgres", known).get("answer", "")
        if found != unit:
            wrong[select] = found
    assert not wrong


def test_units_are_followed_through_subqueries_and_agree_over_unions() -> None:
    known = catalog()
    for sql, unit in (
        ("WITH t AS (SELECT SUM(net) AS n FROM sales) SELECT n AS answer FROM t", "EUR"),
        ("SELECT net AS answer FROM sales UNION ALL SELECT tax FROM items", "EUR"),
        ("SELECT net AS answer FROM sales UNION ALL SELECT fee_usd FROM sales", None),
        ("SELECT net AS answer FROM sales UNION ALL SELECT * FROM items", None),
        ("SELECT FROM WHERE", None),
    ):
        assert result_units(sql, "postgres", known).get("answer") == unit, sql
