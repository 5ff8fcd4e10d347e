"""The calendar of a deployment: time zone, first day of the week, fiscal year. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from zoneinfo import ZoneInfo

_MAX_CHARS = 64


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


def is_time_zone(name: object) -> bool:
    """Whether ``name`` is an IANA time zone."""
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_CHARS:
        return False
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return False
    return True
