"""What goes on beside the runs: lease, adoption, inputs, time-outs, and the bulletin."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from bos_gateway.bulletin import POLL_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bos_chassis.telemetry import Telemetry
    from bos_gateway.approvals import Approvals
    from bos_gateway.bulletin import Bulletin
    from bos_gateway.lease import Lease
    from bos_gateway.replica import Replica
    from bos_gateway.waiting import WaitingApprovals

_RETRY_S = 0.2
# Between two shares of what is to be adopted: time for the others to take theirs.
_NEXT_SHARE_S = 0.1
# A lease that is about to run out is looked at just after that, not just before.
_JUST_AFTER_S = 0.02


@asynccontextmanager
async def running_replica(
    replica: Replica,
    lease: Lease,
    bulletin: Bulletin,
    approvals: Approvals,
    waiting: WaitingApprovals,
    telemetry: Telemetry,
) -> AsyncIterator[Replica]:
    """Hold the lease and adopt runs while the block runs; let go of everything afterwards.

    Raises:
        BosError: the lease cannot be taken to begin with.
    """
    log = telemetry.logger("bos.gateway.housekeeping")

    async def for_ever(what: str, action: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await action()
                await asyncio.sleep(0)  # also if it had nothing to wait for
            except Exception:
                # Whatever it was, the next round must come.
                log.exception("housekeeping failed", what=what)
                await asyncio.sleep(_RETRY_S)

    async def keep_lease() -> None:
        await lease.until_lost()
        if replica.stopping:
            await asyncio.Event().wait()  # a process on its way out takes no other lease
        await replica.suspend()
        await replica.take_lease()
        log.info("lease taken again")

    timed_out = asyncio.Event()

    async def look() -> None:
        bulletin.released.clear()
        seen = await replica.look()
        wait_s = POLL_S
        for due_s in (seen.expiry_s, seen.time_out_s):
            wait_s = wait_s if due_s is None or due_s < 0 else min(wait_s, due_s + _JUST_AFTER_S)
        if seen.time_out_s is not None and seen.time_out_s <= 0:
            timed_out.set()
        if await replica.adopt(seen):
            wait_s = _NEXT_SHARE_S
        await _woken(bulletin.released, wait_s)

    async def take_inputs() -> None:
        bulletin.inputs.clear()
        await replica.take_inputs()
        await _woken(bulletin.inputs, POLL_S)

    async def time_out_approvals() -> None:
        await timed_out.wait()
        timed_out.clear()
        await approvals.time_out()

    async def follow() -> None:
        await replica.reader.look()
        await asyncio.sleep(POLL_S)

    async def count_waiting() -> None:
        await asyncio.sleep(await waiting.look())

    await replica.take_lease()
    rounds: dict[str, Callable[[], Awaitable[object]]] = {
        "lease": keep_lease,
        "looking": look,
        "inputs": take_inputs,
        "approvals": time_out_approvals,
        "waiting": count_waiting,
        "telling": bulletin.tell_for_ever,
        "listening": lambda: bulletin.listen_for_ever(replica.drives),
        "answers": lambda: bulletin.answers.write_for_ever(replica.answer),
        "following": follow,
    }
    async with lease:
        tasks = [asyncio.create_task(for_ever(*each), name=each[0]) for each in rounds.items()]
        try:
            yield replica
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await replica.stop()


async def _woken(event: asyncio.Event, timeout_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
