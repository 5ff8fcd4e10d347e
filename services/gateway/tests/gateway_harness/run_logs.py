"""Logs of runs for fold and decide, made without any service, and what such a run wants next."""

from datetime import UTC, datetime, timedelta
from typing import Any

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_FAILED,
    AGENT_EXECUTION_STATUS_SKIPPED,
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    INSTRUCTION_MODE_ENHANCE,
    SIDE_EFFECT_CLASS_IRREVERSIBLE,
    AgentCard,
    AgentResult,
    ProposedAction,
    Tool,
)
from bos.gateway.v1 import (
    APPROVAL_STATUS_APPROVED,
    APPROVAL_STATUS_PENDING,
    AgentRequest,
    Approval,
    Approvers,
)
from bos.planner.v1 import Plan, PlannerDecision, Step
from bos.runlog.v1 import (
    ApprovalRequested,
    ApprovalResolved,
    CancelRequested,
    InstructionsClassified,
    LogEvent,
    Planned,
    RevisionStarted,
    RunAccepted,
    RunAdopted,
    RunSettings,
    StepFinished,
)
from bos_chassis.values import to_value, to_value_map
from bos_gateway.core.budget import freeze_shares
from bos_gateway.core.decide import Classify, Compose, MakePlan, Record, RunStep, decide
from bos_gateway.core.fold import apply, fold
from bos_gateway.core.run_state import RunState
from bos_testkit.plans import step

START = datetime(2026, 6, 15, 12, tzinfo=UTC)
LIMIT = timedelta(seconds=100)
FAILED = AGENT_EXECUTION_STATUS_FAILED
SUCCEEDED = AGENT_EXECUTION_STATUS_SUCCEEDED
SKIPPED = AGENT_EXECUTION_STATUS_SKIPPED
IRREVERSIBLE = SIDE_EFFECT_CLASS_IRREVERSIBLE


def event(now: datetime = START, **kind: Any) -> LogEvent:
    made = LogEvent(**kind)
    made.create_time.FromDatetime(now)
    return made


def accepted(*cards: AgentCard, request: dict[str, Any] | None = None, **limits: Any) -> LogEvent:
    """A run with these agents beside ``echo``, frozen with these limits."""
    frozen = {"max_concurrency": 8, "max_steps": 24, "max_revisions": 2, **limits}
    settings = RunSettings(confidence_threshold=0.5, **frozen)
    settings.compose_timeout.FromSeconds(10)
    freeze_shares(settings)
    body = RunAccepted(request=AgentRequest(question="?", **(request or {})), settings=settings)
    if all(card.name != "echo" for card in cards):
        body.cards.add(name="echo")
    body.cards.extend(cards)
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
    """The end of a step with an error of this type and these details."""
    made = finished(step_id, FAILED, error=error)
    for name, value in details.items():
        made.step_finished.result.error.details[name].CopyFrom(to_value(value))
    return made


def revising(*step_ids: str, revision: int = 1) -> LogEvent:
    """The start of a revision because of these steps."""
    body = RevisionStarted(revision=revision, failed_step_ids=list(step_ids))
    return event(revision_started=body)


def adopted() -> LogEvent:
    return event(run_adopted=RunAdopted(reason="lease_expired"))


CANCEL = event(cancel_requested=CancelRequested(reason="enough"))


def wanted(state: RunState, now: datetime = START) -> list[object]:
    """The same: step ids, or commands."""
    return [
        c.step_id if isinstance(c, RunStep) else Classify if isinstance(c, Classify) else c
        for c in settled(state, now)
    ]


def then(state: RunState, *events: LogEvent, now: datetime = START) -> list[object]:
    """What is under way after these events."""
    for each in events:
        apply(state, each)
    return wanted(state, now)


def after(*events: LogEvent, start: LogEvent | None = None) -> RunState:
    """A run that has come so far, with what it wants at once."""
    state = fold("r", [start or accepted(), *events])
    wanted(state)
    return state


