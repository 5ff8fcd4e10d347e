"""Clients of gateways that are ended or frozen, and what a crash test waits for."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import uuid4

from bos_testkit.waiting import eventually
from gateway_harness.crash.harness import (
    CrashHarness,
    Gateway,
    ask_anywhere,
    crashing_gateway,
    follow_anywhere,
)
from gateway_harness.harness import Client
from gateway_harness.run_contract import Seen, Verdict, check_contract
from gateway_harness.stored import until

EACH = 3
"""Clients per gateway."""


@asynccontextmanager
async def gateways(crash: CrashHarness, *failpoints: str) -> AsyncIterator[list[Gateway]]:
    """Gateways with these failpoints, started at the same time."""
    async with AsyncExitStack() as stack:
        entering = [stack.enter_async_context(crashing_gateway(crash, f)) for f in failpoints]
        yield list(await asyncio.gather(*entering))


@asynccontextmanager
async def ended_at(crash: CrashHarness, kind: str, nth: int = 1) -> AsyncIterator[list[Gateway]]:
    """A gateway that is killed before the nth commit of this kind, one after it, and a third."""
    victims = (f"kill {kind}:{moment} {nth}" for moment in ("before", "after"))
    async with gateways(crash, *victims, "disarm") as found:
        yield found


class Clients:
    def __init__(self, crash: CrashHarness) -> None:
        self._crash = crash
        self._tasks: list[asyncio.Task[None]] = []

    def ask(self, where: Callable[[], Sequence[Client]], question: str, times: int) -> list[Seen]:
        """Ask, and follow to the end; returns those with a stream, all but the last of several."""
        asked = []
        for n in range(times):
            seen = Seen(uuid4().hex)
            self._crash.seen.append(seen)
            unary = 0 < n == times - 1
            if not unary:
                asked.append(seen)
            follow = ask_anywhere if unary else follow_anywhere
            self._tasks.append(asyncio.create_task(follow(where, f"{question} {n}", seen)))
        return asked

    def follow(self, where: Callable[[], Sequence[Client]], question: str, seen: Seen) -> None:
        self._crash.seen.append(seen)
        self._tasks.append(asyncio.create_task(follow_anywhere(where, question, seen)))

    async def ended(self, *, may_be_late: bool = False) -> Verdict:
        """Wait for every end, and check the contract.

        What a frozen gateway had sent may reach its agent behind the end: ``may_be_late``.
        """
        async with asyncio.timeout(100):
            await asyncio.gather(*self._tasks)
        crash = self._crash
        verdict = await check_contract(crash.harness.dsn, crash.seen, crash.witnesses)
        assert not verdict.broken, verdict
        assert may_be_late or not verdict.late
        assert verdict.runs == len({seen.request_id for seen in crash.seen})
        return verdict


def at(*found: Gateway) -> Callable[[], list[Client]]:
    """Where clients go, the first one first, while it lives: then its port may be another's."""
    return lambda: [each.client for each in found if each.process.returncode is None]


async def until_waiting(crash: CrashHarness, runs: int) -> None:
    """Until so many steps have reached the agent that waits, and all logs say so."""
    await eventually(lambda: len(crash.slow.executions) >= runs)
    # Who waits may be asked while the word of it is on its way to the log.
    dispatched = "kind = 'step_dispatched' AND position('slow'::bytea IN payload) > 0"
    await until(crash.harness.dsn, f"count(*) >= $1 FROM run_events WHERE {dispatched}", runs)


def has_seen(clients: Sequence[Seen], kind: str, times: int) -> bool:
    return all(sum(event.HasField(kind) for event in seen.events) >= times for seen in clients)


async def lease_ran_out(crash: CrashHarness, gateway: Gateway) -> None:
    over = "bool_and(lease_until < now()) FROM replicas WHERE replica_id = $1"
    await until(crash.harness.dsn, over, gateway.replica_id)


async def adopted(crash: CrashHarness) -> None:
    await until(crash.harness.dsn, "count(*) > 0 FROM run_events WHERE kind = 'run_adopted'")
