import re
from collections import Counter, defaultdict
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from bos_demo.company import DEFAULT_TODAY, VERSION
from bos_demo.generators.generate import SEED, digest, generate
from bos_demo.periods import named_periods
from bos_demo.rows import CompanyRows
from bos_demo.schema import read_tables, schema_sql

GOLDEN = "7522da56764093694910fd02be64fccb6b33d9cfa0a34bf8d0772312b7050e47"


def test_the_rows_of_a_version_never_change(rows: CompanyRows) -> None:
    """Fails when a generator changes: raise VERSION then, so that loaded databases are refilled."""
    assert (VERSION, digest(rows)) == (1, GOLDEN)


def test_the_same_today_and_seed_give_the_same_rows(rows: CompanyRows) -> None:
    assert digest(generate(DEFAULT_TODAY, SEED)) == digest(rows)


def test_another_seed_or_today_gives_other_rows(rows: CompanyRows) -> None:
    assert digest(generate(DEFAULT_TODAY, SEED + 1)) != digest(rows)
    assert digest(generate(date(2026, 6, 16), SEED)) != digest(rows)


def test_a_leap_day_and_the_turn_of_a_year_are_ordinary_days() -> None:
    for today in (date(2024, 2, 29), date(2025, 12, 31), date(2026, 1, 1)):
        assert len(generate(today).invoices) > 5_000


def test_the_company_has_19_tables_and_more_than_50_000_rows(rows: CompanyRows) -> None:
    counts = {name: len(records) for name, records in rows.tables().items()}
    assert len(counts) == 19
    assert all(counts.values())
    assert sum(counts.values()) > 50_000


def test_rows_have_the_columns_of_the_schema_in_order(rows: CompanyRows) -> None:
    schema = {t.name: tuple(c.name for c in t.columns) for t in read_tables()}
    fields: dict[str, Any] = {
        name: records[0]._fields
        for name, records in rows.tables().items()  # type: ignore[attr-defined]
    }
    assert fields == schema


def test_every_column_of_the_schema_has_a_comment() -> None:
    declared = re.findall(r"^    (?!PRIMARY KEY)[a-z]\w* ", schema_sql(), re.MULTILINE)
    assert len(declared) == sum(len(table.columns) for table in read_tables())
    assert schema_sql().count("CREATE TABLE") == len(read_tables())


def test_nothing_happens_after_today(rows: CompanyRows) -> None:
    planned = {"due_date", "expected_date", "quarter_start", "discontinued_on"}
    for records in rows.tables().values():
        for record in records:
            for name, value in zip(record._fields, record, strict=True):  # type: ignore[attr-defined]
                if isinstance(value, date) and name not in planned:
                    day = value.date() if isinstance(value, datetime) else value
                    assert day <= DEFAULT_TODAY, (type(record).__name__, name)


def test_last_quarter_is_fixed_by_today() -> None:
    assert named_periods(DEFAULT_TODAY)["last_quarter"] == (date(2026, 1, 1), date(2026, 4, 1))
    assert named_periods(date(2026, 2, 1))["last_quarter"] == (date(2025, 10, 1), date(2026, 1, 1))


def test_invoices_add_up(rows: CompanyRows) -> None:
    lines: dict[int, Decimal] = defaultdict(Decimal)
    for line in rows.invoice_lines:
        lines[line.invoice_id] += line.line_amount
    paid: dict[int, Decimal] = defaultdict(Decimal)
    for payment in rows.payments:
        paid[payment.invoice_id] += payment.amount
    for invoice in rows.invoices:
        assert invoice.net_amount == lines[invoice.invoice_id]
        assert invoice.total_amount == invoice.net_amount + invoice.tax_amount
        rest = invoice.total_amount - paid[invoice.invoice_id]
        open_, part = rest == invoice.total_amount, 0 < rest < invoice.total_amount
        assert invoice.status == ("open" if open_ else "partly_paid" if part else "paid")


def test_purchase_orders_add_up(rows: CompanyRows) -> None:
    lines: dict[int, Decimal] = defaultdict(Decimal)
    for line in rows.purchase_order_lines:
        assert line.line_amount == line.unit_cost * line.quantity_ordered
        lines[line.purchase_order_id] += line.line_amount
    for order in rows.purchase_orders:
        assert order.total_amount == lines[order.purchase_order_id]
        assert (order.received_date is not None) == (order.status == "received")


def test_stock_is_the_sum_of_its_movements_and_never_negative(rows: CompanyRows) -> None:
    on_hand: Counter[tuple[int, int]] = Counter()
    for move in rows.stock_movements:
        place = (move.warehouse_id, move.product_id)
        on_hand[place] += move.quantity
        assert on_hand[place] >= 0, move
    levels = {(s.warehouse_id, s.product_id): s.quantity_on_hand for s in rows.stock_levels}
    assert levels == dict(on_hand)


def test_products_are_sold_only_while_they_are_on_sale(rows: CompanyRows) -> None:
    days = {invoice.invoice_id: invoice.invoice_date for invoice in rows.invoices}
    products = {product.product_id: product for product in rows.products}
    for line in rows.invoice_lines:
        product, day = products[line.product_id], days[line.invoice_id]
        assert product.launched_on <= day <= (product.discontinued_on or day)


def test_a_fifth_of_the_customers_brings_more_than_half_of_the_revenue(rows: CompanyRows) -> None:
    revenue: dict[int, Decimal] = defaultdict(Decimal)
    for invoice in rows.invoices:
        revenue[invoice.customer_id] += invoice.net_amount
    best = sorted(revenue.values(), reverse=True)[: len(rows.customers) // 5]
    assert sum(best) > sum(revenue.values()) / 2


def test_the_company_has_the_irregularities_of_a_real_one(rows: CompanyRows) -> None:
    due = {invoice.invoice_id: invoice.due_date for invoice in rows.invoices}
    late = sum(p.payment_date > due[p.invoice_id] for p in rows.payments)
    assert 0.3 < late / len(rows.payments) < 0.8
    assert sum(p.discontinued_on is not None for p in rows.products) == 9
    lapsed = {c.customer_id for c in rows.customers if c.status == "lapsed"}
    recent = {i.customer_id for i in rows.invoices if (DEFAULT_TODAY - i.invoice_date).days < 200}
    assert len(lapsed) == 4
    assert not lapsed & recent
    march = sum(i.net_amount for i in rows.invoices if i.invoice_date.month == 3)
    july = sum(i.net_amount for i in rows.invoices if i.invoice_date.month == 7)
    assert march > july * Decimal("1.3")
