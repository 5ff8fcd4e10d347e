"""A gateway is ended, or frozen, at every kind of commit that it makes; the contract holds.

Each case ends one gateway just before a commit is sent and another one just after it was
acknowledged, before anybody was told. Their clients go on at a third.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from crash_house import (
    ASKS,
    FAILS,
    WAITS,
    CrashHouse,
    Gateway,
    ask_anywhere,
    cancel_anywhere,
    crashing_gateway,
    follow_anywhere,
    may_be_away,
    open_crash_house,
)
from crashing_postgres import crashing_postgres
from run_contract import Seen, Verdict, check_contract, stored_runs
from unix_proxy import postgres_proxy

from bos.gateway.v1 import (
    APPROVAL_DECISION_APPROVE,
    APPROVAL_STATUS_PENDING,
    ApprovalServiceStub,
    ListApprovalsRequest,
    RespondApprovalRequest,
)
from bos.runlog.v1 import LogEvent
from bos_gateway import commits
from bos_gateway.failures import OUTCOME_UNKNOWN
from bos_gateway.run_log import SCHEMA
from bos_gateway.state import BrokenLog, RunState, UnknownEvent, apply
from bos_postgres import acquire, connect, open_database
from bos_testkit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from gateway_house import Client

_EACH = 4  # clients per gateway

# At which of these commits a gateway with runs in full swing is ended; one commit may hold the same
# event of all runs, so there are no more for certain than a run has steps one after the other.
UNDER_LOAD = {
    "run_accepted": 1,
    "planned": 1,
    "plan_failed": 1,
    "step_dispatched": 3,
    "step_progressed": 3,
    "step_finished": 2,
    "answer_started": 1,
    "answer_delta": 1,
    "run_finished": 1,
}
# Commits that need a situation of their own; each has its test below.
DRAINING = ("run_released", commits.RELEASE_ALL, commits.FORGET_DEAD)
ADOPTING = (commits.ADOPT, "run_adopted")
ALONE = (
    *(commits.TAKE_LEASE, commits.RENEW, commits.RELEASE, commits.REWRITE, commits.ADD_INPUT),
    "cancel_requested",
)
# Of runs that wait for people; each in one of the tests of these below.
ASKING = (
    *("approval_requested", "approval_resolved", "instructions_classified", "effect_intended"),
    commits.DECIDE,
)


@pytest.fixture
async def crash(postgres_dsn: str) -> AsyncIterator[CrashHouse]:
    async with open_crash_house(postgres_dsn, takes_s=0.02) as opened:
        yield opened


@asynccontextmanager
async def gateways(crash: CrashHouse, *failpoints: str) -> AsyncIterator[list[Gateway]]:
    """Gateways with these failpoints, started at the same time."""
    async with AsyncExitStack() as stack:
        entering = [stack.enter_async_context(crashing_gateway(crash, f)) for f in failpoints]
        yield list(await asyncio.gather(*entering))


class Clients:
    """Clients that go on wherever they can, and what they were told."""

    def __init__(self, crash: CrashHouse) -> None:
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
        """One more client of a run."""
        self._crash.seen.append(seen)
        self._tasks.append(asyncio.create_task(follow_anywhere(where, question, seen)))

    async def ended(self) -> Verdict:
        """Wait for every end, and check the contract."""
        async with asyncio.timeout(60):
            await asyncio.gather(*self._tasks)
        crash = self._crash
        verdict = await check_contract(crash.house.dsn, crash.seen, crash.witnesses)
        assert not verdict.broken, verdict
        assert not verdict.late
        assert verdict.runs == len({seen.request_id for seen in crash.seen})
        return verdict


def at(*found: Gateway) -> Callable[[], list[Client]]:
    """Where clients go, the first one first."""
    return lambda: [gateway.client for gateway in found]


async def until_waiting(crash: CrashHouse, runs: int) -> None:
    """Until so many steps have reached the agent that waits."""
    await eventually(lambda: len(crash.slow.executions) >= runs, within_s=45)


async def execute(crash: CrashHouse, sql: str, *arguments: object) -> None:
    async with connect(crash.house.dsn, schema=SCHEMA) as connection:
        await connection.execute(sql, *arguments)


def test_every_kind_of_commit_has_its_case() -> None:
    """A new kind of event or statement needs a case here: what if the process ends right there?"""

    def written(kind: str) -> bool:
        event = LogEvent()
        getattr(event, kind).SetInParent()
        try:
            apply(RunState("run"), event)
        except UnknownEvent:
            return False  # of the contracts, but no gateway writes it yet
        except BrokenLog:
            return True
        return True

    kinds = {field.name for field in LogEvent.DESCRIPTOR.oneofs_by_name["event"].fields}
    points = {kind for kind in kinds if written(kind)} | commits.STATEMENTS
    assert {*UNDER_LOAD, *DRAINING, *ADOPTING, *ALONE, *ASKING} == points


@pytest.mark.parametrize("kind", UNDER_LOAD)
async def test_ended_at_an_event(crash: CrashHouse, kind: str) -> None:
    nth = UNDER_LOAD[kind]
    question = FAILS if kind == "plan_failed" else "Go on?"
    victims = (f"kill {kind}:before {nth}", f"kill {kind}:after {nth}")
    async with gateways(crash, *victims, "disarm") as (before, after, survivor):
        clients = Clients(crash)
        clients.ask(at(before, survivor), question, _EACH)
        clients.ask(at(after, survivor), question, _EACH)
        clients.ask(at(survivor), question, _EACH)
        await asyncio.gather(before.died(), after.died())
        await clients.ended()


@pytest.mark.parametrize("kind", DRAINING)
async def test_ended_while_draining(crash: CrashHouse, kind: str) -> None:
    victims = (f"kill {kind}:before", f"kill {kind}:after")
    async with gateways(crash, *victims, "disarm") as (before, after, survivor):
        clients = Clients(crash)
        for each in (before, after):
            clients.ask(at(each, survivor), WAITS, _EACH)
        await until_waiting(crash, 2 * _EACH)
        for each in (before, after):
            each.process.send_signal(signal.SIGTERM)
        await asyncio.gather(before.died(), after.died())
        crash.slow.gate.set()
        await clients.ended()


@pytest.mark.parametrize("kind", ADOPTING)
async def test_ended_while_adopting(crash: CrashHouse, kind: str) -> None:
    async with gateways(crash, *["disarm"] * 4) as (owner, before, after, survivor):
        clients = Clients(crash)
        clients.ask(at(owner, survivor), WAITS, _EACH)
        await until_waiting(crash, _EACH)
        # One after the other: who comes second must find something to take over as well.
        await after.arm(f"kill {kind}:after")
        for each in (before, survivor):
            each.process.send_signal(signal.SIGSTOP)
        owner.process.kill()
        await after.died()
        # Others are judged only by who has had a lease for a while, so this is in time.
        before.process.send_signal(signal.SIGCONT)
        await before.arm(f"kill {kind}:before")
        await before.died()
        survivor.process.send_signal(signal.SIGCONT)
        crash.slow.gate.set()
        await clients.ended()


async def test_ended_while_letting_go_of_a_run_that_is_not_understood(crash: CrashHouse) -> None:
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(crashing_gateway(crash))
        clients, there = Clients(crash), [owner]
        clients.ask(lambda: at(*there)(), WAITS, 1)
        await until_waiting(crash, 1)
        owner.process.kill()
        await owner.process.wait()
        await execute(crash, "UPDATE run_events SET schema_version = 99 WHERE sequence = 2")
        for moment in ("before", "after"):
            victim = crashing_gateway(crash, f"kill release:{moment}")
            await (await stack.enter_async_context(victim)).died()
        await execute(crash, "UPDATE run_events SET schema_version = 1 WHERE sequence = 2")
        there.append(await stack.enter_async_context(crashing_gateway(crash)))
        crash.slow.gate.set()
        await clients.ended()


async def test_ended_while_taking_its_first_lease(crash: CrashHouse) -> None:
    for moment in ("before", "after"):
        with pytest.raises(ValueError, match="Expecting value"):  # it says nothing any more
            async with crashing_gateway(crash, f"kill take_lease:{moment}"):
                pass
    async with gateways(crash, "disarm") as (survivor,):
        clients = Clients(crash)
        clients.ask(at(survivor), "Go on?", 2)
        await clients.ended()


async def test_ended_while_taking_its_lease_again(crash: CrashHouse) -> None:
    """After having been frozen, with runs that are still its own."""
    async with gateways(crash, *["disarm"] * 3) as (before, after, survivor):
        survivor.process.send_signal(signal.SIGSTOP)
        clients = Clients(crash)
        clients.ask(at(before, survivor), WAITS, 2)
        clients.ask(at(after, survivor), WAITS, 2)
        await until_waiting(crash, 4)
        for each, moment in ((before, "before"), (after, "after")):
            await each.arm(f"kill take_lease:{moment}")
            each.process.send_signal(signal.SIGSTOP)
        for each in (before, after):
            await lease_ran_out(crash, each)
            each.process.send_signal(signal.SIGCONT)
        await asyncio.gather(before.died(), after.died())
        survivor.process.send_signal(signal.SIGCONT)
        crash.slow.gate.set()
        await clients.ended()


async def lease_ran_out(crash: CrashHouse, gateway: Gateway) -> None:
    async with connect(crash.house.dsn, schema=SCHEMA) as connection:
        left = await connection.fetchval(
            "SELECT extract(epoch FROM lease_until - now())::float8 FROM replicas "
            "WHERE replica_id = $1",
            gateway.replica_id,
        )
        await connection.execute("SELECT pg_sleep($1)", max(0.0, left) + 0.1)


async def test_ended_while_renewing_the_lease(crash: CrashHouse) -> None:
    async with gateways(crash, "disarm", "disarm", "disarm") as (before, after, survivor):
        clients = Clients(crash)
        for each in (before, after):
            clients.ask(at(each, survivor), WAITS, _EACH)
        await until_waiting(crash, 2 * _EACH)
        await before.arm("kill renew_lease:before")
        await after.arm("kill renew_lease:after")
        await asyncio.gather(before.died(), after.died())
        crash.slow.gate.set()
        await clients.ended()


async def test_ended_while_taking_a_request_to_cancel(crash: CrashHouse) -> None:
    """At a replica that does not own the run; the client asks again elsewhere."""
    victims = ("kill add_input:before", "kill add_input:after")
    async with gateways(crash, *victims, "disarm") as (before, after, owner):
        clients = Clients(crash)
        for each in (before, after):
            (seen,) = clients.ask(at(owner), WAITS, 1)
            await eventually(lambda seen=seen: bool(seen.events), within_s=45)
            await cancel_anywhere(at(each, owner), seen)
            await each.died()
        await clients.ended()


async def test_ended_while_recording_a_request_to_cancel(crash: CrashHouse) -> None:
    """At the owner, after the request was acknowledged elsewhere."""
    victims = ("kill cancel_requested:before", "kill cancel_requested:after")
    async with gateways(crash, *victims, "disarm") as (before, after, survivor):
        clients = Clients(crash)
        for each in (before, after):
            (seen,) = clients.ask(at(each, survivor), WAITS, 1)
            await eventually(lambda seen=seen: bool(seen.events), within_s=45)
            await cancel_anywhere(at(survivor), seen)
            await each.died()
        await clients.ended()


async def test_adoption_whose_answer_was_lost_leaves_no_run_behind(crash: CrashHouse) -> None:
    """The run is a living replica's then, which does not know of it."""
    async with gateways(crash, "disarm", "disarm") as (owner, heir):
        clients = Clients(crash)
        clients.ask(at(owner, heir), WAITS, _EACH)
        await until_waiting(crash, _EACH)
        owner.process.kill()
        await execute(crash, "UPDATE runs SET replica_id = $1, epoch = epoch + 1", heir.replica_id)
        crash.slow.gate.set()
        await clients.ended()


