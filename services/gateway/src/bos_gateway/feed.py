"""The committed events of a run that this replica works on, and everybody who follows them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from bos.runlog.v1 import LogEvent


class RunFeed:
    """An append-only list with waiters.

    Followers keep a position, not a queue: a slow one costs nothing and misses nothing.

    Args:
        events: What is committed already.
        on_publish: Called after more was shown here, for those who follow elsewhere.
    """

    def __init__(
        self, events: Sequence[LogEvent] = (), on_publish: Callable[[], None] = lambda: None
    ) -> None:
        self._events = list(events)
        self._on_publish = on_publish
        self._closed = False
        self._changed = asyncio.Event()

    @property
    def events(self) -> Sequence[LogEvent]:
        """Everything committed so far; event ``n`` has sequence ``n + 1``."""
        return self._events

    def publish(self, events: Sequence[LogEvent]) -> None:
        """Show events that are committed, in order."""
        self._events.extend(events)
        self._notify()
        self._on_publish()

    def close(self) -> None:
        """Nothing more comes from here: the run ended, or this replica let it go."""
        self._closed = True
        self._notify()

    async def follow(self, after_sequence: int) -> AsyncIterator[tuple[int, LogEvent]]:
        """Events after ``after_sequence`` with their sequences, until the feed is closed."""
        position = after_sequence
        while True:
            changed = self._changed
            while position < len(self._events):
                position += 1
                yield position, self._events[position - 1]
            if self._closed:
                return
            await changed.wait()

    def _notify(self) -> None:
        # A new event object per change: whoever took the old one before looking cannot miss it.
        self._changed.set()
        self._changed = asyncio.Event()
