"""Periodic deletion of old rows: used tokens and codes, ended sessions, forgotten attempts."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from bos_chassis.concurrency.tasks import running_task
from bos_errors import BosError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from bos_chassis.telemetry import Telemetry

_INTERVAL_S = 60.0
_BATCH = 500


class Ageing(Protocol):
    """A table whose rows expire."""

    async def forget_old(self, batch: int) -> int:
        """Delete a batch of them; returns how many rows that were."""


@asynccontextmanager
async def running_maintenance(
    tables: Sequence[Ageing], telemetry: Telemetry
) -> AsyncIterator[None]:
    """Delete in small batches, of each of the tables, while the block runs."""
    log = telemetry.logger("bos.identity.upkeep")

    async def for_ever() -> None:
        while True:
            try:
                done = sum([await table.forget_old(_BATCH) for table in tables])
            except BosError as error:
                log.warning("upkeep failed", reason=error.reason)
                done = 0
            except Exception:
                # After any error, the next round must come.
                log.exception("upkeep failed")
                done = 0
            await asyncio.sleep(_INTERVAL_S if done < _BATCH else 1.0)

    async with running_task(for_ever(), "identity upkeep"):
        yield
