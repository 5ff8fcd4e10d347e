"""Named periods around the company's fixed today, as half-open ranges of dates."""

from __future__ import annotations

from datetime import date, timedelta
from typing import NamedTuple


class Period(NamedTuple):
    """Half-open range of days: from `start` up to, but excluding, `end`."""

    start: date
    end: date


def add_months(day: date, months: int) -> date:
    """Return the first day of the month that lies `months` after the month of `day`."""
    index = day.year * 12 + day.month - 1 + months
    return date(index // 12, index % 12 + 1, 1)


def quarter_start(day: date) -> date:
    """Return the first day of the calendar quarter of `day`."""
    return date(day.year, (day.month - 1) // 3 * 3 + 1, 1)


def named_periods(today: date) -> dict[str, Period]:
    """Return the named periods, such as "last quarter" and "this year".

    Quarters are calendar quarters, fiscal years run from April to March.
    """
    this_quarter = quarter_start(today)
    last_quarter = add_months(this_quarter, -3)
    fiscal_year = date(today.year if today.month >= 4 else today.year - 1, 4, 1)
    return {
        "last_quarter": Period(last_quarter, this_quarter),
        "quarter_before_last": Period(add_months(last_quarter, -3), last_quarter),
        "same_quarter_last_year": Period(
            add_months(last_quarter, -12), add_months(this_quarter, -12)
        ),
        "last_month": Period(add_months(today, -1), add_months(today, 0)),
        "last_fiscal_year": Period(add_months(fiscal_year, -12), fiscal_year),
        "year_before_last": Period(add_months(fiscal_year, -24), add_months(fiscal_year, -12)),
        "this_year": Period(date(today.year, 1, 1), date(today.year + 1, 1, 1)),
        "last_year": Period(date(today.year - 1, 1, 1), date(today.year, 1, 1)),
        "year_before": Period(date(today.year - 2, 1, 1), date(today.year - 1, 1, 1)),
        "last_six_months": Period(add_months(today, -6), add_months(today, 0)),
        "yesterday": Period(today - timedelta(days=1), today),
        "today": Period(today, today + timedelta(days=1)),
    }
