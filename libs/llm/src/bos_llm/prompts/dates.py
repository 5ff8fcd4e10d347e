"""Dates and periods for prompts: what "today" and "last quarter" mean in a request."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from google.protobuf.struct_pb2 import Value

_DATE, _NOW = "current_date", "current_datetime_utc"
_HOURS = (("current_date_start_hour", "00"), ("current_date_end_hour", "23"))
_MAX_CHARS = 40
_INCLUSIVE = "periods (inclusive):"


def format_dates(fields: Mapping[str, Value], *, periods: bool = True) -> str:
    """The request context's temporal keys as lines of a prompt; empty if they tell nothing.

    Models reckon badly with calendars, so the usual periods are worked out here. Weeks run from
    Monday to Sunday, quarters are those of the calendar year, and the last six months are whole
    ones before the current month. What cannot be read is left out.

    Args:
        fields: Of the context, a ``google.protobuf.Struct``.
        periods: Also the time of day and the periods around today, for agents that query data.
    """
    today = current_day(fields)
    if today is None:
        return ""
    now = _instant(_text(fields, _NOW))
    lines = [f"today: {today.isoformat()} ({today:%A})"]
    lines += _hours(fields)
    if periods:
        # A caller's own date leaves the clock behind: then the time of day belongs to another day.
        if now is not None and abs((now.date() - today).days) <= 1:
            lines.append(f"now: {now:%Y-%m-%d %H:%M} UTC")
        lines += [_INCLUSIVE, *_periods(today)]
    return "\n".join(lines)


def current_day(fields: Mapping[str, Value]) -> date | None:
    """Which day "today" is in a request context; None if it does not say.

    A date is taken as it is written: one with a time and a zone is the day where it was written.
    The clock's day, which counts without a date, is that of UTC.
    """
    try:
        return datetime.fromisoformat(_text(fields, _DATE)).date()
    except ValueError:
        now = _instant(_text(fields, _NOW))
        return None if now is None else now.date()


def _text(fields: Mapping[str, Value], key: str) -> str:
    return " ".join(fields[key].string_value.split()) if key in fields else ""


def _instant(text: str) -> datetime | None:
    """A date or a date and time, in UTC if it names its zone."""
    try:
        found = datetime.fromisoformat(text)
        return found if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _hours(fields: Mapping[str, Value]) -> Iterator[str]:
    """The hours that bound the day, unless it is the whole day."""
    for key, whole_day in _HOURS:
        text = _text(fields, key)
        if text and text != f"{_text(fields, _DATE)} {whole_day}":
            yield f"{key.removeprefix('current_date_')}: {text[:_MAX_CHARS]}"


def _periods(today: date) -> Iterator[str]:
    for name, bounds in _BOUNDS:
        try:
            first, last = bounds(today)
        except (ValueError, OverflowError):
            continue  # before the first or after the last day that the calendar knows
        span = first.isoformat() if first == last else f"{first.isoformat()}..{last.isoformat()}"
        yield f"{name}: {span}"


def _days(today: date, first: int, last: int) -> tuple[date, date]:
    """From ``first`` to ``last`` days after today."""
    return today + timedelta(days=first), today + timedelta(days=last)


def _week(today: date, offset: int) -> tuple[date, date]:
    monday = 7 * offset - today.weekday()
    return _days(today, monday, monday + 6)


def _months(today: date, first: int, count: int = 1) -> tuple[date, date]:
    """``count`` whole months, the first of them ``first`` months after the current one."""
    return _month_start(today, first), _month_start(today, first + count) - timedelta(days=1)


def _month_start(today: date, offset: int) -> date:
    year, month = divmod(12 * today.year + today.month - 1 + offset, 12)
    return date(year, month + 1, 1)


def _quarter(today: date, offset: int) -> tuple[date, date]:
    return _months(today, 3 * offset - (today.month - 1) % 3, 3)


# Few, since every prompt pays for them: those whose bounds are easily got wrong, and from which the
# others follow.
_BOUNDS: tuple[tuple[str, Callable[[date], tuple[date, date]]], ...] = (
    ("yesterday", lambda today: _days(today, -1, -1)),
    ("last_week", lambda today: _week(today, -1)),
    ("last_month", lambda today: _months(today, -1)),
    ("this_quarter", lambda today: _quarter(today, 0)),
    ("last_quarter", lambda today: _quarter(today, -1)),
    ("quarter_before_last", lambda today: _quarter(today, -2)),
    ("last_6_months", lambda today: _months(today, -6, 6)),
)
