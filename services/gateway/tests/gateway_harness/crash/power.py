"""``make trial NAME=power``: PostgreSQL and every gateway killed in one moment, under load.

::

    PYTHONPATH=services/gateway/tests python -m gateway_harness.crash.power --rounds 100 [--seed N]

As when the power of a whole room fails: what was only in memory is gone, on both sides. What any
client had seen until then must be in the logs afterwards, and goes on from there. The server's
background writer is slowed down (``crash/crashing_postgres.py``), so that a commit that does not
wait for the disk is lost for sure.
"""

import argparse
import asyncio
import os
import random
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from uuid import uuid4

from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from bos_testkit.waiting import eventually
from gateway_harness.crash.crashing_postgres import CrashingPostgres, crashing_postgres
from gateway_harness.crash.harness import (
    MENDS,
    CrashHarness,
    Gateway,
    ask_anywhere,
    follow_anywhere,
    open_crash_harness,
    replica_process,
)
from gateway_harness.harness import Client
from gateway_harness.run_contract import Seen, Verdict, check_contract

_GATEWAYS = 2
_CLIENTS = 16
_TAKES_S = 0.05
_ENDS_WITHIN_S = 120.0
_LONGEST_S = 2.0
_LEASE = {"lease_s": 3, "lease_renewal_s": 1}


@dataclass
class Power:
    """Gateways, clients that never stop asking, and the moment in which everything is gone."""

    crash: CrashHarness
    postgres: CrashingPostgres
    random: random.Random
    lost: set[str] = field(default_factory=set)
    """What clients had seen and is not stored after a crash."""
    checked: int = 0
    """Events and answers that were looked for."""
    up: list[Gateway] = field(default_factory=list)
    asking: bool = True

    async def round(self, stack: AsyncExitStack) -> None:
        """Start gateways, let clients ask for a moment, kill everything, and look."""
        starting = [
            stack.enter_async_context(replica_process(self.crash.harness, **_LEASE))
            for _ in range(_GATEWAYS)
        ]
        self.up = list(await asyncio.gather(*starting))
        before = self._count_seen()
        await eventually(lambda: self._count_seen() > before, within_s=_ENDS_WITHIN_S)
        await asyncio.sleep(self.random.uniform(0.0, _LONGEST_S))
        victims, self.up = self.up, []
        crashing = asyncio.create_task(self.postgres.crash())
        for gateway in victims:
            gateway.process.kill()
        await crashing
        for gateway in victims:
            await gateway.process.wait()
        # What is still on its way to clients was sent before that moment.
        await asyncio.sleep(0.1)
        seen_runs = [(s.request_id, len(s.events), s.response) for s in self.crash.seen if known(s)]
        highest = {s.request_id: s.events[-1].sequence for s in self.crash.seen if s.events}
        await self.postgres.start()
        await self._look([request_id for request_id, *_ in seen_runs], highest)

    async def _look(self, seen_runs: Sequence[str], highest: dict[str, int]) -> None:
        """Before any gateway is there to write something."""
        async with connect(self.crash.harness.dsn, schema=SCHEMA) as connection:
            rows = await connection.fetch(
                "SELECT r.request_id, r.finished_at IS NOT NULL AS ended, max(e.sequence) AS last "
                "FROM runs AS r LEFT JOIN run_events AS e USING (run_id) "
                "WHERE r.request_id = ANY ($1) GROUP BY r.run_id",
                seen_runs,
            )
        stored = {row["request_id"]: row for row in rows}
        for request_id in seen_runs:
            self.checked += 1
            row = stored.get(request_id)
            if row is None:
                self.lost.add(f"{request_id}: accepted, and gone")
            elif request_id not in highest and not row["ended"]:
                self.lost.add(f"{request_id}: answered, and not ended")
            elif (row["last"] or 0) < highest.get(request_id, 0):
                self.lost.add(f"{request_id}: {highest[request_id]} seen, {row['last']} stored")

    def _count_seen(self) -> int:
        return sum(len(seen.events) for seen in self.crash.seen)

    def where(self) -> list[Client]:
        """Clients of the gateways that there are, a drawn one first."""
        clients = [gateway.client for gateway in self.up]
        self.random.shuffle(clients)
        return clients

    async def ask(self, number: int) -> None:
        """One question after the other, each to its end."""
        asked = 0
        while self.asking:
            asked += 1
            seen = Seen(uuid4().hex)
            self.crash.seen.append(seen)
            mends = f" to {MENDS}" if asked % 3 == 0 else ""
            follow = ask_anywhere if asked % 5 == 0 else follow_anywhere
            await follow(self.where, f"Question {number}/{asked}{mends}?", seen)


def known(seen: Seen) -> bool:
    """Whether the client got the id of its run."""
    return bool(seen.events) or seen.response is not None


async def power_cuts(
    rounds: int, seed: int, *, seconds: float = 1e9, say: bool = False
) -> tuple[Power, Verdict]:
    """As many crashes on one database, then every end awaited and the whole contract checked."""
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        postgres = await stack.enter_async_context(crashing_postgres())
        crash = await stack.enter_async_context(open_crash_harness(postgres.dsn, takes_s=_TAKES_S))
        power = Power(crash, postgres, random.Random(seed))
        clients = [asyncio.create_task(power.ask(n)) for n in range(_CLIENTS)]
        try:
            for number in range(rounds):
                async with AsyncExitStack() as gateways:
                    await power.round(gateways)
                if say:
                    print(
                        f"{number + 1} of {rounds}: {power.checked} looked for, "
                        f"lost {len(power.lost)}", flush=True,
                    )  # fmt: skip
                if time.monotonic() - began > seconds:
                    break
            power.asking = False
            async with AsyncExitStack() as last:
                starting = replica_process(crash.harness, **_LEASE)
                power.up = [await last.enter_async_context(starting)]
                async with asyncio.timeout(_ENDS_WITHIN_S):
                    await asyncio.gather(*clients)
            verdict = await check_contract(crash.harness.dsn, crash.seen, crash.witnesses)
        finally:
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
    return power, verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=3600.0, help="most time")
    options = parser.parse_args()
    power, verdict = asyncio.run(
        power_cuts(options.rounds, options.seed, seconds=options.seconds, say=True)
    )
    for found in [*sorted(power.lost), *verdict.broken]:
        print(f"  {found}")
    print(
        f"seed {options.seed}: {verdict.runs} runs, {verdict.events} events; missing after a crash "
        f"{len(power.lost)}, lost {len(verdict.lost)}, doubled {len(verdict.doubled)}, innocent "
        f"failed {len(verdict.innocent_failed)}, late {len(verdict.late)}"
    )
    return 1 if power.lost or verdict.broken else 0


if __name__ == "__main__":
    sys.exit(main())
