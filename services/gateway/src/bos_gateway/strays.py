"""Runs that are ours in the database, though nobody drives them here.

Taking a run over and driving it are two things, and the connection can be lost in between: then the
adoption stands and its answer never came, or a run that went wrong could not be let go. While this
replica lives nobody else takes such a run, so it must notice by itself.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from uuid import UUID

    from bos_gateway.ownership import Adopted, Ownership

# Longer than it takes from a commit to the loop that drives the run. Who is let go too early is
# fenced off, and taken over from the log.
_GRACE_S: Final = 5.0
# Seldom: what an index still holds of runs that ended here is read as well, until it is vacuumed.
_LOOK_S: Final = 10.0


class Strays:
    """Finds them and lets them go.

    Args:
        ownership: The statements.
    """

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self._since: dict[tuple[UUID, int], float] = {}
        self._resuming: set[Adopted] = set()
        self._look_at = 0.0

    @contextmanager
    def spared(self, adopted: Collection[Adopted]) -> Iterator[None]:
        """Leave these alone during the block: they are taken up, which lasts while there are many.

        The same run may be among several of them, each time at another epoch.
        """
        self._resuming.update(adopted)
        try:
            yield
        finally:
            self._resuming.difference_update(adopted)

    async def let_go(self, driven: Collection[UUID]) -> int:
        """Release what was ours for a while, neither ``driven`` nor spared; returns how many.

        Looks only now and then.

        Raises:
            BosError: the database is away; the next call goes on.
        """
        now = time.monotonic()
        if now < self._look_at:
            return 0
        resuming = {each.run_id for each in self._resuming}
        undriven = await self._ownership.undriven(resuming.union(driven))
        self._since = {each: self._since.get(each, now) for each in undriven}
        strays = [each for each, since in self._since.items() if now - since >= _GRACE_S]
        for run_id, epoch in strays:
            await self._ownership.release(run_id, epoch)
        self._look_at = now + (_GRACE_S if self._since else _LOOK_S)
        return len(strays)
