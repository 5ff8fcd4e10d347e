"""Fold and decide, driven without any service: what a run wants next, and that it always ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_FAILED,
    AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    INSTRUCTION_MODE_ENHANCE,
    INSTRUCTION_MODE_OVERRIDE,
    SIDE_EFFECT_CLASS_IDEMPOTENT,
    SIDE_EFFECT_CLASS_IRREVERSIBLE,
    SIDE_EFFECT_CLASS_NONE,
    AgentCard,
    AgentResult,
    ProposedAction,
    Tool,
)
from bos.common.v1 import Clarification, ClarifyingQuestion
from bos.composer.v1 import ComposerOutput
from bos.gateway.v1 import (
    APPROVAL_STATUS_APPROVED,
    APPROVAL_STATUS_CANCELLED,
    APPROVAL_STATUS_DENIED,
    APPROVAL_STATUS_PENDING,
    APPROVAL_STATUS_TIMED_OUT,
    RUN_STATUS_CANCELLED,
    RUN_STATUS_CLARIFICATION_NEEDED,
    RUN_STATUS_FAILED,
    RUN_STATUS_WAITING_FOR_APPROVAL,
    AgentRequest,
    Approval,
)
from bos.planner.v1 import Plan
from bos.runlog.v1 import (
    AnswerDelta,
    AnswerStarted,
    ApprovalRequested,
    ApprovalResolved,
    CancelRequested,
    InstructionsClassified,
    LogEvent,
    Planned,
    RunAccepted,
    RunAdopted,
    RunFinished,
    RunSettings,
    StepFinished,
)
from bos_chassis.values import to_value_map
from bos_gateway.decide import Classify, Compose, MakePlan, Record, RunStep, decide, next_wake
from bos_gateway.response import composed_response
from bos_gateway.state import BrokenLog, RunState, UnknownEvent, apply, fold
from bos_testkit.plans import step

if TYPE_CHECKING:
    from hypothesis.strategies import DataObject

    from bos_gateway.decide import Command

START = datetime(2026, 6, 15, 12, tzinfo=UTC)
LIMIT = timedelta(seconds=100)


def event(now: datetime = START, **kind: object) -> LogEvent:
    made = LogEvent(**kind)
    made.create_time.FromDatetime(now)
    return made


def accepted(**request: object) -> LogEvent:
    settings = RunSettings(max_concurrency=2, max_steps=8)
    settings.compose_timeout.FromSeconds(10)
    body = RunAccepted(request=AgentRequest(question="?", **request), settings=settings)
    body.deadline.FromDatetime(START + LIMIT)
    return event(run_accepted=body)


def planned(*steps: object) -> LogEvent:
    return event(planned=Planned(plan=Plan(steps=steps)))


def finished(
    step_id: str, status: int = AGENT_EXECUTION_STATUS_SUCCEEDED, **result: object
) -> LogEvent:
    made = AgentResult(status=status, agent_name="echo", **result)
    return event(step_finished=StepFinished(step_id=step_id, result=made, attempts=1))


def adopted() -> LogEvent:
    return event(run_adopted=RunAdopted(reason="lease_expired"))


def wanted(state: RunState, now: datetime = START) -> list[object]:
    """What is under way once everything that can be recorded is: step ids, or a command's type."""
    while (commands := decide(state, now)) and isinstance(commands[0], Record):
        for recorded in commands[0].events:
            apply(state, recorded)
    return [c.step_id if isinstance(c, RunStep) else type(c) for c in commands]


def test_accepted_run_wants_a_plan() -> None:
    assert decide(fold("r", [accepted()]), START) == [MakePlan(0)]


def test_ready_steps_run_within_the_limit_of_concurrency() -> None:
    state = fold("r", [accepted(), planned(*(step(n, "echo") for n in "abc"))])
    assert wanted(state) == ["a", "b"]


def test_step_runs_only_once_its_dispatch_is_in_the_log() -> None:
    state = fold("r", [accepted(), planned(step("a", "echo"))])
    (record,) = decide(state, START)
    assert isinstance(record, Record)
    assert [e.step_dispatched.attempt for e in record.events] == [1]
    apply(state, record.events[0])
    (command,) = decide(state, START)
    assert isinstance(command, RunStep)
    assert command.sub_task == record.events[0].step_dispatched.sub_task


