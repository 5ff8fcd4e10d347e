"""The calendar of a deployment: time zone, first day of the week, fiscal year. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from zoneinfo import ZoneInfo

from google.protobuf.struct_pb2 import Struct

from bos_errors import FieldViolation

_MAX_CHARS = 64
_FIRST_DAYS: Final = ("monday", "saturday", "sunday")
_FIXES: Final = {
    "time_zone": "must be an IANA name such as Europe/Berlin",
    "first_day_of_week": "must be monday, saturday or sunday",
    "fiscal_year_first_month": "must be a whole number from 1 to 12",
}


@dataclass(frozen=True, slots=True)
class Calendar:
    """What "today", "last week" and "last quarter" mean unless a request says otherwise."""

    time_zone: str = "UTC"
    """IANA name."""
    first_day_of_week: str = "monday"
    fiscal_year_first_month: int = 1

    def context(self) -> dict[str, str]:
        """Keys of a request's context; what prompts assume anyway is left out."""
        given = {
            "time_zone": self.time_zone,
            "first_day_of_week": self.first_day_of_week,
            "fiscal_year_first_month": str(self.fiscal_year_first_month),
        }
        usual = ("UTC", "monday", "1")
        return {
            key: value
            for (key, value), each in zip(given.items(), usual, strict=True)
            if value != each
        }


def normalise_calendar(context: Struct) -> list[FieldViolation]:
    """Write a request's own calendar as prompts read it, in place; what is unusable is returned."""
    violations = []
    for key in _FIXES.keys() & context.fields.keys():
        if text := _calendar_text(key, context[key]):
            context[key] = text
        else:
            violations.append(FieldViolation(f"request.context.{key}", _FIXES[key]))
    return sorted(violations, key=lambda each: each.field)


def _calendar_text(key: str, value: object) -> str:
    """A value of the calendar as text; empty if it is unusable."""
    match key, value:
        case "time_zone", str(name) if is_time_zone(name):
            return name
        case "first_day_of_week", str(day) if day.strip().lower() in _FIRST_DAYS:
            return day.strip().lower()
        case "fiscal_year_first_month", float(month) if month in range(1, 13):
            return str(int(month))
        case "fiscal_year_first_month", str(text):
            digits = text.strip()
            known = digits.isdecimal() and len(digits) <= 2 and 1 <= int(digits) <= 12
            return str(int(digits)) if known else ""
        case _:
            return ""


def is_time_zone(name: object) -> bool:
    """Whether ``name`` is an IANA time zone."""
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_CHARS:
        return False
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return False
    return True
