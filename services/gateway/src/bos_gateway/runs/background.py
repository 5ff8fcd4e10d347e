"""Background work of a replica: lease, adoption, inputs, approval time-outs, gauges, LISTEN."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from bos_chassis.concurrency.periodic_tasks import periodic_tasks
from bos_gateway.run_log.notifications import POLL_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from bos_chassis.concurrency.periodic_tasks import PeriodicTask
    from bos_chassis.telemetry import Telemetry
    from bos_gateway.run_log.approvals import ApprovalGauges, Approvals
    from bos_gateway.run_log.store_gauges import StoreGauges
    from bos_gateway.runs.replica import Replica

_RETRY_S = 0.2
# Between two shares of what is to be adopted: time for the others to take theirs.
_NEXT_SHARE_S = 0.1
# A lease that is about to run out is looked at just after that, not just before.
_JUST_AFTER_S = 0.02


@asynccontextmanager
async def running_replica(
    replica: Replica,
    approvals: Approvals,
    waiting: ApprovalGauges,
    store: StoreGauges,
    telemetry: Telemetry,
) -> AsyncIterator[None]:
    """Hold the lease and adopt runs while the block runs; release everything afterwards.

    Raises:
        BosError: the lease cannot be taken to begin with.
    """
    lease, notifications = replica.lease, replica.notifications
    log = telemetry.logger("bos.gateway.background")

    async def keep_lease() -> None:
        await lease.until_lost()
        if replica.stopping:
            await asyncio.Event().wait()  # a process on its way out takes no other lease
        await replica.suspend()
        await replica.take_lease()
        log.info("lease reacquired")

    timed_out = asyncio.Event()

    async def look() -> None:
        notifications.released.clear()
        seen = await replica.ownership.look()
        due = [due_s for due_s in (seen.expiry_s, seen.time_out_s) if due_s is not None]
        wait_s = min([POLL_S, *(due_s + _JUST_AFTER_S for due_s in due if due_s >= 0)])
        if seen.time_out_s is not None and seen.time_out_s <= 0:
            timed_out.set()
        if await replica.adopt(seen):
            wait_s = _NEXT_SHARE_S
        await _woken(notifications.released, wait_s)

    async def take_inputs() -> None:
        notifications.inputs.clear()
        await replica.take_inputs()
        await _woken(notifications.inputs, POLL_S)

    async def time_out_approvals() -> None:
        await timed_out.wait()
        timed_out.clear()
        await approvals.time_out()

    async def follow() -> None:
        await replica.reader.look()
        await asyncio.sleep(POLL_S)

    async def count_waiting() -> None:
        await asyncio.sleep(await waiting.refresh())

    async def measure_store() -> None:
        await asyncio.sleep(await store.refresh())

    await replica.take_lease()
    tasks: Mapping[str, PeriodicTask] = {
        "lease": keep_lease,
        "looking": look,
        "inputs": take_inputs,
        "approvals": time_out_approvals,
        "waiting": count_waiting,
        "store": measure_store,
        "notifying": notifications.send_pending,
        "listening": lambda: notifications.listen(replica.drives),
        "answers": lambda: notifications.answers.write_changed(replica.answer),
        "following": follow,
        "traces": replica.traces.export_next,
    }
    async with lease:
        try:
            async with periodic_tasks(log, tasks, retry_s=_RETRY_S):
                yield
        finally:
            await replica.stop()


async def _woken(event: asyncio.Event, timeout_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):  # unlike wait_for it loses no cancellation
            await event.wait()