def test_step_that_becomes_ready_does_not_push_out_one_under_way() -> None:
    """A step earlier in planner order must wait for a slot like any other."""
    plan = planned(step("x", "echo", "x", "p"), step("p", "echo"), step("a", "echo"))
    state = fold("r", [accepted(), plan])
    assert wanted(state) == ["p", "a"]
    apply(state, finished("p"))
    assert wanted(state) == ["x", "a"]
    state = fold("r", [accepted(), planned(*(step(n, "echo") for n in "abc"))])
    assert wanted(state) == ["a", "b"]
    apply(state, finished("b"))
    assert wanted(state) == ["a", "c"]


@pytest.mark.parametrize(
    ("side_effect", "again"),
    [(SIDE_EFFECT_CLASS_NONE, True), (SIDE_EFFECT_CLASS_IRREVERSIBLE, False)],
)
def test_step_interrupted_by_a_change_of_owner(side_effect: int, again: bool) -> None:
    start = accepted()
    card = AgentCard(name="echo", tools=[Tool(name="act", side_effect=side_effect)])
    start.run_accepted.cards.append(card)
    state = fold("r", [start, planned(step("a", "echo"))])
    (record,) = decide(state, START)
    assert isinstance(record, Record)
    assert record.durable is not again
    apply(state, record.events[0])
    apply(state, adopted())
    (record,) = decide(state, START)
    assert isinstance(record, Record)
    if again:
        assert [e.step_dispatched.attempt for e in record.events] == [2]
    else:
        assert record.events[-1].step_finished.result.error.type == "OutcomeUnknown"


def test_all_settled_wants_the_answer() -> None:
    state = fold("r", [accepted(), planned(step("a", "echo")), finished("a")])
    assert wanted(state) == [Compose]


def test_cancelled_run_ends_whatever_is_under_way() -> None:
    cancel = event(cancel_requested=CancelRequested(reason="enough"))
    state = fold("r", [accepted(), planned(step("a", "echo")), cancel])
    (record,) = decide(state, START)
    assert isinstance(record, Record)
    assert record.events[-1].run_finished.response.status == RUN_STATUS_CANCELLED


def test_step_that_asks_the_user_ends_the_run_with_its_questions_d_04() -> None:
    asks = Clarification(questions=[ClarifyingQuestion(question="Which year?", options=["2025"])])
    result = finished("a", AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION, clarification=asks)
    state = fold("r", [accepted(), planned(step("a", "echo")), result])
    (record,) = decide(state, START)
    assert isinstance(record, Record)
    response = record.events[-1].run_finished.response
    assert response.status == RUN_STATUS_CLARIFICATION_NEEDED
    assert response.clarification.questions[0].options == ["2025"]


@pytest.mark.parametrize(("seconds", "over"), [(90, False), (92, True)])
def test_steps_end_before_the_run_so_that_an_answer_can_be_composed(
    seconds: int, over: bool
) -> None:
    state = fold("r", [accepted(), planned(step("a", "echo"))])
    assert wanted(state) == ["a"]
    assert next_wake(state) == START + timedelta(seconds=91)
    assert wanted(state, START + timedelta(seconds=seconds)) == ([Compose] if over else ["a"])
    assert state.steps["a"].settled is over


@pytest.mark.parametrize(("seconds", "over"), [(99, False), (100, True)])
def test_run_that_is_never_planned_ends_at_its_deadline(seconds: int, over: bool) -> None:
    state = fold("r", [accepted()])
    commands = decide(state, START + timedelta(seconds=seconds))
    assert isinstance(commands[0], Record) is over
    if over:
        assert isinstance(commands[0], Record)
        assert commands[0].events[-1].run_finished.response.status == RUN_STATUS_FAILED


def proposing(step_id: str = "a", effect: int = SIDE_EFFECT_CLASS_IRREVERSIBLE) -> LogEvent:
    """The agent wants to act, and somebody is asked."""
    action = ProposedAction(action_id="1", tool="act", digest="sha256:1", side_effect=effect)
    approval = Approval(
        approval_id=f"{step_id}1",
        step_id=step_id,
        actions=[action],
        status=APPROVAL_STATUS_PENDING,
    )
    return event(approval_requested=ApprovalRequested(approval=approval))


