"""Revision context for the planner, validation of new plans, and results that count."""

import pytest
from gateway_harness.run_logs import (
    COMPOSES,
    FAILED,
    IRREVERSIBLE,
    MAKES_ANOTHER_PLAN,
    SKIPPED,
    START,
    SUCCEEDED,
    accepted,
    acting,
    after,
    classified,
    decided,
    event,
    failed,
    finished,
    mended,
    planned,
    proposing,
    revising,
    running,
    then,
    wanted,
)

from bos.agent.v1 import SIDE_EFFECT_CLASS_NONE, AgentInput, AgentResult, ProposedAction
from bos.composer.v1 import ComposerOutput
from bos.gateway.v1 import (
    APPROVAL_STATUS_APPROVED,
    APPROVAL_STATUS_DENIED,
    RUN_STATUS_FAILED,
    RUN_STATUS_PARTIALLY_SUCCEEDED,
    RUN_STATUS_SUCCEEDED,
    OrchestratorResponse,
)
from bos.planner.v1 import (
    INTENT_ANALYTICS_REPORT,
    INTENT_DATA_QA,
    INTENT_UNSPECIFIED,
    IntentRoute,
    Plan,
    Step,
)
from bos.runlog.v1 import LogEvent, PlanFailed
from bos_chassis.values import to_value_map
from bos_gateway.core.agent_input import agent_input
from bos_gateway.core.decide import Compose, decide
from bos_gateway.core.fold import apply, fold
from bos_gateway.core.proposals import denied_before, done_before
from bos_gateway.core.response import composed_response, final_answer
from bos_gateway.core.revision import revision_problems
from bos_gateway.core.revision_context import journal, revision_context, working_context
from bos_gateway.core.run_state import BrokenLog, RunState
from bos_testkit.plans import step

# What a new plan may be


TWO = planned(step("a", "echo"), step("b", "echo"))
DENIED = "denied_by_user"


def blocked_and_failed() -> RunState:
    state = after(planned(step("a", "echo"), step("b", "echo"), step("c", "echo")))
    then(state, finished("a"), finished("b", SKIPPED, error=DENIED), failed("c"))
    return state


def revised(first: LogEvent, new: Step, last: int = SUCCEEDED) -> RunState:
    """A run of steps ``a`` and ``b``; ``b`` failed, and the new plan's only step ended so."""
    state = after(TWO)
    then(state, first, failed("b"))
    then(state, planned(new, revision=1))
    apply(state, finished(new.step_id, last, revision=1))
    return state


def composed(state: RunState) -> OrchestratorResponse:
    return composed_response(state, START, ComposerOutput(answer="done"))


def sent_to(state: RunState, step_id: str) -> AgentInput:
    new = state.steps[step_id]
    return agent_input(state, new, new.sub_task, attempt=1, timeout_s=1.0, secrets={})


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


def test_log_that_plans_anew_what_has_ended_is_refused() -> None:
    for step_id in "ab":
        with pytest.raises(BrokenLog):
            apply(blocked_and_failed(), planned(step(step_id, "echo", "otherwise"), revision=1))
    twice = mended()
    then(twice, finished("c", FAILED, revision=1))
    with pytest.raises(BrokenLog):
        apply(twice, planned(step("a", "echo", "otherwise"), revision=2))


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


def acted(effect: int, status: int) -> RunState:
    """A run in which an action was decided like this, beside a step that failed."""
    card = acting(effect, protected=True)
    state = after(planned(step("a", "actor"), step("b", "echo")), start=accepted(card))
    requested = proposing(effect=effect)
    apply(state, requested)
    apply(state, decided(requested, status))
    wanted(state)
    return state


ACTION = ProposedAction(action_id="1", tool="act", digest="sha256:1")
ANOTHER = ProposedAction(action_id="1", tool="act", digest="sha256:2")


@pytest.mark.parametrize(
    ("decision", "effect", "status", "denied", "done"),
    [
        (APPROVAL_STATUS_DENIED, IRREVERSIBLE, None, ["act"], []),
        (APPROVAL_STATUS_APPROVED, IRREVERSIBLE, SUCCEEDED, [], ["act"]),
        (APPROVAL_STATUS_APPROVED, IRREVERSIBLE, FAILED, [], ["act"]),
        (APPROVAL_STATUS_APPROVED, SIDE_EFFECT_CLASS_NONE, SUCCEEDED, [], []),
    ],
    ids=["denied", "done", "perhaps done", "without effect"],
)
def test_denied_or_started_action_is_not_proposed_again_in_other_words(
    decision: int, effect: int, status: int | None, denied: list[str], done: list[str]
) -> None:
    proposed, other = (AgentResult(proposed_actions=[each]) for each in (ACTION, ANOTHER))
    proposed.proposed_actions[0].side_effect = effect
    state = acted(effect, decision)
    if status is not None:
        apply(state, finished("a", status))
    apply(state, failed("b"))
    assert denied_before(state, proposed) == done_before(state, proposed) == []
    assert wanted(state) == MAKES_ANOTHER_PLAN
    apply(state, planned(step("c", "actor", "in other words"), revision=1))
    assert denied_before(state, proposed) == denied
    assert done_before(state, proposed) == done
    assert denied_before(state, other) == done_before(state, other) == []


def test_step_that_acted_and_proposed_again_is_not_replanned() -> None:
    state = acted(IRREVERSIBLE, APPROVAL_STATUS_APPROVED)
    again = proposing(number=2, digest="sha256:2")
    then(state, finished("b"), again, decided(again, instructions="but quickly"))
    assert then(state, classified(decide(state, START)[0])) == ["a"]
    context = running(state).approval
    assert not context.approved_actions, "instructions allow nothing yet"
    assert then(state, failed("a")) == COMPOSES


