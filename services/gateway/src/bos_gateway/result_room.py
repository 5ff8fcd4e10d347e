"""Memory for results and inputs of steps, shared by all runs of the process."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bos_gateway.state import RunState


class ResultRoom:
    """What all runs together hold; what a run held is free once nobody holds its state any more.

    Args:
        max_bytes: Of all runs together.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: dict[int, int] = {}

    @property
    def held(self) -> int:
        """Bytes that all known runs hold."""
        return sum(self._held.values())

    def take(self, state: RunState, size: int = 0) -> bool:
        """Whether there is room for that many bytes more; if so, the run holds them from now on."""
        key = id(state)
        if key not in self._held:
            weakref.finalize(state, self._held.pop, key)
            self._held[key] = 0
        # Results that are on their way into the log are not in the state yet.
        self._held[key] = max(self._held[key], state.held_bytes)
        fits = self.held + size <= self._max_bytes
        self._held[key] += size if fits else 0
        return fits