def decided(
    requested: LogEvent,
    status: int = APPROVAL_STATUS_APPROVED,
    instructions: str = "",
    now: datetime = START,
) -> LogEvent:
    approval = Approval()
    approval.CopyFrom(requested.approval_requested.approval)
    approval.status = status
    approval.user_instructions = instructions
    return event(now, approval_resolved=ApprovalResolved(approval=approval))


def asking(
    *others: object, effect: int = SIDE_EFFECT_CLASS_IRREVERSIBLE
) -> tuple[RunState, LogEvent]:
    """A run whose step ``a`` has proposed something, beside other steps."""
    start = accepted()
    tool = Tool(name="act", requires_approval=True, side_effect=effect)
    start.run_accepted.cards.append(AgentCard(name="echo", tools=[tool]))
    state = fold("r", [start, planned(step("a", "echo"), *others)])
    wanted(state)
    requested = proposing(effect=effect)
    apply(state, requested)
    return state, requested


def recorded(state: RunState, now: datetime = START) -> list[str | None]:
    """What deciding wants to have in the log, applied."""
    (record,) = decide(state, now)
    assert isinstance(record, Record)
    for each in record.events:
        apply(state, each)
    return [each.WhichOneof("event") for each in record.events]


def test_run_that_can_do_nothing_but_wait_is_let_go() -> None:
    state, _ = asking()
    (record,) = decide(state, START)
    assert isinstance(record, Record)
    assert record.durable
    assert recorded(state) == ["run_released"]
    assert state.let_go
    assert state.status == RUN_STATUS_WAITING_FOR_APPROVAL
    apply(state, adopted())
    assert not state.let_go


def test_run_with_other_work_is_not_let_go() -> None:
    state, _ = asking(step("b", "echo"), step("c", "echo"))
    assert wanted(state) == ["b", "c"]
    assert not state.let_go


def test_waiting_step_takes_no_place_and_holds_its_dependents() -> None:
    state, _ = asking(step("b", "echo"), step("c", "echo"), step("d", "echo", "d", "a"))
    assert wanted(state) == ["b", "c"]
    apply(state, finished("b"))
    assert wanted(state) == ["c"]


def test_approved_action_is_in_the_log_before_it_is_performed() -> None:
    state, requested = asking()
    apply(state, decided(requested))
    (record,) = decide(state, START)
    assert isinstance(record, Record)
    assert record.durable
    assert recorded(state) == ["effect_intended", "step_dispatched"]
    (command,) = decide(state, START)
    assert isinstance(command, RunStep)
    assert command.attempt == 2
    assert command.approval is not None
    assert [each.digest for each in command.approval.approved_actions] == ["sha256:1"]


def classified(command: object, mode: int = INSTRUCTION_MODE_ENHANCE) -> LogEvent:
    assert isinstance(command, Classify)
    body = InstructionsClassified(
        step_id=command.step_id, approval_id=command.approval_id, mode=mode
    )
    return event(instructions_classified=body)


def test_instructions_are_classified_and_allow_nothing_yet() -> None:
    state, requested = asking()
    apply(state, decided(requested, instructions="and more"))
    (command,) = decide(state, START)
    apply(state, classified(command))
    assert recorded(state) == ["step_dispatched"]
    (command,) = decide(state, START)
    assert isinstance(command, RunStep)
    assert command.approval is not None
    assert not command.approval.approved_actions
    assert command.approval.user_instructions == "and more"


@pytest.mark.parametrize(
    ("mode", "instructions"),
    [(INSTRUCTION_MODE_ENHANCE, "one\ntwo"), (INSTRUCTION_MODE_OVERRIDE, "two")],
)
def test_instructions_add_to_earlier_ones_or_take_their_place(mode: int, instructions: str) -> None:
    state, requested = asking()
    apply(state, decided(requested, instructions="one"))
    apply(state, classified(decide(state, START)[0]))
    recorded(state)
    requested.approval_requested.approval.approval_id = "a2"
    apply(state, requested)
    apply(state, decided(requested, instructions="two"))
    apply(state, classified(decide(state, START)[0], mode))
    recorded(state)
    (command,) = decide(state, START)
    assert isinstance(command, RunStep)
    assert command.approval is not None
    assert command.approval.user_instructions == instructions
    assert command.approval.instruction_mode == mode


def test_others_go_on_while_instructions_are_classified() -> None:
    state, requested = asking(step("b", "echo"))
    apply(state, decided(requested, instructions="and more"))
    assert wanted(state) == ["b", Classify]