@asynccontextmanager
async def approving(
    crash: CrashHouse, *where: Gateway, instructions: str = ""
) -> AsyncIterator[None]:
    """Approve whatever is asked, at the first of these gateways that answers.

    Tasks without instructions are given these first.
    """

    async def approve_all(client: Client) -> None:
        stub = ApprovalServiceStub(client.channel)
        wanted = ListApprovalsRequest(status=APPROVAL_STATUS_PENDING)
        for approval in (await stub.ListApprovals(wanted, timeout=5)).approvals:
            instructed = "Instructions" in approval.task_description
            request = RespondApprovalRequest(
                approval_id=approval.approval_id,
                decision=APPROVAL_DECISION_APPROVE,
                instructions="" if instructed else instructions,
            )
            await stub.RespondApproval(request, timeout=5)

    async def for_ever() -> None:
        while True:
            for client in at(*where)():
                with may_be_away():
                    await approve_all(client)
                    break
            await asyncio.sleep(0.02)

    task = asyncio.create_task(for_ever())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def each_approval_had_its_effect_once(crash: CrashHouse) -> None:
    """Or the step says that nobody knows, of what is not known by its key."""
    runs = await stored_runs(crash.house.dsn)
    for agent in (crash.asks_keyed, crash.asks_once):
        landed = Counter(effect.idempotency_key.split("/")[0] for effect in agent.effects)
        assert agent.repeatable or set(landed.values()) <= {1}
        for run in runs.values():
            (result,) = [
                event.step_finished.result
                for event in run.events
                if event.step_finished.result.agent_name == agent.card.name
            ]
            if result.error.type:
                assert (result.error.type, agent.repeatable) == (OUTCOME_UNKNOWN, False)
            else:
                assert landed[run.run_id]


