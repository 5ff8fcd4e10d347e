"""State of a run and of its steps: what ``fold`` builds and ``decide`` reads. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from bos.agent import v1 as agent
from bos.common.v1 import AgentError, Clarification, Outcome, TraceEvent, Usage
from bos.gateway import v1 as gateway
from bos.planner.v1 import IntentRoute, Plan, PlannerDecision, Step
from bos.runlog.v1 import RunAccepted, SubTask
from bos_plans import step_outcome

_NEVER = datetime.min.replace(tzinfo=UTC)

# How the execution of a step stands, as the whole core says it.
PENDING = agent.AGENT_EXECUTION_STATUS_PENDING
RUNNING = agent.AGENT_EXECUTION_STATUS_RUNNING
AWAITING_APPROVAL = agent.AGENT_EXECUTION_STATUS_AWAITING_APPROVAL
NEEDS_CLARIFICATION = agent.AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION
SUCCEEDED = agent.AGENT_EXECUTION_STATUS_SUCCEEDED
FAILED = agent.AGENT_EXECUTION_STATUS_FAILED
SKIPPED = agent.AGENT_EXECUTION_STATUS_SKIPPED


class UnknownEvent(Exception):
    """The log holds an event that this version does not know; a newer replica must go on."""


class BrokenLog(Exception):
    """The log contradicts itself; going on could repeat or lose work."""


@dataclass(slots=True)
class StepState:
    """One step of the plan in force."""

    step: Step
    revision: int
    agent_id: str
    needs: frozenset[str]
    """Steps that must have ended before this one can start, soft and hard."""
    status: agent.AgentExecutionStatus = PENDING
    attempt: int = 0
    """Attempts dispatched so far."""
    sub_task: SubTask | None = None
    """What was sent, once it was."""
    interrupted: bool = False
    """Its last attempt was under way when the run changed owner."""
    reserved_tokens: int = 0
    """Held of the run's budget until it ends."""
    result: agent.AgentResult | None = None
    trace: list[TraceEvent] = field(default_factory=list)
    approval: gateway.Approval | None = None
    """Its latest approval request, in its present state."""
    proposals: int = 0
    """Requests made so far."""
    performing: bool = False
    """Its approved actions were about to be performed; from then on they may have been."""
    performed_from: int = 0
    """The first attempt that was to perform them."""
    begun: list[agent.ProposedAction] = field(default_factory=list)
    """All approved actions that were ever about to be performed."""
    instructions: str = ""
    """Instructions of approvers: added to its task, or in its place."""
    instruction_mode: agent.InstructionMode = agent.INSTRUCTION_MODE_UNSPECIFIED
    tainted: bool = False
    """Something that it proposed rests on content that others wrote; what comes of it does too."""
    unclassified: bool = False
    """It is not known yet whether the latest of them add to the task or take its place."""

    @property
    def awaits(self) -> bool:
        """Whether it waits for an approval."""
        return self._decision == gateway.APPROVAL_STATUS_PENDING

    @property
    def refused(self) -> bool:
        """Whether it was denied or timed out."""
        going = (gateway.APPROVAL_STATUS_PENDING, gateway.APPROVAL_STATUS_APPROVED)
        return self._decision is not None and self._decision not in going

    @property
    def _decision(self) -> gateway.ApprovalStatus | None:
        """Decision of its current request; None without a request."""
        if self.status != AWAITING_APPROVAL or self.approval is None:
            return None
        return self.approval.status

    @property
    def running(self) -> bool:
        """Whether an agent is at work on it, as far as the log says."""
        return self.status == RUNNING

    @property
    def outcome(self) -> Outcome:
        """Outcome of its result; unspecified if it failed or has not ended."""
        return Outcome.OUTCOME_UNSPECIFIED if self.result is None else step_outcome(self.result)

    @property
    def succeeded(self) -> bool:
        """Whether the step has ended well."""
        return self.status == SUCCEEDED

    @property
    def settled(self) -> bool:
        """Whether the step has ended, well or not."""
        return self.status not in (PENDING, RUNNING, AWAITING_APPROVAL)


