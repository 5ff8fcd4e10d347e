"""Several keys for one endpoint: which one is next, and which ones rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Final, Literal

Refusal = Literal["rejected", "quota", "rate_limited"]
"""Why an endpoint turned a key away: it is not valid, has no quota left, or is too busy now."""

DEFAULT_REST_S: Final = 5.0
"""For a key that is too busy, if the endpoint does not say for how long."""


class KeyPool:
    """Keys by their index, in order of preference. Not a bottleneck: nothing in it waits.

    The first key that does not rest is used until it is turned away, so that what an endpoint
    caches per key stays warm.

    Args:
        size: How many keys there are.
        set_aside_s: How long a key rests that is not valid or has no quota, and longest rest of one
            that is too busy.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        size: int,
        *,
        set_aside_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._set_aside_s = set_aside_s
        self._clock = clock
        self._until = [0.0] * size
        self._busy = [False] * size

    def __len__(self) -> int:
        return len(self._until)

    def pick(self, tried: Collection[int] = ()) -> int | None:
        """The key to use now, other than those ``tried`` already.

        If all rest and none was tried, it is the one whose rest ends first: a key may have been
        repaired, and an operator has to find out.
        """
        now = self._clock()
        for index, until in enumerate(self._until):
            if until <= now and index not in tried:
                return index
        return None if tried else min(range(len(self)), key=self._until.__getitem__)

    def turned_away(self, index: int, why: Refusal, retry_after_s: float | None) -> float:
        """Let a key rest; returns for how many seconds."""
        self._busy[index] = why == "rate_limited"
        rest = self._set_aside_s
        if self._busy[index]:
            asked = DEFAULT_REST_S if retry_after_s is None else retry_after_s
            rest = min(asked, self._set_aside_s)
        self._until[index] = self._clock() + rest
        return rest

    def worked(self, index: int) -> None:
        """The key was taken: what was wrong with it is over."""
        self._until[index] = 0.0
        self._busy[index] = False

    def wait_s(self) -> float | None:
        """Seconds until the first key that was merely too busy may be used; None if there is none.

        Keys that are not valid are not worth waiting for.
        """
        busy = [until for until, busy in zip(self._until, self._busy, strict=True) if busy]
        return max(0.0, min(busy) - self._clock()) if busy else None