@pytest.mark.parametrize("kind", ["approval_requested", "run_released"])
async def test_ended_while_a_person_is_to_be_asked(crash: CrashHouse, kind: str) -> None:
    victims = (f"kill {kind}:before", f"kill {kind}:after")
    async with gateways(crash, *victims, "disarm") as (before, after, survivor):
        clients = Clients(crash)
        for each in (before, after):
            clients.ask(at(each, survivor), ASKS, 1)
        await asyncio.gather(before.died(), after.died())
        async with approving(crash, survivor):
            await clients.ended()
    await each_approval_had_its_effect_once(crash)


@pytest.mark.parametrize(
    "kind", ["approval_resolved", "instructions_classified", "effect_intended"]
)
async def test_ended_after_a_person_has_decided(crash: CrashHouse, kind: str) -> None:
    """At the owner, which has something else to do meanwhile; decided elsewhere."""
    victims = (f"kill {kind}:before", f"kill {kind}:after")
    async with gateways(crash, *victims, "disarm") as (before, after, survivor):
        clients = Clients(crash)
        for each in (before, after):
            clients.ask(at(each, survivor), f"{ASKS}, {WAITS}", 1)
        await until_waiting(crash, 2)
        async with approving(crash, survivor, instructions="deploy it 2"):
            await asyncio.gather(before.died(), after.died())
            crash.slow.gate.set()
            await clients.ended()
    await each_approval_had_its_effect_once(crash)


