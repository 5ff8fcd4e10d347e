"""One round of the random crash test: a database, its gateways, clients, and what befalls them.

``crash/matrix.py`` plays one after the other.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import asyncpg
import grpc

from bos_errors import BosError
from bos_postgres import connect
from bos_testkit.waiting import eventually
from gateway_harness.crash import commit_points
from gateway_harness.crash.approvers import TIMEOUT_S, Approvers, Decided, check_decisions
from gateway_harness.crash.crashing_postgres import CrashingPostgres, crashing_postgres
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
from gateway_harness.harness import Client
from gateway_harness.postgres_proxy import Proxy, postgres_proxy
from gateway_harness.run_contract import (
    MISCHIEF,
    POISON,
    Seen,
    Verdict,
    check_contract,
)
from gateway_harness.stored import adoptions, fetchval, log_of

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
    "crash postgresql": 0.25,
    "power cut": 0.25,
}


@dataclass(frozen=True)
class RoundPlan:
    seed: int
    seconds: float
    lease_s: float
    pause_s: float
    """Between two actions, on average."""
    only: Sequence[str]
    """Actions; empty for all, and a poison."""
    log: str
    """Where gateways log."""


@dataclass
class Stats:
    rounds: int = 0
    kills: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    adoptions: Counter[str] = field(default_factory=Counter)
    approvals: Counter[str] = field(default_factory=Counter)
    figures: Counter[str] = field(default_factory=Counter)
    """Runs, events, effects, and what was found wrong."""

    def add(self, verdict: Verdict, decided: Decided) -> None:
        self.approvals += decided.statuses
        self.figures.update(
            runs=verdict.runs,
            events=verdict.events,
            effects=decided.effects,
            asked_again=decided.asked_again,
            unknown=verdict.unknown + decided.unknown,
            late=len(verdict.late),
            broken=len(verdict.broken),
        )

    def __str__(self) -> str:
        counted = (self.figures, self.happened, self.adoptions, self.approvals)
        lists = "; ".join(
            ", ".join(f"{name} {count}" for name, count in sorted(each.items())) for each in counted
        )
        return f"rounds {self.rounds}, kills {self.kills}; {lists}"


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
            poisons = 0 if self._plan.only else _POISONS
            clients += [asyncio.create_task(self._poison(n)) for n in range(poisons)]
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
        verdict.lost += [*self._refused, *decided.lost]
        verdict.doubled += decided.doubled
        self._stats.adoptions += adoptions(await log_of(crash.harness.dsn))
        self._stats.add(verdict, decided)
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
            code = await slot.gateway.process.wait()
            slot.gateway = None
            self._stats.kills += code == -signal.SIGKILL

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
            owner = await fetchval(
                self._crash.harness.dsn,
                "SELECT replica_id FROM runs WHERE run_id = $1",
                UUID(run_id),
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
            self._stats.happened["cancelled"] += 1
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
            if name in ("crash postgresql", "power cut"):
                await self._crash_postgres(together=name == "power cut")
                self._stats.happened[name] += 1
                continue
            free = [slot for slot in self._slots if slot.gateway is not None and not slot.busy]
            if not free:
                continue
            slot = self._random.choice(free)
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

    async def _crash_postgres(self, *, together: bool) -> None:
        """Concurrent with faults of gateways; in a power cut all of them die with it."""
        crashing = asyncio.create_task(self._postgres.crash())
        for slot in self._slots:
            if together and slot.gateway is not None:
                slot.gateway.process.kill()
        await crashing
        await asyncio.sleep(self._random.choice([0.0, 2 * self._lease_s]))
        await self._postgres.start()


async def one_round(plan: RoundPlan, stats: Stats) -> Verdict:
    async with AsyncExitStack() as stack:
        postgres = await stack.enter_async_context(crashing_postgres())
        crash = await stack.enter_async_context(open_crash_harness(postgres.dsn, takes_s=0.15))
        slots = [
            Slot(await stack.enter_async_context(postgres_proxy(postgres.dsn)))
            for _ in range(_GATEWAYS)
        ]
        return await Round(crash, postgres, slots, stats, plan).run()
