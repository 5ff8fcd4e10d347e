"""Places that callers share: one caller with endless work leaves the next one a place at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_WAITING_PER_CALLER = 100


class NoPlaceToWait(Exception):
    """The caller has as many calls waiting as it may have."""


class FairPlaces:
    """So many places; the last free one is kept for a caller who has none.

    A caller alone may have all but one (all, where there is only one), so another starts at once.
    Waiting callers get a place in turn: those who hold fewest first, of those who was served
    longest ago. One per event loop.

    Args:
        places: How many may be held at once.
        waiting_per_caller: How many calls of one caller may wait.
    """

    def __init__(self, places: int, *, waiting_per_caller: int = _WAITING_PER_CALLER) -> None:
        if places < 1 or waiting_per_caller < 0:
            raise ValueError("places must be at least 1, and waiting_per_caller at least 0")
        self._places = places
        self._waiting_per_caller = waiting_per_caller
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._served: dict[str, int] = {}
        self._turns = 0

    @property
    def held(self) -> int:
        """Number of places that are held."""
        return self._held.total()

    @property
    def waiting(self) -> int:
        """Number of calls that wait."""
        return sum(len(self._in_line(caller)) for caller in self._waiting)

    @asynccontextmanager
    async def place(self, caller: str) -> AsyncIterator[None]:
        """Hold a place of ``caller`` while the block runs; wait for it if need be.

        Set a time limit around the wait: it has none of its own.

        Raises:
            NoPlaceToWait: too many calls of this caller wait already.
        """
        await self._take(caller)
        try:
            yield
        finally:
            self._give_back(caller)

    async def _take(self, caller: str) -> None:
        waiting = len(self._in_line(caller))
        if not waiting and self._may_start(caller):
            self._start(caller)
            return
        if waiting >= self._waiting_per_caller:
            raise NoPlaceToWait
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, []).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(caller)
            else:
                self._leave(caller, turn)
            raise

    def _give_back(self, caller: str) -> None:
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]
        self._forget(caller)
        self._serve()

    def _serve(self) -> None:
        """Give what is free to those who wait."""
        while ready := [
            caller for caller in self._waiting if self._may_start(caller) and self._in_line(caller)
        ]:
            caller = min(ready, key=lambda each: (self._held[each], self._served.get(each, 0)))
            turn = self._in_line(caller)[0]
            self._start(caller)
            self._leave(caller, turn)
            turn.set_result(None)

    def _in_line(self, caller: str) -> list[asyncio.Future[None]]:
        """Those who still wait: a cancelled one stays in ``_waiting`` until its task resumes."""
        return [turn for turn in self._waiting.get(caller, ()) if not turn.done()]

    def _may_start(self, caller: str) -> bool:
        free = self._places - self.held
        return free > 1 or (free == 1 and (self._places == 1 or caller not in self._held))

    def _start(self, caller: str) -> None:
        self._turns += 1
        self._held[caller] += 1
        self._served[caller] = self._turns

    def _leave(self, caller: str, turn: asyncio.Future[None]) -> None:
        line = [each for each in self._waiting.get(caller, ()) if each is not turn]
        if line:
            self._waiting[caller] = line
        else:
            self._waiting.pop(caller, None)
        self._forget(caller)

    def _forget(self, caller: str) -> None:
        """Keep nothing about callers who are gone."""
        if caller not in self._held and caller not in self._waiting:
            self._served.pop(caller, None)