async def test_ended_while_taking_a_decision(crash: CrashHouse) -> None:
    """At a replica that does not own the run; the person decides again elsewhere."""
    victims = (f"kill {commits.DECIDE}:before", f"kill {commits.DECIDE}:after")
    async with gateways(crash, *victims, "disarm") as (before, after, owner):
        clients = Clients(crash)
        asked = clients.ask(at(owner), ASKS, 1)
        await eventually(lambda: told(asked, "approval_requested", 2), within_s=20)
        for each in (before, after):
            async with approving(crash, each, owner):
                await each.died()
            if each is before:
                clients.ask(at(owner), ASKS, 1)
        async with approving(crash, owner):
            await clients.ended()
    await each_approval_had_its_effect_once(crash)


async def test_ended_after_writing_again_what_postgresql_had_lost() -> None:
    """Ended before that, PostgreSQL and the owner were lost in the same moment: the exception."""
    async with (
        crashing_postgres() as postgres,
        open_crash_house(postgres.dsn) as crash,
        gateways(crash, "kill rewrite:after", "disarm") as (victim, survivor),
    ):
        # Only the victim has something to lose, so only it writes anything again.
        clients = Clients(crash)
        asked = clients.ask(at(victim, survivor), WAITS, _EACH)
        await until_waiting(crash, _EACH)
        await eventually(lambda: told(asked, "step_started", 4), within_s=45)
        await postgres.crash()
        await postgres.start()
        await victim.died()
        crash.slow.gate.set()
        await clients.ended()


