"""Two owners of one run in random interleavings with inputs and losses, on the real statements.

Fold, decide and the fencing statement are those of the product, on a real PostgreSQL; around them
two owners act out what processes do to each other: acknowledgements get lost, statements arrive
late, leases run out, owners die, wake up and are drained. Owners go on from events that are not
known to be in the log yet, as the product does. After every move the contract of runs must hold:

* An accepted run ends exactly once.
* A completed step never runs again.
* An effect is never doubled silently.
* What a client has seen is never taken back.
* Nothing acknowledged is lost.
"""

import asyncio
import os
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from gateway_harness.owners import FAILS, ONCE, SAFE, InterleavingHarness
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bos_gateway.run_log.session import SCHEMA
from bos_gateway.service import migrate_store
from bos_postgres import connect, open_database
from bos_testkit.plans import step
from bos_testkit.postgres import create_database

pytestmark = pytest.mark.crash

# `make trial NAME=crash` asks for more, and for others every time.
EXAMPLES = int(os.environ.get("BOS_TEST_INTERLEAVINGS", "0"))
FIXED = 80
OWNERS = st.sampled_from([0, 1])


@st.composite
def plans(draw: st.DrawFn) -> list[Any]:
    """Steps that need some of those before them."""
    steps: list[Any] = []
    for number in range(draw(st.integers(1, 4))):
        known = [each.step_id for each in steps]
        needs = draw(st.lists(st.sampled_from(known), unique=True)) if known else []
        agent = draw(st.sampled_from([SAFE, ONCE]))
        task = draw(st.sampled_from(["", "", FAILS]))
        steps.append(step(f"s{number}", agent, task, *needs))
    return steps


class Interleaving(RuleBasedStateMachine):
    def __init__(self, runner: asyncio.Runner, sessions: list[Any], pool: Any) -> None:
        super().__init__()
        self._runner = runner
        self.harness = InterleavingHarness(sessions, pool)

    def do(self, action: Awaitable[Any]) -> Any:
        return self._runner.run(action)  # type: ignore[arg-type]

    @initialize(plan=plans(), concurrency=st.integers(1, 3))
    def run_is_accepted(self, plan: list[Any], concurrency: int) -> None:
        self.do(self.harness.accept(plan, concurrency))

    @rule(number=OWNERS, times=st.integers(1, 3))
    def owner_goes_on(self, number: int, times: int) -> None:
        for _ in range(times):
            self.do(self.harness.drive(self.harness.owners[number], "arrives"))

    @rule(number=OWNERS, how=st.sampled_from(["answer lost", "arrives late"]))
    def owner_is_not_answered(self, number: int, how: str) -> None:
        self.do(self.harness.drive(self.harness.owners[number], how))

    @precondition(lambda self: self.harness.late)
    @rule(data=st.data())
    def late_statement_arrives(self, data: Any) -> None:
        letter = data.draw(st.sampled_from(range(len(self.harness.late))))
        self.do(self.harness.execute(self.harness.late.pop(letter)))

    @rule(number=OWNERS, well=st.sampled_from([True, True, True, False]), data=st.data())
    def effect_ends(self, number: int, well: bool, data: Any) -> None:
        held = self.harness.owners[number].held
        keys = [key for key in held.active if key not in held.ended] if held else []
        if held is not None and keys:
            self.harness.answer(held, data.draw(st.sampled_from(keys)), well)

    @rule(number=OWNERS)
    def lease_runs_out(self, number: int) -> None:
        self.do(self.harness.lose_lease(self.harness.owners[number]))

    @rule(number=OWNERS, dies=st.sampled_from([False, False, False, True]), late=st.booleans())
    def other_adopts(self, number: int, dies: bool, late: bool) -> None:
        owner = self.harness.owners[number]
        if owner.holds_lease:
            self.do(self.harness.adopt(owner, dies=dies, late=late))

    @rule(number=OWNERS, late=st.booleans())
    def lease_is_taken_again(self, number: int, late: bool) -> None:
        owner = self.harness.owners[number]
        if not owner.holds_lease:
            self.do(self.harness.retake(owner, late=late))

    @rule(number=OWNERS)
    def owner_dies(self, number: int) -> None:
        self.do(self.harness.die(self.harness.owners[number]))

    @rule(number=OWNERS)
    def owner_is_drained(self, number: int) -> None:
        owner = self.harness.owners[number]
        if owner.holds_lease:
            self.do(self.harness.drain(owner))

    @rule(number=OWNERS, after_all=st.sampled_from([False, False, False, True]))
    def cancel_arrives(self, number: int, after_all: bool) -> None:
        if after_all:  # most runs are to go on for a while
            self.do(self.harness.cancel(self.harness.owners[number]))

    @rule(number=OWNERS)
    def owner_takes_inputs(self, number: int) -> None:
        self.do(self.harness.take_inputs(self.harness.owners[number]))

    @precondition(lambda self: any(owner.held for owner in self.harness.owners))
    @rule()
    def owner_is_drained_while_it_sends(self) -> None:
        owner = next(owner for owner in self.harness.owners if owner.held is not None)
        self.do(self.harness.find_something_to_say(owner))
        self.do(self.harness.drive(owner, "arrives late"))
        self.do(self.harness.drain(owner))
        self.do(self.harness.late_arrive())

    @precondition(lambda self: any(owner.held for owner in self.harness.owners))
    @rule(other_takes_over=st.booleans())
    def owner_freezes_while_it_sends(self, other_takes_over: bool) -> None:
        owner, other = sorted(self.harness.owners, key=lambda each: each.held is None)
        self.do(self.harness.find_something_to_say(owner))
        self.do(self.harness.drive(owner, "arrives late"))
        self.do(self.harness.lose_lease(owner))
        if not other_takes_over:
            self.do(self.harness.retake(owner, late=True))
        elif other.holds_lease:
            self.do(self.harness.adopt(other, late=True))

    @rule()
    def client_reads_elsewhere(self) -> None:
        self.do(self.harness.read_elsewhere())

    @rule(seconds=st.sampled_from([1, 1, 1, 100]))
    def time_passes(self, seconds: int) -> None:
        self.harness.now += timedelta(seconds=seconds)

    @invariant()
    def contract_holds(self) -> None:
        if self.harness.seen:
            self.do(self.harness.check())

    def teardown(self) -> None:
        try:
            if self.harness.seen:
                self.do(self.harness.end())
        finally:
            self.do(self.harness.forget())


@pytest.mark.requirement("A-10")
@pytest.mark.timeout(900)
def test_contract_holds_in_every_interleaving_of_two_owners(postgres_server: Any) -> None:
    # Hypothesis makes one move after the other from outside of any loop, so this one is our own.
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        enter = stack.enter_async_context
        try:
            dsn = runner.run(create_database(postgres_server.dsn(), f"test_{uuid4().hex}"))
            runner.run(migrate_store(dsn))
            sessions = [runner.run(enter(connect(dsn, schema=SCHEMA))) for _ in range(3)]
            pool = runner.run(enter(open_database(dsn, schema=SCHEMA, max_size=2)))
            run_state_machine_as_test(
                lambda: Interleaving(runner, sessions, pool),
                settings=settings(
                    max_examples=EXAMPLES or FIXED,
                    derandomize=not EXAMPLES,
                    phases=[Phase.generate, *([Phase.shrink] if EXAMPLES else [])],
                    stateful_step_count=40,
                    deadline=None,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(stack.aclose())
