"""Prefetched table overviews, by run."""

from __future__ import annotations

import time
from collections.abc import Callable

from bos_sql.database.metadata import Overview

Run = tuple[str, str]
"""User id and run id."""

TTL_S = 60.0
"""Time to live of an overview: plans are made within it, and schemas seldom change."""

_MAX_OVERVIEWS = 256


class PrefetchedOverviews:
    """Bounded cache of overviews by run; the oldest are evicted first.

    Args:
        clock: Monotonic time in seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[Run, tuple[Overview, float]] = {}

    def keep(self, run: Run, overview: Overview) -> None:
        """Cache ``overview`` for the steps of ``run``."""
        now = self._clock()
        self._kept.pop(run, None)
        self._kept[run] = (overview, now + TTL_S)
        for old, (_, until) in list(self._kept.items()):
            if until > now and len(self._kept) <= _MAX_OVERVIEWS:
                break
            del self._kept[old]

    def get(self, run: Run) -> Overview | None:
        """Cached overview of ``run``; None if there is none or it has expired."""
        found = self._kept.get(run)
        return found[0] if found is not None and self._clock() < found[1] else None
