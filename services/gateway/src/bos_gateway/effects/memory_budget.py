"""Memory for files and results that all runs of a process share."""

from __future__ import annotations

import weakref

from attrs import define, field


@define(eq=False)
class MemoryBudget:
    """Memory that all runs of the process share; what a holder had is free once it is gone."""

    _max_bytes: int
    """Of all holders together."""
    _held: dict[int, int] = field(init=False, factory=dict)

    @property
    def held(self) -> int:
        """Bytes that all holders have."""
        return sum(self._held.values())

    def take(self, holder: object, size: int = 0, *, known: int = 0) -> bool:
        """Whether there is room for that many bytes more; if so, the holder has them from now on.

        Args:
            holder: Who wants them.
            size: How many.
            known: What the holder is known to have, from any source.
        """
        key = id(holder)
        if key not in self._held:
            weakref.finalize(holder, self._held.pop, key)
            self._held[key] = 0
        self._held[key] = max(self._held[key], known)
        fits = self.held + size <= self._max_bytes
        self._held[key] += size if fits else 0
        return fits

    def free(self, holder: object) -> None:
        """The holder has nothing any more."""
        if id(holder) in self._held:
            self._held[id(holder)] = 0
