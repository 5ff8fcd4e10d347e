"""Spans of a run as its log has them: one root, parents that are there, links, ends."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from gateway_harness.golden.logs import NAMES, load
from gateway_harness.run_logs import (
    START,
    adopted,
    decided,
    event,
    failed,
    finished,
    planned,
    proposing,
    revising,
)

from bos.gateway.v1 import (
    RUN_STATUS_FAILED,
    RUN_STATUS_SUCCEEDED,
    AgentRequest,
    OrchestratorResponse,
)
from bos.runlog.v1 import (
    AnswerStarted,
    ApprovalRequested,
    InstructionsClassified,
    LogEvent,
    PlanFailed,
    RunAccepted,
    RunFinished,
    RunReleased,
    StepDispatched,
    SubTask,
)
from bos_chassis.telemetry import Telemetry
from bos_chassis.tracing.spans import FinishedSpan, traceparent_of
from bos_gateway.core.tracing.ids import RunTrace
from bos_gateway.core.tracing.timeline import bare_run_span, run_spans
from bos_testkit.otlp.spans import SeenSpan, Trace

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
DECIDED_IN = "00-11111111111111111111111111111111-2222222222222222-01"
RUN = "0192"


def log(*kinds: LogEvent, **accepted: object) -> list[LogEvent]:
    """A log, each event a second behind the one before."""
    given = {"traceparent": CALLER, "user_id": "ada@example.org", **accepted}
    events = [event(run_accepted=RunAccepted(**given)), *kinds]
    for number, each in enumerate(events):
        each.create_time.FromDatetime(START + timedelta(seconds=number))
    return events


def dispatched(step_id: str = "a", attempt: int = 1, revision: int = 0) -> LogEvent:
    sent = StepDispatched(step_id=step_id, attempt=attempt, revision=revision)
    sent.agent_id = f"{step_id}{attempt}"
    sent.sub_task.CopyFrom(SubTask(assigned_agent_role="sql"))
    return event(step_dispatched=sent)


def ended(error: str = "") -> LogEvent:
    response = OrchestratorResponse(status=RUN_STATUS_FAILED if error else RUN_STATUS_SUCCEEDED)
    if error:
        response.error.type = error
    return event(run_finished=RunFinished(response=response))


def exported(spans: Sequence[FinishedSpan]) -> list[SeenSpan]:
    telemetry = Telemetry.for_tests("gateway")
    telemetry.export(spans)
    return [SeenSpan.of(span) for span in telemetry.spans]


def trace_of(events: Sequence[LogEvent], run_id: str = RUN) -> Trace:
    """The run's trace, with the caller's span, if it is a child of one."""
    spans = exported(run_spans(run_id, events))
    (trace,) = Trace.all_of(spans).values()
    (_, trace_id, caller, _) = CALLER.split("-")
    if not events[0].run_accepted.own_trace:
        start, end = min(s.start_ns for s in spans), max(s.end_ns for s in spans)
        ids = (trace_id, caller, "")
        trace.spans[caller] = SeenSpan(*ids, "rest", "POST", start, end, {}, (), failed=False)
    trace.check()
    return trace


def seconds(span: SeenSpan) -> tuple[float, float]:
    begun = START.timestamp()
    return span.start_ns / 1e9 - begun, span.end_ns / 1e9 - begun


def test_run_span_has_the_request_as_parent_and_its_work_below() -> None:
    answer = event(answer_started=AnswerStarted(attempt=1))
    trace = trace_of(log(planned(), dispatched(), finished("a"), answer, ended()))
    run = "gateway: invoke_workflow bos"
    assert trace.edges() == {("rest: POST", run)} | {
        (run, f"gateway: {name}") for name in ("own run", "plan", "invoke_agent sql", "compose")
    }
    assert seconds(trace.one("invoke_workflow bos")) == (0, 5)
    assert seconds(trace.one("plan")) == (0, 1)
    assert seconds(trace.one("invoke_agent sql")) == (2, 3)
    assert seconds(trace.one("compose")) == (4, 5)
    assert not any(span.failed for span in trace.spans.values())


def test_span_attributes_name_the_user_by_a_digest_alone() -> None:
    request = AgentRequest(question="What does Ada earn?", conversation_id="c1")
    trace = trace_of(log(planned(), dispatched(), finished("a"), ended(), request=request))
    assert trace.one("invoke_agent sql").attributes == {
        "bos.run.id": RUN,
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "sql",
        "gen_ai.agent.id": "a1",
        "bos.revision": 0,
        "bos.step.id": "a",
        "bos.attempt": 1,
        "bos.step.status": "succeeded",
        "bos.step.outcome": "answered",
    }
    attributes = trace.one("invoke_workflow bos").attributes
    assert attributes["gen_ai.conversation.id"] == "c1"
    assert attributes["bos.run.status"] == "succeeded"
    assert len(attributes["bos.user.digest"]) == 16
    exported_text = repr(trace)
    assert "ada@example.org" not in exported_text
    assert "earn" not in exported_text


def test_run_asked_from_outside_has_its_own_trace() -> None:
    trace = trace_of(log(ended(), own_trace=True))
    root = trace.one("invoke_workflow bos")
    assert not root.parent_id
    assert root.trace_id not in CALLER
    assert root.links == (("b7ad6b7169203331", "request"),)
    other = trace_of(log(ended(), own_trace=True), "0193").one("invoke_workflow bos")
    assert other.trace_id != root.trace_id


@pytest.mark.parametrize("traceparent", ["", "nonsense", CALLER[:-2] + "00"])
def test_a_run_outside_of_recorded_traces_has_no_spans(traceparent: str) -> None:
    assert not run_spans(RUN, log(ended(), traceparent=traceparent))


def test_adopted_run_links_to_its_former_owner() -> None:
    taken = adopted()
    taken.run_adopted.replica_id = "other"
    again = dispatched(attempt=2)
    trace = trace_of(log(planned(), dispatched(), taken, again, finished("a"), ended()))
    first, second = trace.named("own run")
    assert second.links == ((first.span_id, "former owner"),)
    assert (first.attributes["bos.ownership.end"], first.failed) == ("owner_lost", True)
    assert (second.attributes["bos.ownership.end"], second.failed) == ("finished", False)
    assert second.attributes["bos.replica.id"] == "other"
    assert seconds(first) == (0, 3)
    assert seconds(second) == (3, 6)
    broken, repeated = trace.named("invoke_agent sql")
    assert (broken.attributes["bos.attempt"], broken.failed) == (1, True)
    assert broken.attributes["error.type"] == "attempt_repeated"
    assert seconds(broken) == (2, 4)
    assert (repeated.attributes["bos.attempt"], repeated.failed) == (2, False)


def test_an_attempt_that_another_owner_goes_on_with_is_one_span() -> None:
    trace = trace_of(log(planned(), dispatched(), adopted(), dispatched(), finished("a"), ended()))
    assert seconds(trace.one("invoke_agent sql")) == (2, 5)


def test_every_attempt_and_every_revision_has_a_span_of_its_own() -> None:
    trace = trace_of(
        log(
            *(planned(), dispatched(), failed("a", "Timeout"), revising("a"), planned(revision=1)),
            *(dispatched(revision=1), finished("a"), ended()),
        )
    )
    first, second = trace.named("invoke_agent sql")
    assert (first.failed, first.attributes["error.type"]) == (True, "Timeout")
    assert (first.attributes["bos.revision"], second.attributes["bos.revision"]) == (0, 1)
    assert [span.attributes["bos.revision"] for span in trace.named("plan")] == [0, 1]
    assert [seconds(span) for span in trace.named("plan")] == [(0, 1), (4, 5)]


def asked() -> LogEvent:
    requested = proposing("a")
    requested.approval_requested.approval.agent_name = "sql"
    return requested


def test_approval_span_links_proposal_decision_and_action() -> None:
    requested, released = asked(), event(run_released=RunReleased(reason="waiting_for_approval"))
    resolved = decided(requested, instructions="Only two.")
    resolved.approval_resolved.traceparent = DECIDED_IN
    approval_id = requested.approval_requested.approval.approval_id
    classified = event(instructions_classified=InstructionsClassified(approval_id=approval_id))
    trace = trace_of(
        log(
            *(planned(), dispatched(), requested, released, adopted(), resolved, classified),
            *(dispatched(attempt=2), finished("a"), ended()),
        )
    )
    proposing_attempt, performing = trace.named("invoke_agent sql")
    waited = trace.one("approval")
    assert waited.links == (
        (proposing_attempt.span_id, "proposed by"),
        (DECIDED_IN.split("-")[2], "decided by"),
    )
    assert seconds(waited) == (3, 6)
    assert waited.attributes["bos.approval.status"] == "approved"
    assert performing.links == ((waited.span_id, "approval"),)
    assert not proposing_attempt.failed
    assert proposing_attempt.attributes["bos.step.status"] == "awaiting_approval"
    assert seconds(trace.one("classify instructions")) == (6, 7)
    assert trace.named("own run")[0].attributes["bos.ownership.end"] == "waiting_for_approval"


def test_what_never_ended_ends_with_the_run() -> None:
    requested = asked()
    trace = trace_of(log(dispatched("b"), dispatched(), requested, ended("Cancelled")))
    (beside,) = [s for s in trace.named("invoke_agent sql") if s.attributes["bos.step.id"] == "b"]
    for span in (trace.one("plan"), beside, trace.one("approval")):
        assert (seconds(span)[1], span.attributes["error.type"]) == (4, "unfinished")
    assert trace.one("invoke_workflow bos").attributes["error.type"] == "Cancelled"


def test_traces_of_stored_logs_are_whole() -> None:
    for name in NAMES:
        events = load(name)
        if not events[-1].HasField("run_finished"):
            events.append(ended())
            events[-1].create_time.CopyFrom(events[-2].create_time)
        events[0].run_accepted.traceparent = CALLER
        trace_of(events)


RELEASED = event(run_released=RunReleased(reason="drain"))
HOSTILE = {
    "a result of a step that was never begun": [finished("x")],
    "a decision without a request": [decided(proposing("x"))],
    "an approval of a step that was never begun": [proposing("x")],
    "two decisions": [asked(), decided(asked()), decided(asked())],
    "the same step dispatched again and again": [dispatched(attempt=n % 3) for n in range(9)],
    "a plan of a revision that never began": [
        planned(revision=7),
        event(plan_failed=PlanFailed(revision=9)),
    ],
    "no owner before it is taken over": [RELEASED, adopted(), adopted()],
    "an event of a newer version": [LogEvent(), LogEvent.FromString(b"\x9a\x06\x00")],
    "nothing in what is asked": [event(approval_requested=ApprovalRequested())],
    "a second beginning": [event(run_accepted=RunAccepted(traceparent=DECIDED_IN))],
    "a second end": [ended(), ended("Other")],
}


def test_a_contradictory_log_still_makes_a_whole_trace() -> None:
    for name, events in HOSTILE.items():
        assert trace_of(log(*events, ended())).named("invoke_workflow bos"), name


def test_spans_never_end_before_their_start_if_clocks_go_back() -> None:
    events = log(planned(), dispatched(), finished("a"), ended())
    times = [each.create_time.ToNanoseconds() for each in events]
    for each, at in zip(events, reversed(times), strict=True):
        each.create_time.FromNanoseconds(at)
    for span in exported(run_spans(RUN, events)):
        assert span.start_ns <= span.end_ns


@pytest.mark.parametrize("events", [[], [planned(), ended()]])
def test_what_is_no_log_of_a_run_has_no_spans(events: list[LogEvent]) -> None:
    assert not run_spans(RUN, events)


def test_ids_follow_from_the_log_alone_and_differ_between_spans() -> None:
    events = log(planned(), dispatched(), finished("a"), ended())
    one, other = (exported(run_spans(RUN, events)) for _ in range(2))
    assert one == other
    ids = [span.span_id for span in one]
    assert len(set(ids)) == len(ids) == 4
    assert not {span.span_id for span in exported(run_spans("0193", events))} & set(ids)


def test_keys_that_read_alike_have_different_spans() -> None:
    trace = RunTrace.of(RUN, RunAccepted(traceparent=CALLER))
    assert trace.attempt(1, "1", 11).span_id != trace.attempt(11, "1", 1).span_id
    assert trace.approval("a").span_id != trace.instructions("a").span_id


def test_unstored_run_has_its_span_alone() -> None:
    trace = RunTrace.of(RUN, RunAccepted(traceparent=CALLER, own_trace=True))
    (span,) = exported([bare_run_span(trace, 1, 2, "USER_LIMIT")])
    assert f"{trace.root.span_id:016x}" == span.span_id
    assert traceparent_of(trace.root).split("-")[2] == span.span_id
    assert (span.failed, span.attributes["error.type"]) == (True, "USER_LIMIT")
    assert span.links == (("b7ad6b7169203331", "request"),)