@pytest.mark.parametrize(
    ("status", "reason"),
    [(APPROVAL_STATUS_DENIED, "denied_by_user"), (APPROVAL_STATUS_TIMED_OUT, "hitl_timeout")],
)
def test_without_an_approval_the_step_ends(status: int, reason: str) -> None:
    state, requested = asking()
    apply(state, decided(requested, status))
    assert recorded(state) == ["step_progressed", "step_finished"]
    result = state.steps["a"].result
    assert result is not None
    assert result.error.type == reason
    assert result.partial_data.fields["reason"].string_value == reason
    assert wanted(state) == [Compose]


@pytest.mark.parametrize(
    ("effect", "again"),
    [(SIDE_EFFECT_CLASS_IDEMPOTENT, True), (SIDE_EFFECT_CLASS_IRREVERSIBLE, False)],
)
def test_approved_action_interrupted_by_a_change_of_owner(effect: int, again: bool) -> None:
    state, requested = asking(effect=effect)
    apply(state, decided(requested))
    recorded(state)
    apply(state, adopted())
    if again:
        assert recorded(state) == ["step_dispatched"]
        (command,) = decide(state, START)
        assert isinstance(command, RunStep)
        assert command.approval is not None
        assert command.approval.approved_actions
    else:
        assert recorded(state) == ["step_progressed", "step_finished"]
        result = state.steps["a"].result
        assert result is not None
        assert result.error.type == "OutcomeUnknown"


def test_proposing_may_be_interrupted_whatever_is_proposed() -> None:
    start = accepted()
    tool = Tool(name="act", requires_approval=True, side_effect=SIDE_EFFECT_CLASS_IRREVERSIBLE)
    start.run_accepted.cards.append(AgentCard(name="echo", tools=[tool]))
    state = fold("r", [start, planned(step("a", "echo"))])
    wanted(state)
    apply(state, adopted())
    assert recorded(state) == ["step_dispatched"]


@pytest.mark.parametrize("hours", [0, 1000])
def test_time_that_a_person_takes_does_not_count(hours: int) -> None:
    state, requested = asking()
    later = START + timedelta(hours=hours)
    assert next_wake(state) is None
    assert recorded(state, later) == ["run_released"]
    apply(state, adopted())
    apply(state, decided(requested, now=later))
    assert recorded(state, later) == ["effect_intended", "step_dispatched"]
    assert wanted(state, later + timedelta(seconds=90)) == ["a"]
    assert wanted(state, later + timedelta(seconds=92)) == [Compose]


def test_cancelled_run_closes_what_nobody_has_decided() -> None:
    state, _ = asking()
    apply(state, event(cancel_requested=CancelRequested(reason="enough")))
    (record,) = decide(state, START)
    assert isinstance(record, Record)
    resolved, end = record.events
    assert resolved.approval_resolved.approval.status == APPROVAL_STATUS_CANCELLED
    assert end.run_finished.response.status == RUN_STATUS_CANCELLED


def test_proposal_is_paid_for_and_gives_back_what_was_held() -> None:
    start = accepted()
    start.run_accepted.settings.max_tokens = 100_000
    state = fold("r", [start, planned(step("a", "echo"))])
    wanted(state)
    assert state.steps["a"].reserved_tokens > 0
    requested = proposing()
    requested.approval_requested.result.usage.input_tokens = 70
    apply(state, requested)
    assert state.steps["a"].reserved_tokens == 0
    assert state.usage.input_tokens == 70
    apply(state, decided(requested))
    recorded(state)
    assert state.steps["a"].reserved_tokens > 0


@pytest.mark.parametrize("second", ["decision", "request"])
def test_log_with_two_decisions_or_requests_at_once_is_refused(second: str) -> None:
    state, requested = asking()
    if second == "decision":
        apply(state, decided(requested))
    with pytest.raises(BrokenLog):
        apply(state, requested if second == "request" else decided(requested))


def test_unknown_event_is_not_guessed_at() -> None:
    with pytest.raises(UnknownEvent):
        fold("r", [accepted(), LogEvent()])


@pytest.mark.parametrize(
    "events",
    [
        [planned()],
        [accepted(), accepted()],
        [accepted(), event(run_finished=RunFinished()), planned()],
        [accepted(), planned(step("a", "echo")), finished("a"), finished("a")],
        [accepted(), planned(step("a", "echo")), finished("b")],
    ],
    ids=["no start", "two starts", "after the end", "settled twice", "unknown step"],
)
def test_log_that_contradicts_itself_is_refused(events: list[LogEvent]) -> None:
    with pytest.raises(BrokenLog):
        fold("r", events)


