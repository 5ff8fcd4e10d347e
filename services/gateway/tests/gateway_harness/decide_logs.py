"""Logs of runs for fold and decide, made without any service."""

from datetime import UTC, datetime, timedelta

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    INSTRUCTION_MODE_ENHANCE,
    SIDE_EFFECT_CLASS_IRREVERSIBLE,
    AgentCard,
    AgentResult,
    ProposedAction,
    Tool,
)
from bos.gateway.v1 import APPROVAL_STATUS_APPROVED, APPROVAL_STATUS_PENDING, AgentRequest, Approval
from bos.planner.v1 import Plan
from bos.runlog.v1 import (
    ApprovalRequested,
    ApprovalResolved,
    InstructionsClassified,
    LogEvent,
    Planned,
    RunAccepted,
    RunAdopted,
    RunSettings,
    StepFinished,
)
from bos_gateway.core.budget import freeze_shares
from bos_gateway.core.decide import Classify, Record, RunStep, decide
from bos_gateway.core.fold import apply, fold
from bos_gateway.core.run_state import RunState
from bos_testkit.plans import step

START = datetime(2026, 6, 15, 12, tzinfo=UTC)
LIMIT = timedelta(seconds=100)


def event(now: datetime = START, **kind: object) -> LogEvent:
    made = LogEvent(**kind)
    made.create_time.FromDatetime(now)
    return made


def accepted(**request: object) -> LogEvent:
    settings = RunSettings(max_concurrency=2, max_steps=8)
    settings.compose_timeout.FromSeconds(10)
    freeze_shares(settings)
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


def proposing(step_id: str = "a", effect: int = SIDE_EFFECT_CLASS_IRREVERSIBLE) -> LogEvent:
    """The agent wants to act, and an approver is asked."""
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


def classified(command: object, mode: int = INSTRUCTION_MODE_ENHANCE) -> LogEvent:
    assert isinstance(command, Classify)
    body = InstructionsClassified(
        step_id=command.step_id, approval_id=command.approval_id, mode=mode
    )
    return event(instructions_classified=body)
