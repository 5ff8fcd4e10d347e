"""Events of a run that its owner has applied and that are not known to be committed yet.

Nobody else writes to the run, and a refused append ends its ownership. So the owner may go on from
events whose commit is under way, as long as nobody sees them and nothing acts on them before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bos.runlog.v1 import LogEvent
    from bos_gateway.log_items import Append
    from bos_gateway.run_log import LogWriter

_MAX_AHEAD: Final = 64


class Pipeline:
    """The appends of one run on their way to the disk, in the order of its log.

    Args:
        writer: The process's writer.
        last_sequence: Where the run's log ends.
        publish: Told of events once they are committed, in order.
        broken: Called when an append failed; nothing behind it is committed either.
    """

    def __init__(
        self,
        writer: LogWriter,
        last_sequence: int,
        publish: Callable[[Sequence[LogEvent]], None],
        broken: Callable[[], None],
    ) -> None:
        self._writer = writer
        self.last_sequence = last_sequence
        """Of the last event that is committed."""
        self.end = last_sequence
        """Of the last event that was added."""
        self._publish = publish
        self._broken = broken
        self._under_way: deque[tuple[asyncio.Future[bool], Sequence[LogEvent]]] = deque()
        self._added = self._settled = 0
        self._changed = asyncio.Event()
        self._error: BaseException | None = None

    def add(self, append: Append) -> None:
        """Have events written behind all that was added before."""
        future = self._writer.submit(append)
        self._added += 1
        self.end += len(append.events)
        self._under_way.append((future, append.events))
        future.add_done_callback(self._advance)

    def check(self) -> None:
        """Raise what kept an earlier append from the log: what follows from it must not go on.

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
        await self._until(self._added)

    async def room(self) -> None:
        """Return once little enough is under way to add more.

        Raises:
            LostRun, BosError: as the writer does.
        """
        await self._until(self._added - _MAX_AHEAD)

    async def _until(self, count: int) -> None:
        while self._error is None and self._settled < count:
            await self._changed.wait()
        self.check()

    def _advance(self, _: asyncio.Future[bool]) -> None:
        while self._under_way and self._under_way[0][0].done():
            future, events = self._under_way.popleft()
            self._settled += 1
            error = future.exception()
            if self._error is None and error is None:
                self.last_sequence += len(events)
                self._publish(events)
            elif self._error is None:
                self._error = error
                self._broken()
        # A new event object per change: whoever took the old one before looking cannot miss it.
        self._changed.set()
        self._changed = asyncio.Event()
