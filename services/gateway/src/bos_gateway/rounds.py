"""Background loops that repeat while the process lives; failures are logged and tried again."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bos_errors import BosError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from bos_chassis.telemetry import Telemetry

    Round = Callable[[], Awaitable[object]]


@asynccontextmanager
async def for_ever(
    telemetry: Telemetry, again_s: float, rounds: Mapping[str, Round]
) -> AsyncIterator[None]:
    """Do each of these by name, over and over and beside the others, while the block runs.

    Args:
        telemetry: For the log.
        again_s: Seconds from a round that failed to the next.
        rounds: What to do; a round ends with the time to wait for the next.
    """
    log = telemetry.logger("bos.gateway.rounds")

    async def repeat(what: str, do_round: Round) -> None:
        while True:
            try:
                await do_round()
                await asyncio.sleep(0)  # also if it had nothing to wait for
                continue
            except BosError as error:
                log.warning("round put off", what=what, reason=error.reason, at=str(error))
            except Exception:
                # After any error, the next round must come.
                log.exception("round failed", what=what)
            await asyncio.sleep(again_s)

    tasks = [asyncio.create_task(repeat(*each), name=each[0]) for each in rounds.items()]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