def record_of(state: RunState, now: datetime = START) -> list[LogEvent]:
    """What deciding wants to have in the log."""
    record, *_ = decide(state, now)
    assert isinstance(record, Record)
    return list(record.events)


def recorded(state: RunState, now: datetime = START) -> list[str | None]:
    """The same, applied: its kinds."""
    events = record_of(state, now)
    for each in events:
        apply(state, each)
    return [each.WhichOneof("event") for each in events]


def running(state: RunState) -> RunStep:
    """The first step that is under way."""
    command, *_ = decide(state, START)
    assert isinstance(command, RunStep)
    return command


# Plans that fail


def tried(*outcomes: LogEvent, start: LogEvent | None = None, steps: str = "ab") -> list[object]:
    """What follows when the steps of the first plan have ended like this."""
    return then(after(planned(*(step(name, "echo") for name in steps)), start=start), *outcomes)


MAKES_ANOTHER_PLAN = [MakePlan(1)]
COMPOSES = [Compose()]


def mended(start: LogEvent | None = None, *steps: Step, tainted: bool = False) -> RunState:
    """A run whose first plan half failed, with a second one under way."""
    state = after(planned(step("a", "echo"), step("b", "echo")), start=start)
    then(state, finished("a", data=to_value_map({"x": 7}), tainted=tainted), failed("b"))
    then(state, planned(*(steps or (step("c", "echo", "use @{outputs.a.x}"),)), revision=1))
    return state


def acting(effect: int, *, protected: bool = False, name: str = "actor") -> AgentCard:
    """An agent with a tool of this kind."""
    tool = Tool(name="act", side_effect=effect, requires_approval=protected)
    return AgentCard(name=name, tools=[tool])


# Requests for approval


def proposing(
    step_id: str = "a", effect: int = IRREVERSIBLE, *, number: int = 1, digest: str = "sha256:1"
) -> LogEvent:
    """The agent wants to act, and an approver is asked."""
    action = ProposedAction(action_id="1", tool="act", digest=digest, side_effect=effect)
    approval = Approval(
        approval_id=f"{step_id}{number}",
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


def asking(*others: Step, effect: int = IRREVERSIBLE) -> tuple[RunState, LogEvent]:
    """A run whose step ``a`` has proposed something, beside other steps."""
    card = acting(effect, protected=True, name="echo")
    start = accepted(card, max_concurrency=2, max_revisions=0)
    state = after(planned(step("a", "echo"), *others), start=start)
    requested = proposing(effect=effect)
    apply(state, requested)
    return state, requested


def performing(effect: int = IRREVERSIBLE, *, approvers: Approvers | None = None) -> RunState:
    """What was approved is being performed, beside another step."""
    state, requested = asking(step("b", "echo"), effect=effect)
    requested.approval_requested.approval.approvers.MergeFrom(approvers or Approvers())
    apply(state, decided(requested))
    recorded(state)
    return state


def asked_again(**how: Any) -> tuple[RunState, LogEvent]:
    """Its performer is gone, and an approver is asked what to do."""
    state = performing(**how)
    apply(state, adopted())
    requested, _ = record_of(state)
    assert recorded(state) == ["approval_requested", "step_dispatched"]
    return state, requested


def classified(command: object, mode: int = INSTRUCTION_MODE_ENHANCE) -> LogEvent:
    assert isinstance(command, Classify)
    body = InstructionsClassified(
        step_id=command.step_id, approval_id=command.approval_id, mode=mode
    )
    return event(instructions_classified=body)


def settled(state: RunState, now: datetime = START) -> list[Any]:
    """The commands that are under way once everything that can be recorded is."""
    while (commands := decide(state, now)) and isinstance(commands[0], Record):
        for each in commands[0].events:
            apply(state, each)
        if state.finished or state.released:
            return []
    return commands
