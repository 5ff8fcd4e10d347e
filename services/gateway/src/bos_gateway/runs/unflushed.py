"""Unflushed events: applied by their run's owner, not known to be committed yet.

No other process writes to the run; a refused append ends its ownership. So the owner may go on from
events whose commit is under way, as long as they are not shown and nothing acts on them before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from attrs import define, field

from bos.runlog.v1 import LogEvent
from bos_gateway.run_log.records import Append
from bos_gateway.run_log.writer import LogWriter

_MAX_AHEAD: Final = 64


@define(eq=False)
class UnflushedEvents:
    """The appends of one run on their way to the disk, in the order of its log."""

    _writer: LogWriter
    last_sequence: int
    """Of the last event that is committed."""
    _publish: Callable[[Sequence[LogEvent]], None]
    """Gets events once they are committed, in order."""
    _broken: Callable[[], None]
    """Called when an append failed; nothing behind it is committed either."""
    _under_way: deque[tuple[asyncio.Future[bool], Sequence[LogEvent]]] = field(
        init=False, factory=deque
    )
    _error: BaseException | None = field(init=False, default=None)

    def add(self, append: Append) -> None:
        """Submit events behind all that were added before."""
        future = self._writer.submit(append)
        self._under_way.append((future, append.events))
        future.add_done_callback(self._advance)

    def check(self) -> None:
        """Raise the error of an earlier append, after which nothing may follow.

        Raises:
            LostRun, BosError: as the writer does.
        """
        if self._error is not None:
            raise self._error

    async def committed(self) -> None:
        """Return once everything added so far is on disk, and shown.

        Raises:
            LostRun, BosError: as the writer does.
        """
        await self._until_under_way(0)

    async def room(self) -> None:
        """Wait for room for more events.

        Raises:
            LostRun, BosError: as the writer does.
        """
        await self._until_under_way(_MAX_AHEAD)

    async def _until_under_way(self, most: int) -> None:
        if self._error is None and len(self._under_way) > most:
            # The future's first callback is ours: what it stands for is shown by then.
            await asyncio.wait([self._under_way[-1 - most][0]])
        self.check()

    def _advance(self, _: asyncio.Future[bool]) -> None:
        while self._under_way and self._under_way[0][0].done():
            future, events = self._under_way.popleft()
            error = future.exception()
            if self._error is None and error is None:
                self.last_sequence += len(events)
                self._publish(events)
            elif self._error is None:
                self._error = error
                self._broken()
