"""The gateway of an earlier commit rolled to this one under load, with runs in flight, and back.

``make trial NAME=upgrade`` builds the earlier one from git, in its own environment, and names its
Python. Planner, composer and agents are this commit's: what is on trial is the run log that both
versions write and read, the schema that the newer one leaves behind, and the hand-over of runs.
"""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from gateway_harness.crash.approvers import Approvers, check_decisions, requests_in
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
from gateway_harness.harness import Client, gateway_process
from gateway_harness.run_contract import Seen, check_contract
from gateway_harness.stored import adoptions, log_of
from gateway_harness.versions import agrees

from bos.gateway.v1 import APPROVAL_DECISION_APPROVE
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
_STOP_S, _PHASE_S = 60.0, 300.0


@pytest.fixture
def earlier() -> Path:
    """Python of the environment of the earlier commit."""
    given = os.environ.get("BOS_TEST_EARLIER_PYTHON")
    assert given, "`make trial NAME=upgrade` builds the earlier version and names its Python here"
    return Path(given)


@dataclass
class Fleet:
    """The replicas of a deployment, replaced one after the other, and clients that never rest."""

    crash: CrashHarness
    stack: AsyncExitStack
    log: Any
    replicas: list[tuple[Any, Client]] = field(default_factory=list)
    clients: list[asyncio.Task[None]] = field(default_factory=list)
    asking: bool = True
    ended: int = 0

    def where(self) -> Sequence[Client]:
        """Clients of those that are there, in any order."""
        return random.sample([client for _, client in self.replicas], len(self.replicas))

    async def start(self, python: Path) -> None:
        starting = gateway_process(self.crash.harness, python=python, log=self.log, **SETTINGS)
        self.replicas.append(await self.stack.enter_async_context(starting))

    async def roll(self, python: Path) -> None:
        """Replace one replica after the other by that version, each while runs begin and end."""
        for _ in range(REPLICAS):
            await self.goes_on()
            process, _ = self.replicas.pop(0)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), _STOP_S) == 0
            await self.start(python)
        await self.goes_on()

    async def goes_on(self) -> None:
        """Wait until another phase's runs have ended."""
        wanted = self.ended + RUNS_OF_A_PHASE
        failed = lambda: any(task.done() for task in self.clients)  # noqa: E731
        await eventually(lambda: self.ended >= wanted or failed(), within_s=_PHASE_S)
        assert not failed(), [task for task in self.clients if task.done()]

    def new(self) -> Seen:
        self.crash.seen.append(Seen(uuid4().hex))
        return self.crash.seen[-1]

    async def client(self, number: int) -> None:
        """One question after the other, reconnecting wherever a gateway is."""
        turn = number
        while self.asking:
            turn += 1
            question, seen = f"Question {number}/{turn}", self.new()
            match turn % 4:
                case 0:
                    await ask_anywhere(self.where, f"{question}?", seen)
                case 1:
                    question = f"{question} to {WAITS}?"
                    async with asyncio.TaskGroup() as group:
                        group.create_task(follow_anywhere(self.where, question, seen))
                        await eventually(lambda: bool(seen.events), within_s=_PHASE_S)  # noqa: B023
                        await cancel_anywhere(self.where, seen)
                case 2:
                    await follow_anywhere(self.where, f"{question} to {MENDS}?", seen)
                case _:
                    await follow_anywhere(self.where, f"{question}?", seen)
            self.ended += 1

    async def hold(self, name: str) -> tuple[Seen, asyncio.Task[None]]:
        """A run that waits for two approvals and for a step; it lives through a whole rollout."""
        seen = self.new()
        question = f"{name}: {ASKS}, and {WAITS}?"
        following = asyncio.create_task(follow_anywhere(self.where, question, seen))
        await eventually(lambda: len(requests_in(seen)) == 2, within_s=_PHASE_S)
        return seen, following


@pytest.mark.timeout(1800)
async def test_upgrade_and_rollback_of_an_earlier_commit_under_load(
    empty_postgres_dsn: str, earlier: Path, tmp_path: Path
) -> None:
    this = Path(sys.executable)
    async with (
        open_crash_harness(empty_postgres_dsn, takes_s=0.05) as crash,
        AsyncExitStack() as stack,
    ):
        log = stack.enter_context((tmp_path / "gateways.log").open("ab"))
        fleet = Fleet(crash, stack, log)
        people = Approvers(fleet.where, random.Random(0))

        async def approve(seen: Seen) -> None:
            for approval in requests_in(seen):
                await people.respond(approval, APPROVAL_DECISION_APPROVE)

        # The schema is the earlier commit's own.
        for _ in range(REPLICAS):
            await fleet.start(earlier)
        fleet.clients = [asyncio.create_task(fleet.client(n)) for n in range(CLIENTS)]
        for client in fleet.clients:
            stack.callback(client.cancel)
        by_the_earlier, following = await fleet.hold("Before the upgrade")
        await fleet.roll(this)
        by_this, also_following = await fleet.hold("Before the way back")
        await approve(by_the_earlier)
        await fleet.roll(earlier)
        await approve(by_this)
        await fleet.roll(this)
        fleet.asking = False
        async with asyncio.timeout(_PHASE_S):
            await asyncio.gather(*fleet.clients)
            crash.slow.gate.set()
            await asyncio.gather(following, also_following)
        verdict = await check_contract(empty_postgres_dsn, crash.seen, crash.witnesses, agrees)
        decided = await check_decisions(crash, people)
        # Runs were in flight: some had owners of both versions.
        handed_over = adoptions(await log_of(empty_postgres_dsn)).total()
    assert verdict.broken == []
    assert decided.lost + decided.doubled == []
    assert decided.effects == 4
    assert verdict.runs == len(crash.seen)
    assert handed_over
    print(f"{verdict.runs} runs, handed over {handed_over} times; nothing lost or doubled")
