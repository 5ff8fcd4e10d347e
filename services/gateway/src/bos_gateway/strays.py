"""Runs that are ours in the database, though nobody drives them here.

Taking a run over and driving it are two things, and the connection can be lost in between: then the
adoption stands and its answer never came, or a run that went wrong could not be let go. While this
replica lives nobody else takes such a run, so it must notice by itself.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from bos_chassis.errors import BosError

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    from bos_gateway.ownership import Ownership

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
        self._look_at = 0.0

    async def let_go(self, held: Collection[UUID]) -> int:
        """Release what was ours for a while and is not ``held`` here; returns how many runs.

        Looks only now and then. What cannot be released, as its row is locked, is left for the next
        time and keeps no other from it.

        Raises:
            BosError: the database is away; the next call goes on.
        """
        now = time.monotonic()
        if now < self._look_at:
            return 0
        undriven = await self._ownership.undriven(held)
        self._since = {each: self._since.get(each, now) for each in undriven}
        self._look_at = now + (_GRACE_S if self._since else _LOOK_S)
        strays = [each for each, since in self._since.items() if now - since >= _GRACE_S]
        return sum([await self._released(run_id, epoch) for run_id, epoch in strays])

    async def _released(self, run_id: UUID, epoch: int) -> bool:
        try:
            return await self._ownership.release(run_id, epoch)
        except BosError:
            return False
