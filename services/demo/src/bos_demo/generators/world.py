"""Shared by all generators: the company's calendar and seeded random numbers."""

from __future__ import annotations

import random
from datetime import date, timedelta
from typing import NamedTuple

from bos_demo.periods import add_months

HISTORY_MONTHS = 38


class World(NamedTuple):
    """The company's first day of records, its fixed today, and the seed."""

    start: date
    today: date
    seed: int

    @classmethod
    def at(cls, today: date, seed: int) -> World:
        """Return a world whose records begin `HISTORY_MONTHS` full months before `today`."""
        return cls(add_months(today, -HISTORY_MONTHS), today, seed)

    def chance(self, part: str) -> random.Random:
        """Return the random generator of one part; a change there does not affect the others."""
        return random.Random(f"{self.seed}/{part}")  # noqa: S311 - sample data, not secrets

    def days(self) -> list[date]:
        """Return every day from the first day of records to today."""
        return [self.start + timedelta(days=n) for n in range((self.today - self.start).days + 1)]


def working_day(day: date) -> date:
    """Return `day`, or the Monday after it when it is a Sunday."""
    return day + timedelta(days=1) if day.weekday() == 6 else day
