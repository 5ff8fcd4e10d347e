"""One round of the random crash test: a database, its gateways, clients, and what befalls them.

``crash/matrix.py`` plays one after the other.
"""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import grpc

from bos_errors import BosError
from bos_gateway.ownership.poison import LEASE_EXPIRED
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import EmbeddedPostgres, connect
from bos_testkit.processes import free_port
from bos_testkit.waiting import eventually
from gateway_harness.crash import commit_points
from gateway_harness.crash.approvers import TIMEOUT_S, Approvers, check_decisions
from gateway_harness.crash.crashing_postgres import CrashingPostgres
from gateway_harness.crash.harness import (
    MENDS,
    WAITS,
    CrashHarness,
    Gateway,
    ask_anywhere,
    cancel_anywhere,
    follow_anywhere,
    open_crash_harness,
    replica_process,
)
from gateway_harness.crash.hostile import KINDS, PATIENCE
from gateway_harness.crash.stats import Death, Stats
from gateway_harness.harness import Client
from gateway_harness.postgres_proxy import Proxy, postgres_proxy
from gateway_harness.run_contract import (
    MISCHIEF,
    POISON,
    Seen,
    StoredRun,
    Verdict,
    check_contract,
    stored_runs,
)

_GATEWAYS = 3
_CLIENTS = 12
_STEP_S = 0.15
_DIES_AT_ITS_START = 0.05
"""Share of gateways that are killed when they have their lease and do not serve yet."""
# A poison is let alone for longer and longer before it is given up.
_ENDS_WITHIN_S = 300.0
_POISONS = 1
"""Runs in a round that kill their owner, again and again."""
_POINTS = sorted(
    {
        *("run_accepted", "planned", "step_dispatched", "step_progressed", "step_finished"),
        *("answer_started", "run_finished", "cancel_requested", "run_adopted"),
        "revision_started",
        *(commit_points.ADOPT, commit_points.RENEW, commit_points.ADD_INPUT),
    }
)
_AWAY = (BosError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError)
_DRAINING = ("run_released", commit_points.RELEASE_ALL)
# What happens how often.
ACTIONS = {
    "kill": 40,
    "kill at a commit": 40,
    "kill while draining": 4,
    "drain": 5,
    "freeze": 5,
    "freeze at a commit": 5,
    "cut off": 4,
    "deafen": 3,
    "crash postgresql": 0.5,
}


@dataclass(frozen=True)
class RoundPlan:
    """What is to happen in a round."""

    seed: int
    seconds: float
    lease_s: float
    pause_s: float
    """Between two actions, on average."""
    only: Sequence[str]
    """Actions; empty for all."""
    log: str
    """Where gateways log."""


