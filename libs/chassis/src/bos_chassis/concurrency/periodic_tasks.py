"""Periodic background tasks: repeated until cancelled; failures are logged and retried."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bos_errors import BosError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from structlog.typing import FilteringBoundLogger

    PeriodicTask = Callable[[], Awaitable[object]]


@asynccontextmanager
async def periodic_tasks(
    log: FilteringBoundLogger, tasks: Mapping[str, PeriodicTask], *, retry_s: float
) -> AsyncIterator[None]:
    """Run each task by name, repeatedly and concurrently, while the block runs.

    Args:
        log: Receives failures, with the name of the task.
        tasks: One run of each; it ends with the wait for the next one.
        retry_s: Seconds from a run that failed to the next.
    """

    async def repeat(name: str, run: PeriodicTask) -> None:
        while True:
            try:
                await run()
                await asyncio.sleep(0)  # also if it had nothing to wait for
                continue
            except BosError as error:
                log.warning("periodic task failed", task=name, reason=error.reason, at=str(error))
            except Exception:
                # After any error, the next run must come.
                log.exception("periodic task failed", task=name)
            await asyncio.sleep(retry_s)

    running = [asyncio.create_task(repeat(*each), name=each[0]) for each in tasks.items()]
    try:
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
