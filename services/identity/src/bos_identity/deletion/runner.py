"""Going on with the deletion of accounts, in the background, wherever it was broken off."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from bos_chassis.backoff import Backoff
from bos_chassis.concurrency.periodic_tasks import periodic_tasks
from bos_errors import BosError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from structlog.typing import FilteringBoundLogger

    from bos_identity.deletion.data_services import DataServices
    from bos_identity.deletion.store import AccountDeletions, Taken
    from bos_identity.metrics import IdentityMetrics

_LOOK_S: Final = 2.0
_LEASE_S: Final = 60.0
"""For one call of a service, with room to spare: it has 30 seconds."""
_RUNS_END_S: Final = 0.5
_RETRY: Final = Backoff(first_s=1.0, cap_s=60.0)


class DeletionRunner:
    """Deletes closed accounts with everything that services hold of them.

    One service after the other, each until it has nothing left: runs first, as they may still
    write into others. Every step can be repeated, so it does not matter who goes on, or twice.

    Args:
        deletions: What is to be done.
        services: What holds data of accounts, in this order.
        metrics: Of the service.
        log: Of the service.
    """

    def __init__(
        self,
        deletions: AccountDeletions,
        services: DataServices,
        metrics: IdentityMetrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._deletions = deletions
        self._services = services
        self._metrics = metrics
        self._log = log
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Start the next round at once."""
        self._wake.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Work while the block runs."""
        self._wake.set()
        async with periodic_tasks(self._log, {"account deletions": self._delete_due}, retry_s=0.0):
            yield

    async def _delete_due(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), _LOOK_S)
        self._wake.clear()
        while await self._once():
            pass
        pending, oldest_s = await self._deletions.pending()
        self._metrics.deletions_pending.set(pending)
        self._metrics.deletions_oldest.set(oldest_s)

    async def _once(self) -> bool:
        """Go on with one account by a call or so; whether there was one."""
        if not self._services.known:
            return False  # another replica may know them, or this one in a while
        taken = await self._deletions.take(_LEASE_S)
        if taken is None:
            return False
        waiting_for = ""
        try:
            for waiting_for in self._services.names():
                response = await self._services.erase(waiting_for, taken.user_id)
                if not response.done:
                    await self._go_on(taken, waiting_for, response.runs_ending)
                    return True
        except BosError as error:
            await self._put_off(taken, f"{waiting_for}: {error.reason}")
            return True
        if not taken.is_over:
            await self._deletions.erased(taken.user_id)
            self._log.info("account data erased", user=str(taken.user_id))
            return True
        await self._deletions.end(taken.user_id)
        self._log.info("account deleted", user=str(taken.user_id))
        return True

    async def _go_on(self, taken: Taken, service: str, runs_ending: int) -> None:
        why = f"{service}: {runs_ending} runs are ending" if runs_ending else ""
        pause_s = _RUNS_END_S if runs_ending else 0.0
        await self._deletions.wait(taken.user_id, pause_s, why, failed=False)

    async def _put_off(self, taken: Taken, why: str) -> None:
        pause_s = _RETRY.delay(taken.failures + 1)
        await self._deletions.wait(taken.user_id, pause_s, why, failed=True)
        self._log.warning(
            "account deletion waits", user=str(taken.user_id), why=why, pause_s=pause_s
        )
