from collections import Counter, defaultdict
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from bos_demo.company import DEFAULT_TODAY, VERSION
from bos_demo.generators.generate import SEED, digest, generate
from bos_demo.periods import named_periods
from bos_demo.rows import CompanyRows
from bos_demo.schema import read_tables

GOLDEN = "7522da56764093694910fd02be64fccb6b33d9cfa0a34bf8d0772312b7050e47"


def test_the_rows_of_a_version_never_change(rows: CompanyRows) -> None:
    """Fails when a generator changes: raise VERSION then, so that loaded databases are refilled."""
    assert (VERSION, digest(rows)) == (1, GOLDEN)


def test_another_seed_or_today_gives_other_rows(rows: CompanyRows) -> None:
    assert digest(generate(DEFAULT_TODAY, SEED)) == digest(rows)
    assert digest(generate(DEFAULT_TODAY, SEED + 1)) != digest(rows)
    assert digest(generate(date(2026, 6, 16), SEED)) != digest(rows)


def test_a_leap_day_and_the_turn_of_a_year_are_ordinary_days() -> None:
    for today in (date(2024, 2, 29), date(2025, 12, 31)):
        assert len(generate(today).invoices) > 5_000


def test_the_company_has_19_tables_and_more_than_50_000_rows(rows: CompanyRows) -> None:
    counts = {name: len(records) for name, records in rows.tables().items()}
    assert len(counts) == 19
    assert all(counts.values())
    assert sum(counts.values()) > 50_000


def test_rows_have_the_columns_of_the_schema_in_order(rows: CompanyRows) -> None:
    schema = {t.name: tuple(c.name for c in t.columns) for t in read_tables()}
    fields: dict[str, Any] = {name: records[0]._fields for name, records in rows.tables().items()}
    assert fields == schema


def test_nothing_happens_after_today(rows: CompanyRows) -> None:
    planned = {"due_date", "expected_date", "quarter_start", "discontinued_on"}
    for records in rows.tables().values():
        for record in records:
            for name, value in zip(record._fields, record, strict=True):
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


def test_stock_is_the_sum_of_its_movements_and_never_negative(rows: CompanyRows) -> None:
    on_hand: Counter[tuple[int, int]] = Counter()
    for move in rows.stock_movements:
        place = (move.warehouse_id, move.product_id)
        on_hand[place] += move.quantity
        assert on_hand[place] >= 0, move
    levels = {(s.warehouse_id, s.product_id): s.quantity_on_hand for s in rows.stock_levels}
    assert levels == dict(on_hand)
