"""Curated metadata: additions to the catalogue, and errors with their line."""

from dataclasses import replace
from pathlib import Path

import pytest

from bos_errors import ConfigurationError
from bos_sql.grounding.cache import MetadataIndexes
from bos_sql.grounding.catalog import Catalog, read_catalog
from bos_sql.grounding.curated import parse_curated, read_curated

from .test_grounding import shop

GOOD = """
tables:
  orders:
    description: Orders placed in the shop
    synonyms: [purchases]
    questions: ["What sells best?"]
    fields:
      netAmount:
        description: Without tax
        synonyms: [revenue]
metrics:
  turnover:
    formula: SUM(orders.netAmount)
    description: Without 'orders.tax'
joins:
  - on: orders.placed_on = weather.day
    description: The weather of that day
"""


@pytest.fixture
def catalog() -> Catalog:
    return read_catalog("shop", shop())


def test_a_file_adds_to_the_metadata_of_the_database(catalog: Catalog) -> None:
    enriched = parse_curated(GOOD).applied_to(catalog)

    orders = next(table for table in enriched.tables if table.name == "orders")
    assert orders.headline == (
        "orders (table, about 7 rows) (also: purchases): Orders placed in the shop"
    )
    assert orders.fields[3].text == "netAmount text (also: revenue): Without tax"
    assert orders.fields[0].text == "order_id text, primary key"
    assert [metric.tables for metric in enriched.metrics] == [("orders",)]
    assert enriched.joins[0].text == "orders.placed_on = weather.day: The weather of that day"
    assert enriched.joins[1:] == catalog.joins
    assert parse_curated("# nothing yet\n").applied_to(catalog) == catalog


def test_a_join_over_several_columns_is_one_join(catalog: Catalog) -> None:
    text = "joins:\n- on: orders.placed_on = weather.day AND orders.netAmount = weather.temperature"

    (first, *_) = parse_curated(text).applied_to(catalog).joins

    assert (first.columns, first.other_columns) == (
        ("placed_on", "netAmount"),
        ("day", "temperature"),
    )


def test_string_literals_in_a_formula_are_not_checked_as_fields(catalog: Catalog) -> None:
    text = "metrics: {sold: {formula: \"SUM(CASE WHEN orders.placed_on = 'a.b' THEN 1.5 END)\"}}"

    assert parse_curated(text).applied_to(catalog).metrics[0].tables == ("orders",)


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("tables:\n  order: {}\n", 2, "no table 'order'; did you mean orders?"),
        ("tables:\n  orders:\n    fields:\n      profit: {}\n", 4, "no field of orders 'profit'"),
        (
            "metrics:\n  m:\n    description: x\n    formula: SUM(orders.netAmont)\n",
            4,
            "no field of orders 'netAmont'; did you mean netAmount?",
        ),
        ("metrics:\n  m: {formula: COUNT(*)}\n", 2, "names no field"),
        ("joins:\n- on: orders.placed_on = weather.hour\n", 2, "no field of weather 'hour'"),
        ("joins:\n- on: orders.placed_on\n", 2, "write a.x = b.y"),
        (
            "joins:\n- on: orders.placed_on = weather.day AND customers.name = weather.day\n",
            2,
            "write a.x = b.y",
        ),
    ],
)
def test_unknown_names_have_their_line(
    catalog: Catalog, text: str, line: int, expected: str
) -> None:
    with pytest.raises(ConfigurationError) as failure:
        parse_curated(text).applied_to(catalog)

    assert f"BOS_SQL_METADATA_PATH, line {line}: " in failure.value.message
    assert expected in failure.value.message


METRIC = """metrics:
  turnover:
    formula: SUM(orders.netAmount)
    filters: ["orders.netAmount > 0"]
    time: orders.placed_on
    dimensions: [weather, orders.order_id]
    synonyms: [sold]
    alternatives: [count]
  count: {formula: COUNT(orders.order_id)}
"""


def test_a_metric_has_filters_time_dimensions_and_alternatives(catalog: Catalog) -> None:
    first, second = parse_curated(METRIC).applied_to(catalog).metrics

    assert first.enforced
    assert first.tables == ("orders",)
    assert first.text == (
        "turnover = SUM(orders.netAmount) (also: sold); where orders.netAmount > 0;"
        " period by orders.placed_on; split only by weather, orders.order_id"
    )
    assert second.text == "count = COUNT(orders.order_id)"
    hint = "metrics: {m: {formula: orders.netAmount over days, enforced: false}}"
    assert not parse_curated(hint).applied_to(catalog).metrics[0].enforced


