"""A gateway is ended at every kind of commit that it makes; the contract holds.

Each case ends one gateway just before a commit is sent and another one just after it was
acknowledged, before any client was notified. Their clients go on at a third.
"""

import asyncio
import signal
from contextlib import AsyncExitStack

import pytest
from gateway_harness.crash import commit_points
from gateway_harness.crash.clients import (
    EACH,
    Clients,
    at,
    ended_at,
    gateways,
    lease_ran_out,
    until_waiting,
)
from gateway_harness.crash.harness import (
    FAILS,
    MENDS,
    WAITS,
    CrashHarness,
    cancel_anywhere,
    crashing_gateway,
)
from gateway_harness.stored import fetch

from bos.runlog.v1 import LogEvent
from bos_gateway.core.fold import apply
from bos_gateway.core.run_state import BrokenLog, RunState, UnknownEvent
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.crash

# At which of these commits a gateway with runs in full swing is ended; one commit may hold the same
# event of all runs, so there are no more for certain than a run has steps one after the other.
UNDER_LOAD = [
    ("run_accepted", 1, "Go on?"),
    ("planned", 1, "Go on?"),
    ("planned", 2, MENDS),
    ("plan_failed", 1, FAILS),
    ("revision_started", 1, MENDS),
    ("step_dispatched", 3, "Go on?"),
    ("step_progressed", 3, "Go on?"),
    ("step_finished", 2, "Go on?"),
    ("answer_started", 1, "Go on?"),
    ("run_finished", 1, "Go on?"),
]
# Commits that need a situation of their own; each has its test below.
DRAINING = ("run_released", commit_points.RELEASE_ALL)
ADOPTING = (commit_points.BURY, commit_points.ADOPT, "run_adopted")
ALONE = (
    *(
        commit_points.TAKE_LEASE,
        commit_points.RENEW,
        commit_points.RELEASE,
        commit_points.ADD_INPUT,
    ),
    "cancel_requested",
)
# Of runs that wait for people; each in one of the tests of `test_crash_approvals.py`.
ASKING = (
    *("approval_requested", "approval_resolved", "instructions_classified", "effect_intended"),
    commit_points.DECIDE,
)


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
    points = {kind for kind in kinds if written(kind)} | commit_points.STATEMENTS
    assert {*(kind for kind, *_ in UNDER_LOAD), *DRAINING, *ADOPTING, *ALONE, *ASKING} == points


@pytest.mark.requirement("C-31")
@pytest.mark.parametrize(("kind", "nth", "question"), UNDER_LOAD)
async def test_ended_at_an_event(crash: CrashHarness, kind: str, nth: int, question: str) -> None:
    async with ended_at(crash, kind, nth) as (before, after, survivor):
        clients = Clients(crash)
        clients.ask(at(before, survivor), question, EACH)
        clients.ask(at(after, survivor), question, EACH)
        clients.ask(at(survivor), question, EACH)
        await asyncio.gather(before.died(), after.died())
        await clients.ended()


@pytest.mark.parametrize("kind", DRAINING)
async def test_ended_while_draining(crash: CrashHarness, kind: str) -> None:
    async with ended_at(crash, kind) as (before, after, survivor):
        clients = Clients(crash)
        for each in (before, after):
            clients.ask(at(each, survivor), WAITS, EACH)
        await until_waiting(crash, 2 * EACH)
        for each in (before, after):
            each.process.send_signal(signal.SIGTERM)
        await asyncio.gather(before.died(), after.died())
        crash.slow.gate.set()
        await clients.ended()


@pytest.mark.parametrize("kind", ADOPTING)
async def test_ended_while_adopting(crash: CrashHarness, kind: str) -> None:
    async with gateways(crash, *["disarm"] * 4) as (owner, before, after, survivor):
        clients = Clients(crash)
        clients.ask(at(owner, survivor), WAITS, EACH)
        await until_waiting(crash, EACH)
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


async def test_ended_while_letting_go_of_a_run_that_is_not_understood(crash: CrashHarness) -> None:
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(crashing_gateway(crash))
        clients, there = Clients(crash), [owner]
        clients.ask(lambda: at(*there)(), WAITS, 1)
        await until_waiting(crash, 1)
        owner.process.kill()
        await owner.process.wait()
        version = "UPDATE run_events SET schema_version = $1 WHERE sequence = 2"
        await fetch(crash.harness.dsn, version, 99)
        for moment in ("before", "after"):
            victim = crashing_gateway(crash, f"kill release:{moment}")
            await (await stack.enter_async_context(victim)).died()
        await fetch(crash.harness.dsn, version, 1)
        there.append(await stack.enter_async_context(crashing_gateway(crash)))
        crash.slow.gate.set()
        await clients.ended()


async def test_ended_while_taking_its_first_lease(crash: CrashHarness) -> None:
    for moment in ("before", "after"):
        with pytest.raises(ValueError, match="Expecting value"):  # it says nothing any more
            async with crashing_gateway(crash, f"kill take_lease:{moment}"):
                pass
    async with gateways(crash, "disarm") as (survivor,):
        clients = Clients(crash)
        clients.ask(at(survivor), "Go on?", 2)
        await clients.ended()


async def test_ended_while_taking_its_lease_again(crash: CrashHarness) -> None:
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


async def test_ended_while_renewing_the_lease(crash: CrashHarness) -> None:
    async with gateways(crash, "disarm", "disarm", "disarm") as (before, after, survivor):
        clients = Clients(crash)
        for each in (before, after):
            clients.ask(at(each, survivor), WAITS, EACH)
        await until_waiting(crash, 2 * EACH)
        await before.arm("kill renew_lease:before")
        await after.arm("kill renew_lease:after")
        await asyncio.gather(before.died(), after.died())
        crash.slow.gate.set()
        await clients.ended()


@pytest.mark.parametrize("kind", [commit_points.ADD_INPUT, "cancel_requested"])
async def test_ended_while_a_request_to_cancel_is_taken(crash: CrashHarness, kind: str) -> None:
    """At a replica that does not own the run, so that the client asks again elsewhere; or at the
    owner that records it, after it was acknowledged elsewhere.
    """
    async with ended_at(crash, kind) as (before, after, survivor):
        clients = Clients(crash)
        for each in (before, after):
            owned = (survivor,) if kind == commit_points.ADD_INPUT else (each, survivor)
            asked = (each, survivor) if kind == commit_points.ADD_INPUT else (survivor,)
            (seen,) = clients.ask(at(*owned), WAITS, 1)
            await eventually(lambda seen=seen: bool(seen.events))
            await cancel_anywhere(at(*asked), seen)
            await each.died()
        await clients.ended()


async def test_adoption_whose_answer_was_lost_leaves_no_run_behind(crash: CrashHarness) -> None:
    """The run is a living replica's then, which does not know of it."""
    async with gateways(crash, "disarm", "disarm") as (owner, heir):
        clients = Clients(crash)
        clients.ask(at(owner, heir), WAITS, EACH)
        await until_waiting(crash, EACH)
        owner.process.kill()
        given = "UPDATE runs SET replica_id = $1, epoch = epoch + 1"
        await fetch(crash.harness.dsn, given, heir.replica_id)
        crash.slow.gate.set()
        await clients.ended()