_SHAPES = [
    [step("a", "echo"), step("b", "echo", "use @{outputs.a.x}"), step("c", "echo", "x", "b")],
    [step("a", "echo"), step("b", "echo"), step("c", "echo", "@{outputs.a.x} @{outputs.b.y}")],
    [step(n, "echo") for n in "abcde"],
    [],
]


@settings(deadline=None)  # how long it takes says how busy the machine is
@given(shape=st.sampled_from(_SHAPES), turns=st.integers(0, 3), data=st.data())
def test_any_interleaving_ends_once_with_every_step_settled_once(
    shape: list, turns: int, data: DataObject
) -> None:
    """Effects answer in any order and any way; the owner may change at any point.

    An owner change forgets everything but the log: the state must be the same when folded anew, and
    what is wanted must follow from it alone.
    """
    events = [accepted(**({"max_turns": turns} if turns else {}))]
    events[0].run_accepted.cards.add(name="echo")
    for _ in range(200):
        state = fold("r", events)
        if state.finished:
            break
        if state.let_go:
            events += [adopted(), _decision(events, data)]
            continue
        commands = decide(state, START)
        assert commands, "an unfinished run always wants something"
        events += _answer(data.draw(st.sampled_from(commands)), state, shape, data)
    ends = [e for e in events if e.HasField("run_finished")]
    settled = [e.step_finished.step_id for e in events if e.HasField("step_finished")]
    assert len(ends) == 1
    assert events[-1] is ends[0]
    assert sorted(settled) == sorted(s.step_id for s in shape)
    dispatches = [e.step_dispatched.step_id for e in events if e.HasField("step_dispatched")]
    if turns:
        assert len(set(dispatches)) <= turns
    response = ends[0].run_finished.response
    assert [r.agent_name for r in response.agent_results] == [s.agent for s in shape]


def _decision(events: list[LogEvent], data: DataObject) -> LogEvent:
    """A person's, about one of the requests that are open."""
    asked = {
        e.approval_requested.approval.approval_id: e
        for e in events
        if e.HasField("approval_requested")
    }
    for each in events:
        asked.pop(each.approval_resolved.approval.approval_id, None)
    status = data.draw(st.sampled_from([APPROVAL_STATUS_APPROVED, APPROVAL_STATUS_DENIED]))
    instructed = status == APPROVAL_STATUS_APPROVED and len(events) < 30
    instructions = "more" if instructed and data.draw(st.booleans(), label="instructs") else ""
    return decided(data.draw(st.sampled_from(list(asked.values()))), status, instructions)


def _answer(command: Command, state: RunState, shape: list, data: DataObject) -> list[LogEvent]:
    match command:
        case MakePlan():
            return [planned(*shape)]
        case Record(events=recorded):
            return list(recorded)
        case Classify():
            if data.draw(st.booleans(), label="owner dies while classifying"):
                return [adopted()]
            return [classified(command)]
        case Compose():
            started = event(answer_started=AnswerStarted(attempt=state.answer_attempt + 1))
            mortal = state.answer_attempt < 3
            if mortal and data.draw(st.booleans(), label="owner dies while composing"):
                delta = AnswerDelta(attempt=state.answer_attempt + 1, text="half")
                return [started, event(answer_delta=delta)]
            response = composed_response(state, START, ComposerOutput(answer="done"))
            return [started, event(run_finished=RunFinished(response=response))]
        case RunStep():
            mortal = state.steps[command.step_id].attempt < 3
            if mortal and data.draw(st.booleans(), label="owner dies"):
                return [adopted()]
            performing = command.approval is not None and command.approval.approved_actions
            if not performing and data.draw(st.booleans(), label="proposes"):
                requested = proposing(command.step_id)
                number = state.steps[command.step_id].proposals
                requested.approval_requested.approval.approval_id += str(number)
                return [requested]
            status = data.draw(
                st.sampled_from([AGENT_EXECUTION_STATUS_SUCCEEDED, AGENT_EXECUTION_STATUS_FAILED])
            )
            return [finished(command.step_id, status, data=to_value_map({"x": 1, "y": 2}))]
