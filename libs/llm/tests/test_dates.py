"""Dates and periods as prompts show them."""

from datetime import date
from typing import Any

import pytest
from google.protobuf import struct_pb2
from hypothesis import given
from hypothesis import strategies as st

from bos_llm.prompts import format_dates


def dates(periods: bool = True, **fields: Any) -> list[str]:
    context = struct_pb2.Struct()
    context.update(fields)
    return format_dates(context.fields, periods=periods).splitlines()


def test_periods_around_today_are_worked_out() -> None:
    assert dates(current_date="2026-06-15") == [
        "today: 2026-06-15 (Monday)",
        "periods (inclusive):",
        "yesterday: 2026-06-14",
        "last_week: 2026-06-08..2026-06-14",
        "last_month: 2026-05-01..2026-05-31",
        "this_quarter: 2026-04-01..2026-06-30",
        "last_quarter: 2026-01-01..2026-03-31",
        "quarter_before_last: 2025-10-01..2025-12-31",
        "last_6_months: 2025-12-01..2026-05-31",
    ]


@pytest.mark.parametrize(
    ("today", "line"),
    [
        ("2024-03-31", "last_month: 2024-02-01..2024-02-29"),
        ("2026-01-01", "yesterday: 2025-12-31"),
        ("2026-03-31", "this_quarter: 2026-01-01..2026-03-31"),
        ("2026-04-01", "this_quarter: 2026-04-01..2026-06-30"),
        ("2026-02-28", "last_6_months: 2025-08-01..2026-01-31"),
        ("2026-06-14", "last_week: 2026-06-01..2026-06-07"),
    ],
)
def test_periods_at_the_edges_of_months_weeks_and_years(today: str, line: str) -> None:
    assert line in dates(current_date=today)


def test_weeks_quarters_and_today_follow_the_calendar_of_the_context() -> None:
    wrong = [
        (fields, line)
        for fields, line in (
            ({"first_day_of_week": "sunday"}, "last_week: 2026-06-07..2026-06-13"),
            ({"first_day_of_week": "saturday"}, "last_week: 2026-06-06..2026-06-12"),
            ({"first_day_of_week": "Sunday"}, "last_week: 2026-06-07..2026-06-13"),
            ({"first_day_of_week": "odin"}, "last_week: 2026-06-08..2026-06-14"),
            ({"fiscal_year_first_month": "2"}, "this_quarter: 2026-05-01..2026-07-31"),
            ({"fiscal_year_first_month": "4"}, "this_fiscal_year: 2026-04-01..2027-03-31"),
            ({"fiscal_year_first_month": "10"}, "last_fiscal_year: 2024-10-01..2025-09-30"),
            ({"fiscal_year_first_month": "13"}, "this_quarter: 2026-04-01..2026-06-30"),
            ({"fiscal_year_first_month": "1" * 5000}, "this_quarter: 2026-04-01..2026-06-30"),
        )
        if line not in dates(current_date="2026-06-15", **fields)
    ]
    assert not wrong
    clock = {"current_datetime_utc": "2026-06-15T20:30:00+00:00"}
    assert "today: 2026-06-16 (Tuesday)" in dates(time_zone="Asia/Kolkata", **clock)
    assert "now: 2026-06-16 02:00 Asia/Kolkata" in dates(time_zone="Asia/Kolkata", **clock)
    assert "now: 2026-06-15 20:30 UTC" in dates(time_zone="../etc/passwd", **clock)


def test_without_periods_only_the_day_is_shown() -> None:
    shown = dates(False, current_date="2026-06-15", current_datetime_utc="2026-06-15T12:00:00Z")
    assert shown == ["today: 2026-06-15 (Monday)"]


def test_time_of_day_is_shown_if_it_belongs_to_today() -> None:
    clock = "2026-06-15T23:30:00+02:00"
    assert "now: 2026-06-15 21:30 UTC" in dates(
        current_date="2026-06-16", current_datetime_utc=clock
    )
    other_day = dates(current_date="2026-06-17", current_datetime_utc=clock)
    assert not [line for line in other_day if line.startswith("now")]
    assert other_day[0] == "today: 2026-06-17 (Wednesday)"


def test_without_a_date_the_clock_says_which_day_it_is() -> None:
    assert dates(False, current_datetime_utc="2026-06-15T23:30:00-02:00") == [
        "today: 2026-06-16 (Tuesday)"
    ]


def test_hours_are_shown_only_if_they_cut_the_day() -> None:
    whole = {"current_date_start_hour": "2026-06-15 00", "current_date_end_hour": "2026-06-15 23"}
    assert dates(False, current_date="2026-06-15", **whole) == ["today: 2026-06-15 (Monday)"]
    cut = {**whole, "current_date_end_hour": "2026-06-15\n17" + "x" * 99}
    assert dates(False, current_date="2026-06-15", **cut)[1:] == [
        "end_hour: 2026-06-15 17" + "x" * 27
    ]


def test_periods_that_the_calendar_does_not_know_are_left_out() -> None:
    assert dates(current_date="0001-01-01") == [
        "today: 0001-01-01 (Monday)",
        "periods (inclusive):",
        "this_quarter: 0001-01-01..0001-03-31",
    ]
    assert not [x for x in dates(current_date="9999-12-31") if x.startswith("this_quarter")]


@pytest.mark.parametrize("odd", ["yesterday", "2026-02-30", "9" * 5000, 20260615, None])
def test_what_is_no_date_is_left_out(odd: Any) -> None:
    assert dates(current_date=odd) == []
    shown = dates(False, current_date=odd, current_datetime_utc="2026-06-15T12:00:00")
    assert shown == ["today: 2026-06-15 (Monday)"]


def test_an_instant_at_the_end_of_the_calendar_is_left_out() -> None:
    assert dates(current_datetime_utc="0001-01-01T00:00:00+23:59") == []


@given(st.dates(min_value=date(2, 1, 1), max_value=date(9998, 12, 31)))
def test_periods_are_whole_and_end_where_the_next_begins(today: date) -> None:
    lines = dict(line.split(": ") for line in dates(current_date=today.isoformat())[2:])
    bounds = {
        name: [date.fromisoformat(day) for day in span.split("..")] for name, span in lines.items()
    }
    assert bounds["this_quarter"][0] <= today <= bounds["this_quarter"][1]
    for earlier, later in (
        ("last_quarter", "this_quarter"),
        ("quarter_before_last", "last_quarter"),
    ):
        assert (bounds[later][0] - bounds[earlier][1]).days == 1
        assert bounds[earlier][0].day == 1
        assert bounds[earlier][0].month % 3 == 1
    assert (bounds["last_week"][1] - bounds["last_week"][0]).days == 6
    assert bounds["last_6_months"][1] == bounds["last_month"][1] < today
