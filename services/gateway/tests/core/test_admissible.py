"""Admissible log events: of each kind, one that counts and one that comes too late."""

from collections.abc import Callable

import pytest
from gateway_harness.run_logs import (
    CANCEL,
    START,
    accepted,
    adopted,
    asking,
    decided,
    event,
    finished,
    planned,
    proposing,
    record_of,
    revising,
)

from bos.common.v1 import AgentError
from bos.gateway.v1 import APPROVAL_STATUS_DENIED
from bos.runlog.v1 import (
    InstructionsClassified,
    LogEvent,
    PlanFailed,
    RunFinished,
    StepDispatched,
    StepProgressed,
)
from bos_gateway.core.fold import admissible, apply, fold
from bos_gateway.core.run_state import RunState, UnknownEvent
from bos_testkit.plans import step

PLAN = planned(step("a", "echo"))
END = event(run_finished=RunFinished())
NO_PLAN = event(plan_failed=PlanFailed(error=AgentError(type="QueryError")))
SENT = event(step_dispatched=StepDispatched(step_id="a", attempt=1))
PROGRESS = event(step_progressed=StepProgressed(step_id="a"))
CLASSIFIED = event(instructions_classified=InstructionsClassified(step_id="a"))


def new() -> RunState:
    return fold("r", [accepted()])


def running() -> RunState:
    return fold("r", [accepted(), PLAN, SENT])


def ended() -> RunState:
    return fold("r", [accepted(), PLAN, SENT, finished("a")])


def replanned() -> RunState:
    """The step ``a`` is of the plan before the one in force."""
    again = planned(step("b", "echo"), revision=1)
    return fold("r", [accepted(), PLAN, revising("a"), again])


def waiting() -> RunState:
    return asking()[0]


def answered(instructions: str = "") -> RunState:
    state, requested = asking()
    apply(state, decided(requested, instructions=instructions))
    return state


def instructed() -> RunState:
    return answered("in euros")


def cancelled() -> RunState:
    state = running()
    apply(state, CANCEL)
    return state


DECISION = decided(proposing())


@pytest.mark.parametrize(
    ("follows", "counts", "too_late"),
    [
        (PLAN, new, running),
        (NO_PLAN, new, running),
        (SENT, running, ended),
        (SENT, running, replanned),
        (PROGRESS, running, ended),
        (PROGRESS, running, replanned),
        (finished("a"), running, ended),
        (finished("a"), running, replanned),
        (proposing(), running, ended),
        (proposing(), running, replanned),
        (DECISION, waiting, answered),
        (DECISION, waiting, running),
        (CLASSIFIED, instructed, answered),
        (CLASSIFIED, instructed, new),
        (CANCEL, running, cancelled),
    ],
    ids=lambda each: each.WhichOneof("event") if isinstance(each, LogEvent) else each.__name__,
)
def test_event_counts_until_the_run_no_longer_waits_for_it(
    follows: LogEvent, counts: Callable[[], RunState], too_late: Callable[[], RunState]
) -> None:
    assert admissible(counts(), [follows])[0] == [follows]
    assert admissible(too_late(), [follows])[0] == []


@pytest.mark.parametrize(
    ("twice", "state"),
    [(PLAN, new), (finished("a"), running), (DECISION, waiting)],
    ids=["planned", "step_finished", "approval_resolved"],
)
def test_of_two_in_one_batch_the_first_counts(
    twice: LogEvent, state: Callable[[], RunState]
) -> None:
    second = LogEvent()
    second.CopyFrom(twice)
    second.create_time.FromDatetime(START.replace(hour=13))
    assert admissible(state(), [twice, second])[0] == [twice]


@pytest.mark.parametrize("end", [CANCEL, END], ids=["cancel", "end"])
def test_nothing_counts_behind_a_request_to_cancel_or_the_end(end: LogEvent) -> None:
    assert admissible(running(), [PROGRESS, end, finished("a")])[0] == [PROGRESS, end]


def test_end_counts_after_a_request_to_cancel_that_is_in_the_log() -> None:
    assert admissible(cancelled(), [END])[0] == [END]
    assert admissible(cancelled(), [CANCEL, END])[0] == []


def test_ignored_decision_is_named_and_a_valid_one_is_not() -> None:
    denied = decided(proposing(), APPROVAL_STATUS_DENIED)
    assert admissible(waiting(), [DECISION, denied]) == ([DECISION], ["a1"])
    assert admissible(answered(), [DECISION]) == ([], ["a1"])


def test_events_of_the_owner_itself_always_count() -> None:
    own = [*record_of(waiting()), adopted()]
    assert admissible(waiting(), own)[0] == own


def test_input_of_newer_version_is_error_and_is_not_left_out() -> None:
    with pytest.raises(UnknownEvent, match="run r, an input"):
        admissible(running(), [PROGRESS, LogEvent()])


def test_state_is_left_as_it_was() -> None:
    state = waiting()
    before = (state.last_sequence, state.planning, state.steps["a"].awaits)
    admissible(state, [DECISION, finished("a"), CANCEL])
    assert (state.last_sequence, state.planning, state.steps["a"].awaits) == before
