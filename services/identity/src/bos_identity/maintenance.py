"""Periodic deletion of old rows: used tokens and codes, ended sessions, forgotten attempts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from bos_chassis.concurrency.periodic_tasks import periodic_tasks
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

    async def delete_batch() -> None:
        done = sum([await table.forget_old(_BATCH) for table in tables])
        await asyncio.sleep(_INTERVAL_S if done < _BATCH else 1.0)

    async with periodic_tasks(log, {"identity maintenance": delete_batch}, retry_s=_INTERVAL_S):
        yield
