"""Exponential backoff: how long to wait before an attempt is repeated."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Backoff:
    """Capped exponential backoff with jitter. Pure: the caller provides the random number."""

    first_s: float
    """Seconds after the first failed attempt."""
    cap_s: float = inf
    """Longest wait, in seconds."""
    factor: float = 2.0
    """By which each wait is longer than the one before."""
    jitter: float = 0.0
    """Share of a wait that is left to chance: 0 for none, 1 for all of it."""

    def delay(self, attempt: int, random: float = 1.0) -> float:
        """Seconds to wait after a failed attempt.

        Args:
            attempt: Failed attempts in a row, from 1.
            random: From 0 to 1, of which 1 gives the longest wait.
        """
        if not self.first_s:
            return 0.0
        try:
            wait_s = min(self.cap_s, self.first_s * self.factor ** (attempt - 1))
        except OverflowError:
            wait_s = self.cap_s
        return wait_s * (1.0 - self.jitter + self.jitter * random)