@dataclass(frozen=True, slots=True)
class Attempt:
    """The execution of a plan that was since revised."""

    revision: int
    steps: dict[str, StepState]
    """Its steps, in planner order."""
    failed: frozenset[str]
    """Those that failed and that the next plan was to mend."""

    @property
    def kept(self) -> list[StepState]:
        """Steps whose results stay: all but those that failed so, or never came to run."""
        steps = self.steps.items()
        return [step for step_id, step in steps if step.settled and step_id not in self.failed]

    @property
    def replaced(self) -> list[StepState]:
        """Steps that failed; their results count no more, but are reported."""
        return [step for step_id, step in self.steps.items() if step_id in self.failed]


@dataclass(slots=True, weakref_slot=True)
class RunState:
    """State of one run, folded from its log."""

    run_id: str
    last_sequence: int = 0
    status: gateway.RunStatus = gateway.RUN_STATUS_UNSPECIFIED
    accepted: RunAccepted | None = None
    accept_time: datetime = _NEVER
    update_time: datetime = _NEVER
    plan: Plan | None = None
    revision: int = 0
    decision: PlannerDecision | None = None
    intent: IntentRoute | None = None
    plan_failure: AgentError | None = None
    """Why there is no plan at all."""
    only_plan: bool = False
    """The planner has no other plan than this."""
    past: list[Attempt] = field(default_factory=list)
    """Attempts before the plan in force, oldest first."""
    replanning: int | None = None
    """The revision that is being planned."""
    mending: frozenset[str] = frozenset()
    """Steps that it is to mend; none if their results are thin instead."""
    iterated: bool = False
    """The planner was asked again because of thin results."""
    revision_failure: AgentError | None = None
    """Why there is no further plan; nothing more is attempted."""
    clarification: Clarification | None = None
    steps: dict[str, StepState] = field(default_factory=dict)
    """Steps of the plan in force, in planner order."""
    order: list[str] = field(default_factory=list)
    """The same steps in the order of one-by-one execution."""
    outputs: dict[str, agent.AgentResult] = field(default_factory=dict)
    """Results of settled steps over all revisions, by step id; of failed ones only while their
    plan is in force."""
    turns: int = 0
    """Steps dispatched so far, retries not counted."""
    held_bytes: int = 0
    """Size of what was sent to steps and of their results, over all revisions."""
    plan_trace: list[TraceEvent] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    answer_attempt: int = 0
    answer_tokens: int = 0
    """Held of the run's budget for composing."""
    cancel_reason: str | None = None
    released: bool = False
    """Its owner released it until an approval is decided."""
    waiting_since: datetime | None = None
    """Since when there is an undecided request; the run's time stands still."""
    waited: timedelta = timedelta()
    """Time spent waiting for approvals so far."""
    response: gateway.OrchestratorResponse | None = None

    @property
    def request(self) -> RunAccepted:
        """The accepted request with everything frozen beside it.

        Raises:
            BrokenLog: the log does not begin with RunAccepted.
        """
        if self.accepted is None:
            raise BrokenLog(f"run {self.run_id} has no RunAccepted event")
        return self.accepted

    @property
    def planning(self) -> int | None:
        """The revision that is being planned, 0 for the first plan; None for none."""
        if self.plan is None:
            return 0 if self.plan_failure is None else None
        return self.replanning

    @property
    def result_steps(self) -> list[StepState]:
        """The steps whose results count: what earlier attempts left, then the plan in force."""
        kept = [step for attempt in self.past for step in attempt.kept]
        return [*kept, *self.steps.values()]

    @property
    def finished(self) -> bool:
        """Whether the run has ended; nothing is ever appended after that."""
        return self.response is not None

    def card(self, name: str) -> agent.AgentCard | None:
        """The card of the agent of that name as frozen for this run."""
        return next((card for card in self.request.cards if card.name == name), None)
