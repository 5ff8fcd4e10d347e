"""Dates and periods for prompts: what "today" and "last quarter" mean in a request."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from google.protobuf.struct_pb2 import Value

_DATE, _NOW = "current_date", "current_datetime_utc"
_HOURS = (("current_date_start_hour", "00"), ("current_date_end_hour", "23"))
_ZONE, _FIRST_DAY, _FISCAL = "time_zone", "first_day_of_week", "fiscal_year_first_month"
_FIRST_DAYS = {"monday": 0, "saturday": 5, "sunday": 6}
_MAX_CHARS = 40
_INCLUSIVE = "periods (inclusive):"


def format_dates(fields: Mapping[str, Value], *, periods: bool = True) -> str:
    """The request context's temporal keys as lines of a prompt; empty if they tell nothing.

    Models reckon badly with calendars, so the usual periods are worked out here. Weeks run from
    Monday to Sunday and quarters are those of the calendar year, unless ``first_day_of_week``
    (monday, saturday, sunday) and ``fiscal_year_first_month`` (1 to 12) say otherwise; the last six
    months are whole ones before the current month. What cannot be read is left out.

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
            zone = _zone(fields)
            here = now.astimezone(zone) if now.tzinfo and zone is not UTC else now
            name = "UTC" if here is now else _text(fields, _ZONE)
            lines.append(f"now: {here:%Y-%m-%d %H:%M} {name}")
        lines += [_INCLUSIVE, *_periods(today, fields)]
    return "\n".join(lines)


def current_day(fields: Mapping[str, Value]) -> date | None:
    """Which day "today" is in a request context; None if it does not say.

    A date is taken as it is written: one with a time and a zone is the day where it was written.
    The clock's day, which counts without a date, is that of ``time_zone``, or else of UTC.
    """
    try:
        return datetime.fromisoformat(_text(fields, _DATE)).date()
    except ValueError:
        now = _instant(_text(fields, _NOW))
        if now is None:
            return None
        return (now.astimezone(_zone(fields)) if now.tzinfo else now).date()


def _zone(fields: Mapping[str, Value]) -> tzinfo:
    """The time zone that the context names; UTC without a known one."""
    try:
        return ZoneInfo(_text(fields, _ZONE)) if _text(fields, _ZONE) else UTC
    except (ValueError, OSError, KeyError):
        return UTC


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


def _periods(today: date, fields: Mapping[str, Value]) -> Iterator[str]:
    first_day = _FIRST_DAYS.get(_text(fields, _FIRST_DAY).lower(), 0)
    month = _text(fields, _FISCAL)
    known = month.isdecimal() and len(month) <= 2 and 1 <= int(month) <= 12
    fiscal = int(month) if known else 1
    for name, bounds in (*_BOUNDS, *(_FISCAL_BOUNDS if fiscal > 1 else ())):
        try:
            first, last = bounds(today, first_day, fiscal)
        except (ValueError, OverflowError):
            continue  # before the first or after the last day that the calendar knows
        span = first.isoformat() if first == last else f"{first.isoformat()}..{last.isoformat()}"
        yield f"{name}: {span}"


def _days(today: date, first: int, last: int) -> tuple[date, date]:
    """From ``first`` to ``last`` days after today."""
    return today + timedelta(days=first), today + timedelta(days=last)


def _week(today: date, offset: int, first_day: int) -> tuple[date, date]:
    start = 7 * offset - (today.weekday() - first_day) % 7
    return _days(today, start, start + 6)


def _months(today: date, first: int, count: int = 1) -> tuple[date, date]:
    """``count`` whole months, the first of them ``first`` months after the current one."""
    return _month_start(today, first), _month_start(today, first + count) - timedelta(days=1)


def _month_start(today: date, offset: int) -> date:
    year, month = divmod(12 * today.year + today.month - 1 + offset, 12)
    return date(year, month + 1, 1)


def _quarter(today: date, offset: int, fiscal: int) -> tuple[date, date]:
    return _months(today, 3 * offset - (today.month - fiscal) % 3, 3)


def _fiscal_year(today: date, offset: int, fiscal: int) -> tuple[date, date]:
    return _months(today, 12 * offset - (today.month - fiscal) % 12, 12)


# Few, since every prompt pays for them: those whose bounds are easily got wrong, and from which the
# others follow.
_Bounds = tuple[tuple[str, "Callable[[date, int, int], tuple[date, date]]"], ...]
_BOUNDS: _Bounds = (
    ("yesterday", lambda today, _, __: _days(today, -1, -1)),
    ("last_week", lambda today, first_day, _: _week(today, -1, first_day)),
    ("last_month", lambda today, _, __: _months(today, -1)),
    ("this_quarter", lambda today, _, fiscal: _quarter(today, 0, fiscal)),
    ("last_quarter", lambda today, _, fiscal: _quarter(today, -1, fiscal)),
    ("quarter_before_last", lambda today, _, fiscal: _quarter(today, -2, fiscal)),
    ("last_6_months", lambda today, _, __: _months(today, -6, 6)),
)
_FISCAL_BOUNDS: _Bounds = (
    ("this_fiscal_year", lambda today, _, fiscal: _fiscal_year(today, 0, fiscal)),
    ("last_fiscal_year", lambda today, _, fiscal: _fiscal_year(today, -1, fiscal)),
)