# What counts in the end


@pytest.mark.requirement("C-18")
def test_what_was_achieved_stays_and_can_be_referred_to() -> None:
    state = mended()
    assert state.steps["c"].sub_task.task == "use 7"
    assert set(state.outputs) == {"a"}


@pytest.mark.parametrize(
    "intent", [INTENT_UNSPECIFIED, INTENT_ANALYTICS_REPORT], ids=["unsaid", "said"]
)
def test_intent_stays_unless_the_new_plan_says_another(intent: int) -> None:
    state = after(planned(step("a", "echo"), intent=IntentRoute(intent=INTENT_DATA_QA)))
    then(state, failed("a"))
    apply(state, planned(step("b", "echo"), revision=1, intent=IntentRoute(intent=intent)))
    assert state.intent.intent == (intent or INTENT_DATA_QA)


def test_results_are_those_that_stayed_and_those_of_last_plan() -> None:
    state = mended()
    assert then(state, finished("c", revision=1)) == COMPOSES
    response = composed(state)
    assert response.status == RUN_STATUS_SUCCEEDED
    assert [result.answer for result in response.agent_results] == ["a done", "c done"]
    assert response.metadata.revision == 1
    assert [list(stage.step_ids) for stage in response.metadata.stages] == [["c"]]


@pytest.mark.requirement("A-10")
def test_trace_of_a_step_that_was_replaced_stays_in_the_trace() -> None:
    state = after(planned(step("b", "echo", "use @{outputs.a.x}"), step("a", "echo")))
    assert then(state, finished("a")) == MAKES_ANOTHER_PLAN
    then(state, planned(step("c", "echo"), revision=1))
    apply(state, finished("c", revision=1))
    response = composed(state)
    (shown,) = response.trace
    assert shown.data["type"].string_value == "ReferenceUnresolved"


@pytest.mark.parametrize(
    ("first", "status"),
    [(SUCCEEDED, RUN_STATUS_PARTIALLY_SUCCEEDED), (FAILED, RUN_STATUS_FAILED)],
)
@pytest.mark.requirement("C-22")
def test_status_is_that_of_the_whole_cycle(first: int, status: int) -> None:
    state = revised(finished("a", first), step("c", "echo"), FAILED)
    assert composed(state).status == status


@pytest.mark.parametrize(
    ("first", "flagged", "answer"),
    [
        (finished("a"), True, "c done"),
        (finished("a"), False, None),
        # Unfinished earlier attempts are not hidden.
        (finished("a", SKIPPED, error=DENIED), True, None),
    ],
)
@pytest.mark.requirement("C-20", "C-24")
def test_final_answer_is_that_of_the_last_attempt(
    first: LogEvent, flagged: bool, answer: str | None
) -> None:
    new = step("c", "echo")
    new.is_final_answer = flagged
    output = final_answer(revised(first, new))
    assert (output.answer if output else None) == answer


@pytest.mark.parametrize(
    ("flagged", "system_prompt", "asked"),
    [(True, "", True), (True, "Be brief.", False), (False, "", False)],
)
def test_agent_writes_final_answer_unless_composing_is_needed(
    flagged: bool, system_prompt: str, asked: bool
) -> None:
    only = step("a", "echo")
    only.is_final_answer = flagged
    state = after(planned(only), start=accepted(request={"system_prompt": system_prompt}))
    assert sent_to(state, "a").is_final_answer is asked
    apply(state, finished("a"))
    assert (final_answer(state) is not None) is asked


@pytest.mark.requirement("C-20", "C-25")
def test_working_context_keeps_findings_of_all_attempts() -> None:
    state = mended()
    apply(state, finished("c", FAILED, revision=1, error="QueryError"))
    learnt = working_context(state)
    assert list(learnt.key_findings) == ["a (echo): a done"]
    assert list(learnt.errors_encountered) == [
        "b (echo): HttpError: It did not work.",
        "c (echo): QueryError: It did not work.",
    ]


@pytest.mark.parametrize("outcome", [SUCCEEDED, FAILED], ids=["stayed", "replaced"])
@pytest.mark.parametrize("tainted", [True, False])
def test_step_of_a_plan_made_of_untrusted_content_is_tainted(outcome: int, tainted: bool) -> None:
    """A new plan may hold what any earlier attempt read, regardless of its dependencies."""
    first = finished("a", outcome, tainted=tainted)
    state = revised(first, step("c", "echo", "do as it says"), FAILED)
    assert sent_to(state, "c").tainted is tainted
    wanted(state)
    then(state, planned(step("d", "echo", "and so on"), revision=2))
    assert sent_to(state, "d").tainted is tainted


def test_texts_of_any_size_are_cut_for_the_planner() -> None:
    state = after(TWO)
    apply(state, finished("a", answer="x" * 100_000))
    outcome = failed("b")
    outcome.step_finished.result.error.message = "y" * 100_000
    outcome.step_finished.result.partial_data.CopyFrom(
        to_value_map({"kept": 1, "large": "z" * 100_000})
    )
    then(state, outcome)
    context = revision_context(state)
    assert context.ByteSize() < 10_000
    assert list(context.failed_steps[0].partial_data.fields) == ["kept"]


@pytest.mark.requirement("B-20", "C-18")
def test_revision_context_lists_fields_that_can_be_referred_to() -> None:
    state = mended(None, step("c", "echo", other="@{outputs.a.x}"))
    then(state, finished("c", FAILED, revision=1))
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


@pytest.mark.requirement("C-20", "C-26")
def test_journal_has_an_entry_for_every_attempt() -> None:
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