@pytest.mark.parametrize(
    ("instead", "line", "expected"),
    [
        (("SUM(orders.netAmount)", "orders.netAmount"), 2, "aggregates nothing"),
        (("SUM(orders.netAmount)", "SUM(orders.netAmount) by day"), 2, "no SQL expression"),
        (("SUM(orders.netAmount)", "(SELECT SUM(orders.netAmount))"), 2, "fields alone"),
        (("netAmount > 0", "netAmount >"), 2, "no SQL expression"),
        (("orders.placed_on", "orders.placed"), 5, "no field of orders 'placed'"),
        (("weather,", "wether,"), 6, "no table ''"),
        (("[count]", "[counts]"), 8, "no metric 'counts'; did you mean count?"),
        (("[sold]", "[Counts]"), 9, "another metric is called 'count', too"),
    ],
)
def test_a_metric_that_cannot_be_compared_is_refused(
    catalog: Catalog, instead: tuple[str, str], line: int, expected: str
) -> None:
    with pytest.raises(ConfigurationError) as failure:
        parse_curated(METRIC.replace(*instead)).applied_to(catalog)

    assert f"line {line}: " in failure.value.message
    assert expected in failure.value.message


def test_a_metric_with_an_unreadable_field_is_left_out(catalog: Catalog) -> None:
    weather = tuple(table for table in catalog.tables if table.name == "weather")
    orders = tuple(table for table in catalog.tables if table.name == "orders")
    curated = parse_curated(METRIC)

    for tables in (weather, orders):
        seen = curated.applied_to(replace(catalog, tables=tables, joins=(), narrowed=True))
        assert "turnover" not in [metric.name for metric in seen.metrics]


def test_entries_about_unreadable_tables_are_skipped(catalog: Catalog) -> None:
    """One file serves users of all groups."""
    curated = parse_curated(GOOD)
    orders = tuple(table for table in catalog.tables if table.name == "orders")
    weather = tuple(table for table in catalog.tables if table.name == "weather")
    member = curated.applied_to(replace(catalog, tables=orders, joins=(), narrowed=True))
    assert [metric.name for metric in member.metrics] == ["turnover"]
    assert member.tables[0].comment == "Orders placed in the shop"
    assert member.joins == ()
    other = curated.applied_to(replace(catalog, tables=weather, joins=(), narrowed=True))
    assert (other.metrics, other.joins) == ((), ())
    assert "purchases" not in repr(other)
    with pytest.raises(ConfigurationError):
        curated.applied_to(replace(catalog, tables=weather, joins=()))


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("tables:\n  orders:\n    sinonyms: [x]\n", 3, "tables.orders.sinonyms: Extra inputs"),
        ("tables:\n  orders:\n    synonyms: bill\n", 3, "valid list"),
        ("tables:\n  a: {}\n  b: {}\n  a: {}\n", 4, "'a' is given twice"),
        ("metrics:\n  m:\n    description: x\n", 2, "metrics.m.formula: Field required"),
        ("- a\n- b\n", 1, "valid dictionary"),
        ("tables:\n  ? [a, b]\n  : {}\n", 2, "a name was expected"),
        ("tables: &a\n  x: *a\n", 1, "too deeply nested"),
    ],
)
def test_a_wrong_shape_is_refused_with_its_line(text: str, line: int, expected: str) -> None:
    with pytest.raises(ConfigurationError) as failure:
        parse_curated(text)

    assert f"BOS_SQL_METADATA_PATH, line {line}: " in failure.value.message
    assert expected in failure.value.message


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    large, binary = tmp_path / "large.yaml", tmp_path / "binary.yaml"
    large.write_text("#" * 1_000_001)
    binary.write_bytes(b"\xff\xfe")

    for path in (tmp_path / "absent.yaml", large, binary):
        with pytest.raises(ConfigurationError, match="BOS_SQL_METADATA_PATH"):
            read_curated(path)


async def test_a_file_is_applied_to_the_database_of_the_settings_alone(catalog: Catalog) -> None:
    indexes = MetadataIndexes(parse_curated("tables:\n  salaries: {}\n"), ttl_s=60)

    async def load() -> Catalog:
        return catalog

    other = await indexes.get("shop", "f1", load, curated=False)
    assert await indexes.get("shop", "f1", load, curated=False) is other
    with pytest.raises(ConfigurationError, match="no table 'salaries'"):
        await indexes.get("shop", "f1", load)
