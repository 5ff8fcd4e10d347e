"""The gateway of an earlier commit rolled to this one under load, with runs in flight, and back.

``make trial NAME=upgrade`` builds the earlier one from git, in its own environment, and names its
Python. Planner, composer and agents are this commit's: what is on trial is the run log that both
versions write and read, the schema that the newer one leaves behind, and the hand-over of runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import grpc
import pytest
from gateway_harness.crash.approvers import Approvers, check_decisions
from gateway_harness.crash.harness import (
    ASKS,
    MENDS,
    WAITS,
    CrashHarness,
    ask_anywhere,
    cancel_anywhere,
    follow_anywhere,
    open_crash_harness,
)
from gateway_harness.harness import Client, gateway_settings
from gateway_harness.run_contract import Seen, check_contract, stored_runs
from gateway_harness.versions import agrees

from bos.gateway.v1 import APPROVAL_DECISION_APPROVE, Approval
from bos_testkit.waiting import eventually

pytestmark = [pytest.mark.crash, pytest.mark.postgres]

REPLICAS, CLIENTS = 2, 8
RUNS_OF_A_PHASE = 60
"""That end before the next replica is replaced."""
# A lease that a busy machine can keep, people who have time, and runs that wait for them.
SETTINGS = {
    "lease_s": 10,
    "lease_renewal_s": 0.5,
    "approval_timeout_s": 3600,
    "run_timeout_s": 3600,
    "agent_timeout_s": 3600,
    "max_active_runs_per_user": 0,  # all clients are one user
}
_START_S, _STOP_S, _PHASE_S = 120.0, 60.0, 300.0
_KEPT = ("PATH", "HOME")


@pytest.fixture
def earlier() -> Path:
    """Python of the environment of the earlier commit."""
    given = os.environ.get("BOS_TEST_EARLIER_PYTHON")
    assert given, "`make trial NAME=upgrade` builds the earlier version and names its Python here"
    return Path(given)


@dataclass
class Replica:
    """A gateway process of either version."""

    process: Process
    client: Client

    async def drain(self) -> None:
        """End it as a rollout does."""
        self.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(self.process.wait(), _STOP_S) == 0


@dataclass
class Fleet:
    """The replicas of a deployment, which are replaced one after the other."""

    crash: CrashHarness
    stack: AsyncExitStack
    log: Path
    replicas: list[Replica] = field(default_factory=list)

    def where(self) -> Sequence[Client]:
        """Clients of those that are there, in any order."""
        return random.sample([each.client for each in self.replicas], len(self.replicas))

    async def start(self, python: Path) -> Replica:
        """One more replica of that version."""
        return await self.stack.enter_async_context(self._running(python))

    @asynccontextmanager
    async def _running(self, python: Path) -> AsyncIterator[Replica]:
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        settings = gateway_settings(self.crash.harness, **SETTINGS)
        with self.log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *(str(python), "-m", "bos_gateway"),
                env=kept | settings,
                cwd=self.log.parent,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=errors,
            )
        try:
            assert process.stdout is not None
            line = await asyncio.wait_for(process.stdout.readline(), _START_S)
            assert line, self.log.read_text()[-4000:]
            async with grpc.aio.insecure_channel(json.loads(line)["address"]) as channel:
                yield Replica(process, Client(channel, None))  # type: ignore[arg-type]
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    async def roll(self, python: Path, load: Load) -> None:
        """Replace one replica after the other by that version, each while runs begin and end."""
        for _ in range(REPLICAS):
            await load.goes_on()
            leaving = self.replicas.pop(0)
            await leaving.drain()
            self.replicas.append(await self.start(python))
        await load.goes_on()


class Load:
    """Clients that ask one question after the other, reconnecting wherever a gateway is."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._seen = fleet.crash.seen
        self._asking = True
        self._tasks: list[asyncio.Task[None]] = []
        self.ended = 0

    def start(self) -> None:
        """From now on."""
        self._tasks = [asyncio.create_task(self._client(n)) for n in range(CLIENTS)]

    async def goes_on(self) -> None:
        """Wait until another phase's runs have ended."""
        wanted = self.ended + RUNS_OF_A_PHASE
        done = lambda: self.ended >= wanted or any(task.done() for task in self._tasks)  # noqa: E731
        await eventually(done, within_s=_PHASE_S)
        assert self.ended >= wanted, [task for task in self._tasks if task.done()]

    async def end(self) -> None:
        """Ask nothing more, and wait for every answer."""
        self._asking = False
        async with asyncio.timeout(_PHASE_S):
            await asyncio.gather(*self._tasks)

    def cancel(self) -> None:
        """Leave it."""
        for task in self._tasks:
            task.cancel()

    def new(self) -> Seen:
        """One more question's events."""
        seen = Seen(uuid4().hex)
        self._seen.append(seen)
        return seen

    async def _client(self, number: int) -> None:
        turn = number
        while self._asking:
            turn += 1
            question, seen = f"Question {number}/{turn}", self.new()
            if turn % 4 == 0:
                await ask_anywhere(self._fleet.where, f"{question}?", seen)
            elif turn % 4 == 1:
                await self._ask_and_cancel(f"{question} to {WAITS}?", seen)
            else:
                mends = f" to {MENDS}" if turn % 4 == 2 else ""
                await follow_anywhere(self._fleet.where, f"{question}{mends}?", seen)
            self.ended += 1

    async def _ask_and_cancel(self, question: str, seen: Seen) -> None:
        following = asyncio.create_task(follow_anywhere(self._fleet.where, question, seen))
        try:
            await eventually(lambda: bool(seen.events) or following.done(), within_s=_PHASE_S)
            await cancel_anywhere(self._fleet.where, seen)
            await following
        finally:
            following.cancel()


