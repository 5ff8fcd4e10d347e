"""What is deleted by and by: used tokens, sessions that ended long ago, forgotten attempts."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from bos_chassis.errors import BosError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_chassis.telemetry import Telemetry
    from bos_identity.sessions import Sessions
    from bos_identity.throttle import Throttle

_INTERVAL_S = 60.0
_BATCH = 500


@asynccontextmanager
async def running_upkeep(
    sessions: Sessions, throttle: Throttle, telemetry: Telemetry
) -> AsyncIterator[None]:
    """Delete in small batches while the block runs."""
    log = telemetry.logger("bos.identity.upkeep")

    async def for_ever() -> None:
        while True:
            try:
                done = await sessions.forget_old(_BATCH) + await throttle.forget_old(_BATCH)
            except BosError as error:
                log.warning("upkeep failed", reason=error.reason)
                done = 0
            except Exception:
                # Whatever it was, the next round must come.
                log.exception("upkeep failed")
                done = 0
            await asyncio.sleep(_INTERVAL_S if done < _BATCH else 1.0)

    task = asyncio.create_task(for_ever(), name="identity upkeep")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
