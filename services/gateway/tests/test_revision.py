"""When a run gets another plan, what the planner is told, and what counts afterwards."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_FAILED,
    AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
    AGENT_EXECUTION_STATUS_SKIPPED,
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    SIDE_EFFECT_CLASS_IDEMPOTENT,
    SIDE_EFFECT_CLASS_IRREVERSIBLE,
    SIDE_EFFECT_CLASS_NONE,
    AgentCard,
    AgentResult,
    ProposedAction,
    Tool,
)
from bos.common.v1 import AgentError, Clarification, ClarifyingQuestion
from bos.composer.v1 import ComposerOutput
from bos.gateway.v1 import (
    APPROVAL_STATUS_DENIED,
    APPROVAL_STATUS_EXPIRED,
    APPROVAL_STATUS_PENDING,
    RUN_STATUS_CLARIFICATION_NEEDED,
    RUN_STATUS_FAILED,
    RUN_STATUS_PARTIALLY_SUCCEEDED,
    RUN_STATUS_SUCCEEDED,
    AgentRequest,
    Approval,
)
from bos.planner.v1 import Plan, PlannerDecision
from bos.runlog.v1 import (
    ApprovalRequested,
    ApprovalResolved,
    CancelRequested,
    LogEvent,
    PlanFailed,
    Planned,
    RevisionStarted,
    RunAccepted,
    RunAdopted,
    RunSettings,
    StepFinished,
)
from bos_chassis.values import to_value, to_value_map
from bos_gateway.attempts import definitive_failure, journal, revision_context, working_context
from bos_gateway.decide import Compose, MakePlan, Record, RunStep, decide, next_wake
from bos_gateway.proposals import denied_before
from bos_gateway.response import composed_response, final_answer
from bos_gateway.revision import revision_problems
from bos_gateway.state import BrokenLog, RunState, apply, fold
from bos_testkit.plans import step

if TYPE_CHECKING:
    from bos.planner.v1 import Step

START = datetime(2026, 6, 15, 12, tzinfo=UTC)
LIMIT = timedelta(seconds=100)
FAILED = AGENT_EXECUTION_STATUS_FAILED
SUCCEEDED = AGENT_EXECUTION_STATUS_SUCCEEDED
SKIPPED = AGENT_EXECUTION_STATUS_SKIPPED


def event(now: datetime = START, **kind: Any) -> LogEvent:
    made = LogEvent(**kind)
    made.create_time.FromDatetime(now)
    return made


def accepted(*cards: AgentCard, request: dict[str, Any] | None = None, **limits: Any) -> LogEvent:
    frozen = {"max_concurrency": 8, "max_steps": 24, "max_revisions": 2, **limits}
    settings = RunSettings(confidence_threshold=0.5, **frozen)
    settings.compose_timeout.FromSeconds(10)
    body = RunAccepted(request=AgentRequest(question="?", **(request or {})), settings=settings)
    body.cards.extend([AgentCard(name="echo"), *cards])
    body.deadline.FromDatetime(START + LIMIT)
    return event(run_accepted=body)


def planned(*steps: Step, revision: int = 0, origin: str = "model", **body: Any) -> LogEvent:
    body.setdefault("decision", PlannerDecision(confidence=0.9))
    plan = Plan(steps=steps, origin=origin)
    return event(planned=Planned(revision=revision, plan=plan, **body))


def finished(
    step_id: str, status: int = SUCCEEDED, *, revision: int = 0, error: str = "", **result: Any
) -> LogEvent:
    result.setdefault("answer", f"{step_id} done" if status == SUCCEEDED else "")
    made = AgentResult(status=status, agent_name="echo", **result)
    if error or status == FAILED:
        made.error.type, made.error.message = error or "HttpError", "It did not work."
    body = StepFinished(step_id=step_id, revision=revision, result=made, attempts=1)
    return event(step_finished=body)


def failed(step_id: str, error: str = "HttpError", **details: Any) -> LogEvent:
    made = finished(step_id, FAILED, error=error)
    for name, value in details.items():
        made.step_finished.result.error.details[name].CopyFrom(to_value(value))
    return made


def revising(*step_ids: str, revision: int = 1) -> LogEvent:
    return event(
        revision_started=RevisionStarted(revision=revision, failed_step_ids=list(step_ids))
    )


def wanted(state: RunState, now: datetime = START) -> list[object]:
    """What is under way once everything that can be recorded is: step ids, or commands."""
    while (commands := decide(state, now)) and isinstance(commands[0], Record):
        for recorded in commands[0].events:
            apply(state, recorded)
        if state.finished or state.let_go:
            return []
    return [c.step_id if isinstance(c, RunStep) else c for c in commands]


def after(*events: LogEvent, start: LogEvent | None = None) -> RunState:
    """A run that has come so far, with what it wants at once."""
    state = fold("r", [start or accepted(), *events])
    wanted(state)
    return state


def tried(*outcomes: LogEvent, start: LogEvent | None = None, steps: str = "ab") -> list[object]:
    """What follows when the steps of the first plan have ended like this."""
    state = after(planned(*(step(name, "echo") for name in steps)), start=start)
    for outcome in outcomes:
        apply(state, outcome)
    return wanted(state)


MAKES_ANOTHER_PLAN = [MakePlan(1)]
COMPOSES = [Compose()]


# When there is another plan


def test_steps_that_failed_lead_to_another_plan_c_21() -> None:
    assert tried(finished("a"), failed("b")) == MAKES_ANOTHER_PLAN
    assert tried(finished("a"), finished("b")) == COMPOSES


def test_another_plan_waits_until_every_step_has_ended() -> None:
    assert tried(failed("a")) == ["b"]
    assert tried(failed("a"), finished("b")) == MAKES_ANOTHER_PLAN


@pytest.mark.parametrize(
    "error",
    [
        *("HttpError", "QueryError", "Unavailable", "DeadlineExceeded", "PlanningDeclined"),
        *("ConfigurationError", "ProgramFailed", "AgentProtocolError", "AgentUnknown", "KeyError"),
    ],
)
def test_failures_that_another_plan_could_mend(error: str) -> None:
    assert tried(failed("a", error), steps="a") == MAKES_ANOTHER_PLAN


@pytest.mark.parametrize(
    "error",
    [
        *("SandboxViolation", "PermissionDenied", "HttpRefused", "ModelRefused"),
        *("ClarificationLimit", "BudgetExhausted", "CredentialLost", "OutcomeUnknown", "Cancelled"),
    ],
)
def test_decisions_of_people_rules_and_limits_are_not_planned_around_c_23(error: str) -> None:
    assert tried(failed("a", error), steps="a") == COMPOSES


@pytest.mark.parametrize(
    ("details", "follows"),
    [
        ({"violations": [{"rule": "FORBIDDEN_KEYWORD"}]}, COMPOSES),
        ({"violations": []}, MAKES_ANOTHER_PLAN),
        ({"reason": "MODEL_REFUSED"}, COMPOSES),
        ({"reason": "MODEL_UNAVAILABLE"}, MAKES_ANOTHER_PLAN),
    ],
)
def test_what_an_error_tells_in_its_details_counts_as_well(
    details: dict[str, Any], follows: list[object]
) -> None:
    assert tried(failed("a", "QueryError", **details), steps="a") == follows


@pytest.mark.parametrize("error", ["hitl_skipped_non_streaming", "denied_by_user", "hitl_timeout"])
def test_step_that_was_skipped_is_not_planned_around_c_23(error: str) -> None:
    assert tried(finished("a", SKIPPED, error=error), steps="a") == COMPOSES


def test_failed_step_beside_a_denied_one_is_mended_and_the_denied_one_stays() -> None:
    state = after(planned(step("a", "echo"), step("b", "echo")))
    apply(state, finished("a", SKIPPED, error="denied_by_user"))
    apply(state, failed("b"))
    assert wanted(state) == MAKES_ANOTHER_PLAN
    context = revision_context(state)
    assert [each.step_id for each in context.failed_steps] == ["b"]
    assert [each.step_id for each in context.blocked_steps] == ["a"]
    assert [each.step_id for each in context.execution_context] == ["b"]


REFERS = "use @{outputs.a.nowhere}"


@pytest.mark.parametrize(
    ("source", "follows"),
    [
        (finished("a"), MAKES_ANOTHER_PLAN),
        (failed("a"), MAKES_ANOTHER_PLAN),
        (failed("a", "SandboxViolation"), COMPOSES),
        (finished("a", SKIPPED, error="denied_by_user"), COMPOSES),
    ],
    ids=["no such field", "its source failed", "its source was blocked", "its source was denied"],
)
def test_reference_is_as_mendable_as_what_it_refers_to_c_17(
    source: LogEvent, follows: list[object]
) -> None:
    state = after(planned(step("a", "echo"), step("b", "echo", REFERS)))
    apply(state, source)
    assert wanted(state) == follows


def acting(effect: int, *, protected: bool = False) -> AgentCard:
    tool = Tool(name="act", side_effect=effect, requires_approval=protected)
    return AgentCard(name="actor", tools=[tool])


@pytest.mark.parametrize(
    ("card", "follows"),
    [
        (acting(SIDE_EFFECT_CLASS_NONE), MAKES_ANOTHER_PLAN),
        (acting(SIDE_EFFECT_CLASS_IDEMPOTENT), COMPOSES),
        (acting(SIDE_EFFECT_CLASS_IRREVERSIBLE), COMPOSES),
        (acting(SIDE_EFFECT_CLASS_IRREVERSIBLE, protected=True), MAKES_ANOTHER_PLAN),
    ],
    ids=["harmless", "known by its key", "irreversible", "only with approval"],
)
def test_step_that_may_have_acted_is_not_planned_again(
    card: AgentCard, follows: list[object]
) -> None:
    """Another plan has other keys, so not even an idempotent effect would be recognised."""
    state = after(planned(step("a", "actor")), start=accepted(card))
    apply(state, failed("a"))
    assert wanted(state) == follows


# Limits


def test_plan_is_revised_as_often_as_the_run_was_accepted_with() -> None:
    assert tried(failed("a"), steps="a", start=accepted(max_revisions=0)) == COMPOSES
    assert tried(failed("a"), steps="a", start=accepted(max_revisions=1)) == MAKES_ANOTHER_PLAN
    state = mended(accepted(max_revisions=1))
    apply(state, finished("c", FAILED, revision=1))
    assert wanted(state) == COMPOSES
    assert definitive_failure(state).startswith("The plan was revised once, which is the limit")


def mended(start: LogEvent | None = None, *steps: Step) -> RunState:
    """A run whose first plan half failed, with a second one under way."""
    state = after(planned(step("a", "echo"), step("b", "echo")), start=start)
    apply(state, finished("a", data=to_value_map({"x": 7})))
    apply(state, failed("b"))
    wanted(state)
    apply(state, planned(*(steps or (step("c", "echo", "use @{outputs.a.x}"),)), revision=1))
    wanted(state)
    return state


@pytest.mark.parametrize(
    ("start", "follows"),
    [
        (accepted(max_steps=2), MAKES_ANOTHER_PLAN),
        (accepted(max_steps=1), COMPOSES),
        (accepted(request={"max_turns": 2}), MAKES_ANOTHER_PLAN),
        (accepted(request={"max_turns": 1}), COMPOSES),
        (accepted(max_tokens=1_000_000), [MakePlan(1, 250_000)]),
        (accepted(max_tokens=3_000), COMPOSES),
    ],
    ids=["steps", "no steps", "turns", "no turns", "tokens", "no tokens"],
)
def test_another_plan_needs_steps_turns_and_tokens(start: LogEvent, follows: list[object]) -> None:
    outcome = failed("a")
    outcome.step_finished.result.usage.input_tokens = 1_000
    found = tried(outcome, steps="a", start=start)
    assert [type(each) for each in found] == [type(each) for each in follows]
    if isinstance(follows[0], MakePlan):
        assert [each.revision for each in found if isinstance(each, MakePlan)] == [1]


@pytest.mark.parametrize(("seconds", "late"), [(84, False), (86, True)])
def test_another_plan_needs_time_for_itself_and_a_step(seconds: int, late: bool) -> None:
    state = after(planned(step("a", "echo")))
    apply(state, failed("a"))
    now = START + timedelta(seconds=seconds)
    assert wanted(state, now) == (COMPOSES if late else MAKES_ANOTHER_PLAN)


def test_planner_that_has_no_other_plan_is_not_asked() -> None:
    state = after(planned(step("a", "echo"), only_plan=True))
    apply(state, failed("a"))
    assert wanted(state) == COMPOSES


def test_planning_that_takes_too_long_ends_the_attempts_and_the_answer_is_composed() -> None:
    state = after(planned(step("a", "echo")))
    apply(state, failed("a"))
    assert wanted(state) == MAKES_ANOTHER_PLAN
    assert next_wake(state) == START + timedelta(seconds=91)
    assert wanted(state, START + timedelta(seconds=91)) == COMPOSES
    assert state.revision_failure is not None
    assert state.revision_failure.type == "DeadlineExceeded"


@pytest.mark.parametrize("how", ["plan_failed", "no steps"])
def test_without_a_new_plan_nothing_more_is_attempted_c_22(how: str) -> None:
    state = after(planned(step("a", "echo")))
    apply(state, failed("a"))
    wanted(state)
    error = AgentError(type="NoNewPlan", message="There is no other plan.")
    nothing = event(plan_failed=PlanFailed(revision=1, error=error))
    apply(state, nothing if how == "plan_failed" else planned(revision=1))
    assert wanted(state) == COMPOSES
    assert list(state.steps) == ["a"]
    assert (state.revision, state.replanning) == (0, None)
    assert definitive_failure(state).startswith("No other plan was found.")


def test_new_owner_asks_for_the_same_revision_and_counts_the_planning_before_it() -> None:
    start = accepted(max_tokens=100_000)
    state = after(planned(step("a", "echo")), start=start)
    outcome = failed("a")
    outcome.step_finished.result.usage.input_tokens = 1_000
    apply(state, outcome)
    (before,) = wanted(state)
    used = state.usage.unreported_tokens
    apply(state, event(run_adopted=RunAdopted(reason="lease_expired")))
    (again,) = wanted(state)
    assert isinstance(before, MakePlan)
    assert isinstance(again, MakePlan)
    assert (again.revision, before.revision) == (1, 1)
    assert state.usage.unreported_tokens - used == before.token_budget


def test_cancelled_while_it_is_replanned() -> None:
    state = after(planned(step("a", "echo")))
    apply(state, failed("a"))
    wanted(state)
    apply(state, event(cancel_requested=CancelRequested(reason="enough")))
    assert wanted(state) == []
    assert state.finished


# Uncertain plans


def uncertain(confidence: float, result: dict[str, Any], origin: str = "model") -> RunState:
    decision = PlannerDecision(confidence=confidence)
    state = after(planned(step("a", "echo"), decision=decision, origin=origin))
    apply(state, finished("a", **result))
    return state


THIN: dict[str, Any] = {"answer": ""}


@pytest.mark.parametrize(
    ("confidence", "result", "origin", "follows"),
    [
        (0.4, THIN, "model", MAKES_ANOTHER_PLAN),
        (0.5, THIN, "model", COMPOSES),
        (0.4, THIN, "heuristic", COMPOSES),
        (0.4, {"answer": "7"}, "model", COMPOSES),
        (0.4, {"partial_data": to_value_map({"x": 1})}, "model", MAKES_ANOTHER_PLAN),
    ],
    ids=["thin", "certain", "no model", "results are there", "partial"],
)
def test_planner_is_asked_again_about_thin_results_of_an_uncertain_plan_b_22(
    confidence: float, result: dict[str, Any], origin: str, follows: list[object]
) -> None:
    assert wanted(uncertain(confidence, result, origin)) == follows


def test_planner_is_asked_about_thin_results_once_in_a_run_b_22() -> None:
    state = uncertain(0.4, THIN)
    assert wanted(state) == MAKES_ANOTHER_PLAN
    apply(state, planned(step("b", "echo"), revision=1, decision=PlannerDecision(confidence=0.1)))
    wanted(state)
    apply(state, finished("b", revision=1, **THIN))
    assert wanted(state) == COMPOSES


# Side effects


def held(on: str = "a", card: AgentCard | None = None) -> RunState:
    """A step that acts, behind one that failed."""
    acts = step("act", "actor", "act", on)
    acts.tools.append("act")
    card = card or acting(SIDE_EFFECT_CLASS_IRREVERSIBLE, protected=True)
    plan = planned(step("a", "echo"), step("between", "echo", "x", "a"), acts)
    return after(plan, start=accepted(card))


@pytest.mark.parametrize("on", ["a", "between"])
def test_side_effect_behind_a_failure_waits_for_another_plan(on: str) -> None:
    state = held(on)
    apply(state, failed("a"))
    assert wanted(state) == ["between"]
    apply(state, finished("between"))
    assert wanted(state) == MAKES_ANOTHER_PLAN
    apply(state, planned(step("again", "echo"), revision=1))
    assert wanted(state) == ["again"]
    assert "act" not in state.steps


def test_side_effect_goes_on_with_what_there_is_if_there_is_no_other_plan() -> None:
    state = held()
    apply(state, failed("a"))
    apply(state, finished("between"))
    wanted(state)
    error = AgentError(type="NoNewPlan", message="There is no other plan.")
    apply(state, event(plan_failed=PlanFailed(revision=1, error=error)))
    assert wanted(state) == ["act"]


def test_side_effect_behind_a_denial_does_not_wait() -> None:
    state = held()
    apply(state, finished("a", SKIPPED, error="denied_by_user"))
    assert wanted(state) == ["between", "act"]


def test_step_without_side_effects_does_not_wait() -> None:
    state = held(card=acting(SIDE_EFFECT_CLASS_NONE))
    apply(state, failed("a"))
    assert wanted(state) == ["between", "act"]


# What a new plan may be


def blocked_and_failed() -> RunState:
    state = after(planned(step("a", "echo"), step("b", "echo"), step("c", "echo")))
    for outcome in (finished("a"), finished("b", SKIPPED, error="denied_by_user"), failed("c")):
        apply(state, outcome)
    wanted(state)
    return state


@pytest.mark.parametrize(
    ("steps", "error_type", "problem"),
    [
        ([], "NoNewPlan", "no other plan"),
        ([step("new", "echo", "do c")], "NoNewPlan", "repeats what failed"),
        ([step("b", "echo", "otherwise")], "", "is taken"),
        ([step("new", "echo", "do b")], "", 'repeats "b", which stays undone'),
        ([step("new", "echo", "do  a")], "", 'repeats "a", which is done'),
        ([step("c", "echo", "otherwise")], "", ""),
        ([step("new", "echo", "do c"), step("before", "echo", "prepare")], "", ""),
    ],
    ids=["nothing", "again", "id", "denied", "done", "otherwise", "prepared"],
)
def test_plan_that_only_does_again_what_is_settled_is_refused(
    steps: list[Step], error_type: str, problem: str
) -> None:
    found, problems = revision_problems(blocked_and_failed(), Plan(steps=steps))
    assert found == error_type
    assert bool(problems) is bool(problem)
    assert problem in " ".join(problems)


@pytest.mark.parametrize("step_id", ["a", "b"])
def test_log_that_plans_anew_what_has_ended_is_refused(step_id: str) -> None:
    with pytest.raises(BrokenLog):
        apply(blocked_and_failed(), planned(step(step_id, "echo", "otherwise"), revision=1))


@pytest.mark.parametrize(
    "events",
    [
        [planned(step("b", "echo"), revision=1)],
        [revising("a", revision=2)],
        [revising("a"), revising("a")],
        [revising("a"), planned(step("b", "echo"), revision=2)],
        [event(plan_failed=PlanFailed(revision=1))],
    ],
    ids=["unasked", "out of order", "twice", "another", "failed unasked"],
)
def test_log_with_plans_out_of_order_is_refused(events: list[LogEvent]) -> None:
    with pytest.raises(BrokenLog):
        fold("r", [accepted(), planned(step("a", "echo")), failed("a"), *events])


def test_action_that_was_denied_is_not_asked_about_again_in_other_words() -> None:
    card = acting(SIDE_EFFECT_CLASS_IRREVERSIBLE, protected=True)
    state = after(planned(step("a", "actor"), step("b", "echo")), start=accepted(card))
    action = ProposedAction(action_id="1", tool="act", digest="sha256:1")
    approval = Approval(
        approval_id="a1", step_id="a", actions=[action], status=APPROVAL_STATUS_PENDING
    )
    apply(state, event(approval_requested=ApprovalRequested(approval=approval)))
    approval.status = APPROVAL_STATUS_DENIED
    apply(state, event(approval_resolved=ApprovalResolved(approval=approval)))
    apply(state, failed("b"))
    assert denied_before(state, AgentResult(proposed_actions=[action])) == []
    assert wanted(state) == MAKES_ANOTHER_PLAN
    apply(state, planned(step("c", "actor", "in other words"), revision=1))
    other = ProposedAction(action_id="1", tool="act", digest="sha256:2")
    assert denied_before(state, AgentResult(proposed_actions=[action])) == ["act"]
    assert denied_before(state, AgentResult(proposed_actions=[other])) == []


# What counts in the end


def test_what_was_achieved_stays_and_can_be_referred_to() -> None:
    state = mended()
    assert state.steps["c"].sub_task is not None
    assert state.steps["c"].sub_task.task == "use 7"
    assert set(state.outputs) == {"a"}


def test_results_are_those_that_stayed_and_those_of_the_last_plan() -> None:
    state = mended()
    apply(state, finished("c", revision=1))
    assert wanted(state) == COMPOSES
    response = composed_response(state, START, ComposerOutput(answer="done"))
    assert response.status == RUN_STATUS_SUCCEEDED
    assert [result.answer for result in response.agent_results] == ["a done", "c done"]
    assert response.metadata.revision == 1
    assert [list(stage.step_ids) for stage in response.metadata.stages] == [["c"]]


def test_trace_of_a_step_that_was_replaced_stays_in_the_trace() -> None:
    state = after(planned(step("b", "echo", "use @{outputs.a.x}"), step("a", "echo")))
    apply(state, finished("a"))
    assert wanted(state) == MAKES_ANOTHER_PLAN
    apply(state, planned(step("c", "echo"), revision=1))
    wanted(state)
    apply(state, finished("c", revision=1))
    response = composed_response(state, START, ComposerOutput(answer="done"))
    (told,) = response.trace
    assert told.data["type"].string_value == "ReferenceUnresolved"


@pytest.mark.parametrize(
    ("first", "status"),
    [(SUCCEEDED, RUN_STATUS_PARTIALLY_SUCCEEDED), (FAILED, RUN_STATUS_FAILED)],
)
def test_status_is_that_of_the_whole_cycle_c_22(first: int, status: int) -> None:
    state = after(planned(step("a", "echo"), step("b", "echo")))
    apply(state, finished("a", first))
    apply(state, failed("b"))
    wanted(state)
    apply(state, planned(step("c", "echo"), revision=1))
    wanted(state)
    apply(state, finished("c", FAILED, revision=1))
    response = composed_response(state, START, ComposerOutput(answer="done"))
    assert response.status == status


@pytest.mark.parametrize("flagged", ["a", "c"])
def test_final_answer_is_that_of_the_last_attempt_c_24(flagged: str) -> None:
    steps = {name: step(name, "echo") for name in "abc"}
    steps[flagged].is_final_answer = True
    state = after(planned(steps["a"], steps["b"]))
    apply(state, finished("a"))
    apply(state, failed("b"))
    wanted(state)
    apply(state, planned(steps["c"], revision=1))
    wanted(state)
    apply(state, finished("c", revision=1))
    output = final_answer(state)
    assert (output.answer if output else None) == ("c done" if flagged == "c" else None)


def test_working_context_keeps_findings_and_errors_of_all_attempts_c_25() -> None:
    state = mended()
    apply(state, finished("c", FAILED, revision=1, error="QueryError"))
    learnt = working_context(state)
    assert list(learnt.key_findings) == ["a (echo): a done"]
    assert list(learnt.errors_encountered) == [
        "b (echo): HttpError: It did not work.",
        "c (echo): QueryError: It did not work.",
    ]


def test_texts_of_any_size_are_cut_for_the_planner() -> None:
    state = after(planned(step("a", "echo"), step("b", "echo")))
    apply(state, finished("a", answer="x" * 100_000))
    outcome = failed("b")
    outcome.step_finished.result.error.message = "y" * 100_000
    outcome.step_finished.result.partial_data.CopyFrom(
        to_value_map({"kept": 1, "large": "z" * 100_000})
    )
    apply(state, outcome)
    wanted(state)
    context = revision_context(state)
    assert context.ByteSize() < 10_000
    assert list(context.failed_steps[0].partial_data.fields) == ["kept"]


def test_planner_is_told_what_can_be_referred_to_b_20() -> None:
    state = mended(None, step("c", "echo", other="@{outputs.a.x}"))
    apply(state, finished("c", FAILED, revision=1))
    wanted(state)
    context = revision_context(state)
    assert context.revision == 2
    assert [each.step_id for each in context.failed_plan.steps] == ["a", "c"]
    assert [(each.step_id, each.succeeded) for each in context.execution_context] == [
        ("a", True),
        ("c", False),
    ]
    kept, lost = context.execution_context
    assert list(kept.output_fields) == ["answer", "x"]
    assert lost.sub_task_input["other"].string_value == "@{outputs.a.x}"


def test_journal_tells_every_attempt_c_26() -> None:
    state = mended(accepted(max_revisions=1))
    apply(state, finished("c", FAILED, revision=1))
    (compose,) = wanted(state)
    assert isinstance(compose, Compose)
    state.answer_attempt = 1
    assert [(each.revision, each.entry) for each in journal(state)] == [
        (0, "execution attempt 1 started"),
        (
            0,
            "execution attempt 1 ended: 1 of 2 steps succeeded; "
            "b (echo): HttpError: It did not work.",
        ),
        (1, "replanning 1 started, because of b"),
        (1, "replanning 1 succeeded"),
        (1, "execution attempt 2 started"),
        (
            1,
            "execution attempt 2 ended: 0 of 1 steps succeeded; "
            "c (echo): HttpError: It did not work.",
        ),
        (1, "limit of 1 revisions reached"),
        (1, "definitively failed: c"),
    ]


# Questions to the user


def asks(step_id: str = "a") -> LogEvent:
    question = Clarification(questions=[ClarifyingQuestion(question="Which year?")])
    return finished(step_id, AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION, clarification=question)


def test_question_of_a_step_lets_nothing_new_begin_and_waits_for_what_runs_d_04() -> None:
    state = after(
        planned(step("a", "echo"), step("b", "echo"), step("c", "echo", "x", "b")),
    )
    apply(state, asks())
    assert wanted(state) == ["b"]
    assert state.steps["c"].result is not None
    assert state.steps["c"].result.error.type == "NotRun"
    apply(state, finished("b"))
    assert wanted(state) == []
    assert state.response is not None
    assert state.response.status == RUN_STATUS_CLARIFICATION_NEEDED


def test_question_of_a_step_comes_before_another_plan_c_23() -> None:
    state = after(planned(step("a", "echo"), step("b", "echo")))
    apply(state, failed("b"))
    apply(state, asks())
    assert wanted(state) == []
    assert state.response is not None
    assert state.response.status == RUN_STATUS_CLARIFICATION_NEEDED


def test_question_of_a_step_closes_what_nobody_has_decided() -> None:
    card = acting(SIDE_EFFECT_CLASS_IRREVERSIBLE, protected=True)
    state = after(planned(step("a", "echo"), step("b", "actor")), start=accepted(card))
    action = ProposedAction(action_id="1", tool="act", digest="sha256:1")
    approval = Approval(
        approval_id="b1", step_id="b", actions=[action], status=APPROVAL_STATUS_PENDING
    )
    apply(state, event(approval_requested=ApprovalRequested(approval=approval)))
    apply(state, asks())
    (record,) = decide(state, START)
    assert isinstance(record, Record)
    closed, end = record.events
    assert closed.approval_resolved.approval.status == APPROVAL_STATUS_EXPIRED
    assert end.run_finished.response.status == RUN_STATUS_CLARIFICATION_NEEDED


def test_step_under_way_at_a_change_of_owner_is_not_begun_again_behind_a_question() -> None:
    state = after(planned(step("a", "echo"), step("b", "echo")))
    apply(state, asks())
    apply(state, event(run_adopted=RunAdopted(reason="lease_expired")))
    assert wanted(state) == []
    assert state.steps["b"].result is not None
    assert state.steps["b"].result.error.type == "NotRun"