@dataclass
class Held:
    """A run that waits for two approvals and for a step; it lives through a whole rollout."""

    seen: Seen
    following: asyncio.Task[None]

    def requests(self) -> list[Approval]:
        """What was asked for."""
        kind = "approval_requested"
        return [e.approval_requested.approval for e in self.seen.events if e.HasField(kind)]


async def hold(fleet: Fleet, load: Load, name: str) -> Held:
    """Ask, and wait until the run waits for people."""
    seen = load.new()
    question = f"{name}: {ASKS}, and {WAITS}?"
    held = Held(seen, asyncio.create_task(follow_anywhere(fleet.where, question, seen)))
    await eventually(lambda: len(held.requests()) == 2, within_s=_PHASE_S)
    return held


@pytest.mark.timeout(1800)
async def test_upgrade_and_rollback_of_an_earlier_commit_under_load(
    empty_postgres_dsn: str, earlier: Path, tmp_path: Path
) -> None:
    this = Path(sys.executable)
    async with (
        open_crash_harness(empty_postgres_dsn, takes_s=0.05) as crash,
        AsyncExitStack() as stack,
    ):
        fleet = Fleet(crash, stack, tmp_path / "gateways.log")
        people = Approvers(fleet.where, random.Random(0))
        # The schema is the earlier commit's own.
        fleet.replicas = [await fleet.start(earlier) for _ in range(REPLICAS)]
        load = Load(fleet)
        load.start()
        stack.callback(load.cancel)
        by_the_earlier = await hold(fleet, load, "Before the upgrade")
        await fleet.roll(this, load)
        by_this = await hold(fleet, load, "Before the way back")
        await approve(people, by_the_earlier)
        await fleet.roll(earlier, load)
        await approve(people, by_this)
        await fleet.roll(this, load)
        await load.end()
        crash.slow.gate.set()
        async with asyncio.timeout(_PHASE_S):
            await asyncio.gather(by_the_earlier.following, by_this.following)
        verdict = await check_contract(empty_postgres_dsn, crash.seen, crash.witnesses, agrees)
        decided = await check_decisions(crash, people)
        runs = await stored_runs(empty_postgres_dsn)
    assert verdict.broken == []
    assert decided.lost + decided.doubled == []
    assert decided.effects == 4
    assert verdict.runs == len(crash.seen)
    # Runs were in flight: some had owners of both versions.
    handed_over = [
        run for run in runs.values() if any(e.HasField("run_adopted") for e in run.events)
    ]
    assert handed_over
    print(f"{verdict.runs} runs, {len(handed_over)} of them handed over; nothing lost or doubled")


async def approve(people: Approvers, held: Held) -> None:
    """Allow everything that the run asked for."""
    for approval in held.requests():
        await people.respond(approval, APPROVAL_DECISION_APPROVE)