async def test_postgresql_restarted_under_load() -> None:
    async with (
        crashing_postgres() as postgres,
        open_crash_house(postgres.dsn) as crash,
        gateways(crash, "disarm", "disarm") as (one, other),
    ):
        clients = Clients(crash)
        for _ in range(3):
            asked = clients.ask(at(one, other), "Go on?", _EACH)
            asked += clients.ask(at(other, one), "Go on?", _EACH)
            await eventually(lambda asked=asked: told(asked, "planned", 1), within_s=45)
            await postgres.crash()
            await postgres.start()
        await clients.ended()


async def test_cut_off_from_postgresql(crash: CrashHouse) -> None:
    """Until others have long taken over; and then it comes back."""
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(postgres_proxy(crash.house.dsn))
        cut_off, other = await asyncio.gather(
            stack.enter_async_context(crashing_gateway(crash, store_url=proxy.dsn)),
            stack.enter_async_context(crashing_gateway(crash)),
        )
        clients = Clients(crash)
        clients.ask(at(cut_off, other), WAITS, _EACH)
        clients.ask(at(cut_off, other), "Go on?", _EACH)
        await until_waiting(crash, _EACH)
        proxy.cut()
        await adopted(crash)
        crash.slow.gate.set()
        proxy.mend()
        await clients.ended()


async def test_statement_stands_though_its_connection_cannot_be_given_back(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off in between: whoever was answered must not be told that something went wrong."""
    monkeypatch.setattr("bos_postgres.connections._CLOSE_TIMEOUT_S", 0.1)
    async with (
        postgres_proxy(postgres_dsn) as proxy,
        open_database(proxy.dsn, schema="public", max_size=1) as pool,
    ):
        async with acquire(pool) as connection:
            assert await connection.fetchval("SELECT 1") == 1
            proxy.cut()
        proxy.mend()
        async with acquire(pool) as connection:
            assert await connection.fetchval("SELECT 2") == 2


def told(clients: Sequence[Seen], kind: str, times: int) -> bool:
    """Whether each of these has seen so many events of a kind."""
    return all(sum(event.HasField(kind) for event in seen.events) >= times for seen in clients)


@pytest.mark.parametrize(
    "point", ["step_finished:before", "run_accepted:after", "answer_delta:after"]
)
async def test_frozen_past_its_lease(crash: CrashHouse, point: str) -> None:
    """It wakes up in the middle of what others have long taken over, and goes on serving."""
    async with gateways(crash, f"stop {point}", "disarm") as (frozen, other):
        clients = Clients(crash)
        clients.ask(at(frozen, other), "Go on?", _EACH)
        clients.ask(at(other), "Go on?", _EACH)
        await eventually(lambda: frozen.stopped, within_s=45)
        await lease_ran_out(crash, frozen)
        await adopted(crash)
        frozen.process.send_signal(signal.SIGCONT)
        await clients.ended()
        clients.ask(at(frozen), "Still there?", 2)
        await clients.ended()


async def adopted(crash: CrashHouse) -> None:
    """Until somebody has taken something over."""
    async with asyncio.timeout(20), connect(crash.house.dsn, schema=SCHEMA) as connection:
        while not await connection.fetchval(
            "SELECT count(*) FROM run_events WHERE kind = 'run_adopted'"
        ):
            await connection.execute("SELECT pg_sleep(0.02)")


async def test_no_notification_ever_arrives(crash: CrashHouse) -> None:
    """What others commit is found by looking, on both sides: events, runs to adopt, a cancel."""
    async with AsyncExitStack() as stack:
        one, other, victim = await asyncio.gather(
            *(
                stack.enter_async_context(crashing_gateway(crash, "disarm", "--deaf"))
                for _ in range(3)
            )
        )
        clients = Clients(crash)
        # Asked here, followed there.
        for here, there in ((one, other), (other, one), (victim, one)):
            (seen,) = clients.ask(at(here, there), WAITS, 1)
            same = Seen(seen.request_id)
            clients.follow(at(there), f"{WAITS} 0", same)
        (stopped,) = clients.ask(at(one), WAITS, 1)
        await until_waiting(crash, 4)
        await cancel_anywhere(at(other), stopped)
        victim.process.send_signal(signal.SIGTERM)
        await victim.process.wait()
        # Its owner looks within a second; were the gate open by then, the run might just end well.
        await eventually(lambda: stopped.events[-1].HasField("run_finished"), within_s=30)
        crash.slow.gate.set()
        await clients.ended()
