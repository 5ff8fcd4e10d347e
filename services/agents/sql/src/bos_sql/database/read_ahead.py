"""What was read ahead for a run while its plan was being made."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bos_sql.database.metadata import Overview

Run = tuple[str, str]
"""User and run."""

KEPT_S = 60.0
"""As old may an overview be: a plan is made within this time, and a schema seldom changes in it."""

_MOST_KEPT = 256


class ReadAhead:
    """Overviews by run, for a minute; the oldest go first when there are too many.

    Args:
        clock: Seconds that only grow.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[Run, tuple[Overview, float]] = {}

    def keep(self, run: Run, overview: Overview) -> None:
        """Keep ``overview`` for the steps of ``run``."""
        now = self._clock()
        self._kept.pop(run, None)
        self._kept[run] = (overview, now + KEPT_S)
        for old, (_, until) in list(self._kept.items()):
            if until > now and len(self._kept) <= _MOST_KEPT:
                break
            del self._kept[old]

    def get(self, run: Run) -> Overview | None:
        """What is kept for ``run``; None if nothing is, or it is too old."""
        found = self._kept.get(run)
        return found[0] if found is not None and self._clock() < found[1] else None
