"""What goes on beside the runs: lease, adoption, inputs, time-outs, gauges, and the bulletin."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from attrs import define, field

from bos_gateway.bulletin import POLL_S
from bos_gateway.rounds import for_ever
from bos_postgres import fetch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    import asyncpg

    from bos_chassis.telemetry import Telemetry
    from bos_gateway.approvals import Approvals
    from bos_gateway.metrics import GatewayMetrics
    from bos_gateway.replica import Replica
    from bos_gateway.rounds import Round

_RETRY_S = 0.2
# Between two shares of what is to be adopted: time for the others to take theirs.
_NEXT_SHARE_S = 0.1
# A lease that is about to run out is looked at just after that, not just before.
_JUST_AFTER_S = 0.02

_WAITING_S: Final = 5.0
# So many are counted in milliseconds; of more, the time to the next look grows with them.
_FEW: Final = 20_000
_WAITING: Final = """
SELECT agent_name, tools, count(*)::bigint AS waiting,
       greatest(0, extract(epoch FROM now() - min(created_at)))::float8 AS oldest_s
FROM approvals WHERE status = 1
GROUP BY agent_name, tools
"""


@asynccontextmanager
async def running_replica(
    replica: Replica, approvals: Approvals, waiting: WaitingApprovals, telemetry: Telemetry
) -> AsyncIterator[None]:
    """Hold the lease and adopt runs while the block runs; let go of everything afterwards.

    Raises:
        BosError: the lease cannot be taken to begin with.
    """
    lease, bulletin = replica.lease, replica.bulletin
    log = telemetry.logger("bos.gateway.housekeeping")

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
        seen = await replica.ownership.look()
        due = [due_s for due_s in (seen.expiry_s, seen.time_out_s) if due_s is not None]
        wait_s = min([POLL_S, *(due_s + _JUST_AFTER_S for due_s in due if due_s >= 0)])
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
    rounds: Mapping[str, Round] = {
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
        try:
            async with for_ever(telemetry, _RETRY_S, rounds):
                yield
        finally:
            await replica.stop()


async def _woken(event: asyncio.Event, timeout_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):  # unlike wait_for it loses no cancellation
            await event.wait()


@define(eq=False)
class WaitingApprovals:
    """How many requests wait for a person, and for how long: two gauges, from an index.

    Runs that wait belong to nobody, so every gateway counts all of them and shows the same figures:
    the more there are, the less often.
    """

    _pool: asyncpg.Pool[asyncpg.Record]
    _metrics: GatewayMetrics
    _shown: set[tuple[str, str]] = field(init=False, factory=set)

    async def look(self) -> float:
        """Count; what has waited before and does no more is shown as 0.

        Returns:
            Seconds until the next look.

        Raises:
            BosError: the database is away; the gauges stay as they were.
        """
        found: dict[tuple[str, str], tuple[int, float]] = {
            (agent, tools): (waiting, oldest_s)
            for agent, tools, waiting, oldest_s in await fetch(self._pool, _WAITING)
        }
        self._shown |= found.keys()
        for labels in self._shown:
            waiting, oldest_s = found.get(labels, (0, 0.0))
            self._metrics.approvals_waiting.labels(*labels).set(waiting)
            self._metrics.approvals_oldest_seconds.labels(*labels).set(oldest_s)
        count = sum(waiting for waiting, _ in found.values())
        return _WAITING_S * max(1.0, count / _FEW)