class Slot:
    """A place for one gateway after the other, with a way to PostgreSQL that can be cut."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.gateway: Gateway | None = None
        self.busy = False
        """Something is happening to it."""


class Round:
    """One database, its gateways, clients, and what befalls them."""

    def __init__(
        self, crash: CrashHarness, postgres: CrashingPostgres, slots: Sequence[Slot], stats: Stats,
        plan: RoundPlan,
    ) -> None:  # fmt: skip
        self._crash = crash
        self._postgres = postgres
        self._slots = slots
        self._random = random.Random(plan.seed)
        self._stats = stats
        self._plan = plan
        self._lease_s = plan.lease_s
        self._deaths: list[Death] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._asking = True
        self._refused: list[str] = []
        self._approvers = Approvers(self._anywhere, self._random)

    async def run(self) -> Verdict:
        """Ask and destroy for a while, then wait for every end and check."""
        async with AsyncExitStack() as stack:
            keeping = [asyncio.create_task(self._keep(slot, stack)) for slot in self._slots]
            clients = [asyncio.create_task(self._client(n)) for n in range(_CLIENTS)]
            self._crash.hostile.kills = self._kill_owner
            clients += [asyncio.create_task(self._poison(n)) for n in range(_POISONS)]
            try:
                await self._until_all_serve()
                await self._destroy(time.monotonic() + self._plan.seconds)
                self._asking = False
                # Who has no end by then is found by the check.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_ENDS_WITHIN_S):
                        await asyncio.gather(*clients)
            finally:
                for task in [*keeping, *clients, *self._tasks]:
                    task.cancel()
                outcomes = await asyncio.gather(*keeping, *clients, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        crash = self._crash
        verdict = await check_contract(crash.harness.dsn, crash.seen, crash.witnesses)
        decided = await check_decisions(crash, self._approvers)
        self._stats.decided(decided)
        verdict.lost += [*self._refused, *decided.lost]
        verdict.doubled += decided.doubled
        self._count(await stored_runs(crash.harness.dsn))
        return verdict

    # The gateways

    async def _keep(self, slot: Slot, stack: AsyncExitStack) -> None:
        """Keep a gateway running in the slot, restarting it after every end."""
        dies = slot is self._slots[-1]  # so that every round has one
        while True:
            options = ("--deaf",) if self._random.random() < 0.1 else ()
            if dies or self._random.random() < _DIES_AT_ITS_START:
                options, dies = ("--dies",), False
            starting = replica_process(
                self._crash.harness, *options, log=self._plan.log,
                store_url=slot.proxy.dsn, lease_s=self._lease_s,
                lease_renewal_s=self._lease_s / 3, approval_timeout_s=TIMEOUT_S,
            )  # fmt: skip
            try:
                slot.gateway = await stack.enter_async_context(starting)
            except (ValueError, OSError) as error:  # as when it is killed, or PostgreSQL is away
                hung = isinstance(error, TimeoutError)
                self._stats.happened["hung at its start" if hung else "died at its start"] += 1
                await asyncio.sleep(_STEP_S)
                continue
            gateway = slot.gateway
            code = await gateway.process.wait()
            died_at = time.time()
            slot.gateway = None
            if code == -signal.SIGKILL:
                self._stats.kills += 1
                await self._note_death(gateway.replica_id, died_at)

    async def _note_death(self, replica_id: UUID, at: float) -> None:
        with suppress(*_AWAY):  # then nothing is known of its runs, and nothing measured
            async with connect(self._crash.harness.dsn, schema=SCHEMA) as connection:
                rows = await connection.fetch(
                    "SELECT run_id FROM runs WHERE replica_id = $1 AND finished_at IS NULL",
                    replica_id,
                )
            self._deaths.append(Death(at, [row["run_id"] for row in rows]))

    def _where(self, first: int) -> Callable[[], Sequence[Client]]:
        def where() -> Sequence[Client]:
            order = [*self._slots[first:], *self._slots[:first]]
            return [slot.gateway.client for slot in order if slot.gateway is not None]

        return where

    def _anywhere(self) -> Sequence[Client]:
        return self._where(self._random.randrange(_GATEWAYS))()

    async def _until_all_serve(self) -> None:
        """Until every gateway answers a question, so has its lease and its writer."""
        for slot in self._slots:
            seen = Seen(uuid4().hex)
            self._crash.seen.append(seen)
            for _ in range(1000):
                if slot.gateway is not None:
                    with suppress(grpc.aio.AioRpcError):
                        seen.response = await slot.gateway.client.ask(
                            "Up?", request_id=seen.request_id, trace=True
                        )
                        break
                await asyncio.sleep(_STEP_S)

    # The clients

    async def _client(self, number: int) -> None:
        """One question after the other."""
        asked = 0
        while self._asking:
            asked += 1
            where = self._where(self._random.randrange(_GATEWAYS))
            seen = Seen(uuid4().hex)
            self._crash.seen.append(seen)
            chance = self._random.random()
            try:
                if chance < 0.1:
                    await ask_anywhere(where, f"Question {number}/{asked}?", seen)
                elif chance < 0.2:
                    await self._ask_and_cancel(where, number, asked, seen)
                elif chance < 0.35:
                    kind = self._random.choice(KINDS)
                    await follow_anywhere(where, f"{MISCHIEF} {number}/{asked}: {kind}?", seen)
                elif chance < 0.4:
                    await follow_anywhere(where, f"{PATIENCE} {number}/{asked}?", seen)
                elif chance < 0.55:
                    cancel = self._random.random() < 0.15
                    await self._approvers.ask(f"Question {number}/{asked}", seen, cancel=cancel)
                else:
                    mends = f" to {MENDS}" if self._random.random() < 0.3 else ""
                    await follow_anywhere(where, f"Question {number}/{asked}{mends}?", seen)
            except AssertionError as error:
                self._refused.append(str(error))
            except grpc.aio.AioRpcError as error:  # none that says: try again
                self._refused.append(f"{seen.request_id}: {error.code().name} {error.details()}")

    async def _poison(self, number: int) -> None:
        """A run that kills its owners, some time in the round."""
        await asyncio.sleep(self._random.uniform(0.1, 0.5) * self._plan.seconds)
        seen = Seen(uuid4().hex)
        self._crash.seen.append(seen)
        await follow_anywhere(self._anywhere, f"{POISON} {number}?", seen)

    async def _kill_owner(self, run_id: str) -> None:
        """What a poison does; nothing if its owner has changed meanwhile."""
        with suppress(*_AWAY, ProcessLookupError):
            async with connect(self._crash.harness.dsn, schema=SCHEMA) as connection:
                owner = await connection.fetchval(
                    "SELECT replica_id FROM runs WHERE run_id = $1", UUID(run_id)
                )
            for slot in self._slots:
                if slot.gateway is not None and slot.gateway.replica_id == owner:
                    slot.gateway.process.kill()
                    self._stats.happened["killed by a poison"] += 1

    async def _ask_and_cancel(
        self, where: Callable[[], Sequence[Client]], number: int, asked: int, seen: Seen
    ) -> None:
        """Of a run that has no other end."""
        question = f"Question {number}/{asked} to {WAITS}?"
        following = asyncio.create_task(follow_anywhere(where, question, seen))
        try:
            await eventually(lambda: bool(seen.events) or following.done(), within_s=_ENDS_WITHIN_S)
            await asyncio.sleep(self._random.random())
            await cancel_anywhere(self._where(self._random.randrange(_GATEWAYS)), seen)
            self._stats.cancelled += 1
            await following
        finally:
            following.cancel()

    # What befalls them

    async def _destroy(self, until: float) -> None:
        chosen = {n: w for n, w in ACTIONS.items() if not self._plan.only or n in self._plan.only}
        names, weights = list(chosen), list(chosen.values())
        actions: dict[str, Callable[[Slot, Gateway], Awaitable[None]]] = {
            "kill": self._kill,
            "kill at a commit": self._kill_at_commit,
            "kill while draining": self._kill_draining,
            "drain": self._drain,
            "freeze": self._freeze,
            "freeze at a commit": self._freeze_at_commit,
            "cut off": self._cut_off,
            "deafen": self._deafen,
        }
        while time.monotonic() < until:
            (name,) = self._random.choices(names, weights)
            await asyncio.sleep(self._random.uniform(0.2, 1.8) * self._plan.pause_s)
            if name == "crash postgresql":
                await self._crash_postgres()
                self._stats.happened[name] += 1
                continue
            free = [slot for slot in self._slots if slot.gateway is not None and not slot.busy]
            if not free:
                continue
            slot = self._random.choice(free)
            assert slot.gateway is not None
            slot.busy = True
            task = asyncio.create_task(self._befall(name, actions[name], slot, slot.gateway))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=30)

    async def _befall(
        self, name: str, action: Callable[[Slot, Gateway], Awaitable[None]], slot: Slot,
        gateway: Gateway,
    ) -> None:  # fmt: skip
        try:
            # A gateway that dies of something else meanwhile ends what was meant for it.
            with suppress(OSError, ValueError, TimeoutError, ProcessLookupError):
                await action(slot, gateway)
                self._stats.happened[name] += 1
        finally:
            slot.busy = False

    async def _kill(self, _: Slot, gateway: Gateway) -> None:
        gateway.process.kill()

    async def _kill_at_commit(self, _: Slot, gateway: Gateway) -> None:
        """At the commit, or anywhere if it does not come to that."""
        await self._fail_at(gateway, "kill", _POINTS)
        try:
            await asyncio.wait_for(gateway.process.wait(), 1.5)
        except TimeoutError:
            gateway.process.kill()
            raise

    async def _fail_at(self, gateway: Gateway, action: str, points: Sequence[str]) -> None:
        point, moment = self._random.choice(points), self._random.choice(["before", "after"])
        nth = self._random.choice([1, 1, 2, 5])
        await asyncio.wait_for(gateway.arm(f"{action} {point}:{moment} {nth}"), 5)

    async def _kill_draining(self, _: Slot, gateway: Gateway) -> None:
        point, moment = self._random.choice(_DRAINING), self._random.choice(["before", "after"])
        await asyncio.wait_for(gateway.arm(f"kill {point}:{moment}"), 5)
        gateway.process.terminate()
        await asyncio.wait_for(gateway.process.wait(), 10)

    async def _drain(self, _: Slot, gateway: Gateway) -> None:
        gateway.process.terminate()
        await asyncio.wait_for(gateway.process.wait(), 10)

    async def _freeze(self, _: Slot, gateway: Gateway) -> None:
        gateway.process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(self._random.uniform(0.1, 2.5 * self._lease_s))
        finally:
            with suppress(ProcessLookupError):
                gateway.process.send_signal(signal.SIGCONT)

    async def _freeze_at_commit(self, _: Slot, gateway: Gateway) -> None:
        await self._fail_at(gateway, "stop", _POINTS)
        try:
            try:
                await eventually(lambda: gateway.stopped, within_s=3)
            except TimeoutError:
                await asyncio.wait_for(gateway.arm("disarm"), 5)
            await asyncio.sleep(self._random.uniform(0.1, 2.5 * self._lease_s))
        finally:
            with suppress(ProcessLookupError):
                gateway.process.send_signal(signal.SIGCONT)

    async def _cut_off(self, slot: Slot, _: Gateway) -> None:
        slot.proxy.cut()
        try:
            await asyncio.sleep(self._random.uniform(0.3, 2.5 * self._lease_s))
        finally:
            slot.proxy.mend()

    async def _deafen(self, _: Slot, __: Gateway) -> None:
        async with connect(self._crash.harness.dsn) as connection:
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name LIKE 'bos-gateway-listener%'"
            )

    async def _crash_postgres(self) -> None:
        """Concurrent with faults of gateways; half the time all of them die with it."""
        together = self._random.random() < 0.5
        crashing = asyncio.create_task(self._postgres.crash())
        for slot in self._slots:
            if together and slot.gateway is not None:
                slot.gateway.process.kill()
        await crashing
        await asyncio.sleep(self._random.choice([0.0, 2 * self._lease_s]))
        await self._postgres.start()
        if together:
            self._stats.happened["everything crashed together"] += 1

    # What became of it

    def _count(self, runs: dict[str, StoredRun]) -> None:
        """Who was taken over why, and how long after the death of its owner."""
        died: dict[UUID, list[float]] = defaultdict(list)
        for death in self._deaths:
            for run_id in death.runs:
                died[run_id].append(death.at)
        for run in runs.values():
            deaths = died[UUID(run.run_id)]
            for event in run.events:
                if not event.HasField("run_adopted"):
                    continue
                self._stats.adoptions[event.run_adopted.reason] += 1
                at = event.create_time.ToNanoseconds() / 1e9
                before = [each for each in deaths if each < at]
                if before and event.run_adopted.reason == LEASE_EXPIRED:
                    self._stats.adopted_after_s.append(at - max(before))
                    deaths[:] = [each for each in deaths if each > at]


@asynccontextmanager
async def restartable_postgres(folder: Path) -> AsyncIterator[CrashingPostgres]:
    """A server with the settings of every other, under a URL that survives its crash."""
    port = free_port()
    server = EmbeddedPostgres(folder, port=port, durable=False)
    try:
        async with server:
            yield CrashingPostgres(server)
    finally:
        server.delete_data()


async def one_round(plan: RoundPlan, stats: Stats) -> Verdict:
    """Everything anew."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bos-matrix-"))
        postgres = await stack.enter_async_context(restartable_postgres(Path(folder) / "data"))
        crash = await stack.enter_async_context(open_crash_harness(postgres.dsn, takes_s=0.15))
        slots = [
            Slot(await stack.enter_async_context(postgres_proxy(postgres.dsn)))
            for _ in range(_GATEWAYS)
        ]
        return await Round(crash, postgres, slots, stats, plan).run()
