"""Circuit breaker of one endpoint: while it is down, calls fail at once instead of asking again.

A single call that failed twice while no other succeeded is enough; so are twenty failures in a
row of any calls. After a pause one call is let through; while that one fails, the pause
doubles.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from bos_chassis.backoff import Backoff

_OF_ONE_CALL: Final = 2
_IN_A_ROW: Final = 20


class CircuitBreaker:
    """Counts failures of one endpoint. Nothing in it waits.

    Args:
        open_s: First pause.
        max_open_s: Longest pause.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        *,
        open_s: float = 5.0,
        max_open_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backoff = Backoff(first_s=open_s, cap_s=max_open_s)
        self._clock = clock
        self._in_a_row = 0
        self._succeeded_at = float("-inf")
        self._until = float("-inf")
        self._pauses = 0
        self._pause_s = 0.0
        self._probing = False

    def now(self) -> float:
        """Seconds by the clock that :meth:`failed` wants."""
        return self._clock()

    def blocked_s(self) -> float:
        """Seconds for which no call may be made; 0 if one may, which then has to be reported."""
        if not self._pause_s:
            return 0.0
        left = self._until - self._clock()
        if left > 0:
            return left
        # A probe that is never reported, because it was cancelled, blocks for one more pause only.
        self._probing = True
        self._until = self._clock() + self._pause_s
        return 0.0

    def succeeded(self) -> None:
        """The endpoint answered, be it with a refusal."""
        self._in_a_row = 0
        self._succeeded_at = self._clock()
        self._pauses, self._pause_s, self._probing = 0, 0.0, False

    def not_asked(self) -> None:
        """The call that was let through came to nothing before it was sent: another may go."""
        if self._probing:
            self._probing = False
            self._until = self._clock()

    def failed(self, started: float, attempt: int) -> None:
        """A call failed, as endpoints do that are down.

        Args:
            started: When the call began, by the same clock.
            attempt: Its attempts so far, this one included.
        """
        self._in_a_row += 1
        alone = attempt >= _OF_ONE_CALL and self._succeeded_at < started
        if self._pause_s or alone or self._in_a_row >= _IN_A_ROW:
            if self._probing or not self._pauses:
                self._pauses += 1
            self._pause_s = self._backoff.delay(self._pauses)
            self._until = self._clock() + self._pause_s
            self._probing = False
