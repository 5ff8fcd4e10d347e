"""A gateway in which text of others spreads as far as it can, for the test of taint's lattice.

Agents that read outside content mark all they return. Planner, composer, memory and lying
agents repeat the mark wherever they have seen it, in every field they have, and never say so. What
the gateway does with it is its own code: accepting, folding, deciding, stepping, revising, asking,
telling memory. Beside that the harness keeps a model of its own: which runs are dirty.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import grpc
from google.protobuf.message import Message
from hypothesis.strategies import DataObject

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_AWAITING_APPROVAL,
    AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
    SIDE_EFFECT_CLASS_IDEMPOTENT,
    AgentCard,
    AgentInput,
    AgentResult,
    ExecuteRequest,
    ExecuteResponse,
    ProposedAction,
    Tool,
)
from bos.common.v1 import (
    AgentError,
    Clarification,
    ClarifyingQuestion,
    ConversationMessage,
    LongTermMemory,
)
from bos.composer.v1 import ComposerOutput
from bos.gateway import v1 as gateway
from bos.gateway.v1 import AgentRequest
from bos.memory.v1 import OpenTurnResponse, RecordTurnRequest
from bos.planner.v1 import Plan, Step
from bos.runlog.v1 import (
    AnswerStarted,
    ApprovalResolved,
    LogEvent,
    PlanFailed,
    Planned,
    RunAdopted,
    RunFinished,
)
from bos_chassis.auth.access import AccessRules
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import to_value, to_value_map
from bos_gateway.admission.accept import new_run
from bos_gateway.admission.memory import facts_request, take_in, turn_request
from bos_gateway.core.clarification import continued
from bos_gateway.core.decide import Classify, Command, Compose, MakePlan, Record, RunStep, decide
from bos_gateway.core.fold import fold, waits
from bos_gateway.core.proposals import resolved
from bos_gateway.core.response import composed_response
from bos_gateway.core.revision import completed, revision_problems
from bos_gateway.core.revision_context import revision_context
from bos_gateway.core.run_state import RunState
from bos_gateway.effects import compose
from bos_gateway.effects.classify import taken_to_add
from bos_gateway.effects.context import EffectContext
from bos_gateway.effects.memory_budget import MemoryBudget
from bos_gateway.effects.plan import plan_request
from bos_gateway.effects.run_tokens import Tokens
from bos_gateway.effects.step import run_step
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.settings import GatewaySettings
from bos_testkit.plans import step
from gateway_harness.run_logs import FAILED, SKIPPED, SUCCEEDED

MARK = "EVIL"
READER, LIAR = "reader", "liar"
START = datetime(2026, 6, 15, 12, tzinfo=UTC)
_OUTCOMES = (
    "succeeds",
    "succeeds",
    "fails",
    "fails for now",
    "skips",
    "asks",
    "proposes",
    "breaks",
)
_ACT = Tool(name="act", requires_approval=True, side_effect=SIDE_EFFECT_CLASS_IDEMPOTENT)
_CARDS = [AgentCard(name=name, tools=[_ACT], max_retries=1) for name in (READER, LIAR)]
_CLOCK = SimpleNamespace(
    now=lambda: START,
    left_s=lambda until: (until - START).total_seconds(),
    stamped=lambda event: _stamped(event),
)


def marked(message: Message) -> bool:
    return MARK.encode() in message.SerializeToString()


def text(seen: bool) -> str:
    """What an author writes who has seen the mark, or has not."""
    return f"as it says: {MARK}" if seen else "as asked"


@dataclass(eq=False)
class Ended:
    run_id: str
    events: list[LogEvent]
    dirty: bool
    """Whether by the model something of others is in it."""

    @property
    def response(self) -> gateway.OrchestratorResponse:
        return self.events[-1].run_finished.response


@dataclass(eq=False)
class TaintHarness:
    """One user's conversations and memory, and the gateway that answers.

    ``sources`` says whether there is any content of others .
    """

    data: DataObject
    sources: bool
    ended: list[Ended] = field(default_factory=list)
    turns: dict[str, list[tuple[RecordTurnRequest, Ended]]] = field(default_factory=dict)
    memory: LongTermMemory = field(default_factory=lambda: OpenTurnResponse().long_term_memory)
    memory_dirty: bool = False
    inputs: list[AgentInput] = field(default_factory=list)
    read: bool = False
    """Whether an agent has read content of others in the run that is under way."""
    begins_dirty: bool = False
    services: Any = None

    def __post_init__(self) -> None:
        settings = GatewaySettings.load(
            store_url="postgresql://bos@127.0.0.1:1/none",
            planner_target="127.0.0.1:1",
            composer_target="127.0.0.1:1",
            agent_targets={"echo": "127.0.0.1:1"},
            backoff_s=0.0,
        )
        telemetry = Telemetry.for_tests("taint")
        self.services = SimpleNamespace(
            settings=settings,
            access=AccessRules(settings.access),
            telemetry=telemetry,
            metrics=GatewayMetrics(telemetry.registry),
            clock=_CLOCK,
            tokens=Tokens(None),
            registry=SimpleNamespace(
                stub=lambda name: SimpleNamespace(
                    Execute=lambda request, **_: _Call(self._executed(name, request))
                ),
                require_cards=lambda: _CARDS,
                declaring=_CARDS,
                names=[READER, LIAR],
                unavailable={},
            ),
            secrets=SimpleNamespace(seal=lambda *_: None),
            file_budget=MemoryBudget(1_000_000),
            result_budget=MemoryBudget(100_000_000),
            files=None,
        )

    def draw(self, of: Sequence[Any], label: str = "") -> Any:
        from hypothesis import strategies as st

        return self.data.draw(st.sampled_from(list(of)), label=label)

    # The user.

    async def ask(self) -> Ended:
        """A question, its run, and what memory keeps of it."""
        request, goes_on, dirty = self._question()
        run_id = UUID(int=len(self.ended) + 1)
        run, _ = new_run(
            request,
            "ada",
            run_id,
            self.services,
            interactive=self.draw([True, True, False], "interactive"),
            traceparent="",
            goes_on_from=goes_on,
        )
        accepted = run.event.run_accepted
        shown = self.turns.get(request.conversation_id, [])
        if self.draw([True, True, False], "memory answers"):
            window = self.draw([0, 1, 2, 4], "turns shown")
            take_in(accepted, self._opened(shown, window))
            dirty |= self.memory_dirty or (window > 0 and any(run.dirty for _, run in shown))
        assert accepted.tainted == dirty, "what a run begins with is tainted exactly if it is dirty"
        self.begins_dirty, self.read = dirty, False
        asked = facts_request(run)
        if self.draw([True, False], "facts found"):
            self.memory.critical.recent_projects.append(asked.question)
            self.memory.tainted |= asked.tainted
            self.memory_dirty |= dirty
        events = await self._driven(str(run_id), run.event)
        ended = Ended(str(run_id), events, dirty or self.read)
        self.ended.append(ended)
        turn = turn_request(str(run_id), events[0], events[-1])
        assert turn.tainted or not marked(turn)
        self.turns.setdefault(request.conversation_id, []).append((turn, ended))
        return ended

    def _question(self) -> tuple[AgentRequest, Any, bool]:
        kinds = ["typed", "typed", *(["follows up"] if self.ended else [])]
        asking = [run for run in self.ended if run.response.HasField("clarification")]
        kinds += ["reply"] * 2 * bool(asking) + ["page"] * self.sources
        request = AgentRequest(
            question="Why?", conversation_id=self.draw(["a", "b"], "conversation")
        )
        match self.draw(kinds, "question"):
            case "page":  # the user interface knows, and says so
                request.tainted = True
                where = self.draw(["question", "context", "system_prompt"])
                if where == "context":
                    request.context.update({"page": MARK})
                else:
                    setattr(request, where, text(seen=True))
                return request, None, True
            case "follows up":  # text of the answer becomes the question, in any conversation
                run = self.draw(self.ended)
                request.question = text(marked(run.response))
                request.tainted = run.response.tainted
                return request, None, run.dirty
            case "reply":
                run = self.draw(asking)
                request.question = text(marked(run.response))
                request.continues_run_id = run.run_id
                request.conversation_id = run.events[0].run_accepted.request.conversation_id
                first, last = run.events[0].run_accepted, run.events[-1]
                return request, continued(request, run.run_id, first, last), run.dirty
        return request, None, False

    def _opened(self, shown: Sequence[Any], window: int) -> OpenTurnResponse:
        """What memory knows: a summary of what is too long ago, then turns."""
        known = OpenTurnResponse(long_term_memory=self.memory)
        before, recent = shown[: len(shown) - window], shown[len(shown) - window :]
        if before and window:
            seen = any(marked(turn) for turn, _ in before)
            tainted = any(turn.tainted for turn, _ in before)
            known.conversation_history.add(content=text(seen), tainted=tainted)
        for turn, run in recent if window else ():
            for content in (turn.question, turn.answer):
                known.conversation_history.append(
                    ConversationMessage(content=content, run_id=run.run_id, tainted=turn.tainted)
                )
        return known

    # The run.

    async def _driven(self, run_id: str, first: LogEvent) -> list[LogEvent]:
        events = [first]
        for _ in range(300):
            state = fold(run_id, events)
            if state.finished:
                assert state.response.tainted or not marked(state.response)
                assert state.response.tainted == (self.begins_dirty or self.read)
                return events
            if waits(events[-1]):
                events += self._decisions(state)
            else:
                events += await self._answered(self.draw(decide(state, START)), state)
        raise AssertionError("the run did not end")

    async def _answered(self, command: Command, state: RunState) -> list[LogEvent]:
        match command:
            case Record(events=recorded):
                return list(recorded)
            case MakePlan(revision=revision):
                return [self._plan(state, revision)]
            case Classify():
                return [_stamped(LogEvent(instructions_classified=taken_to_add(command)))]
            case Compose():
                seen = marked(compose._request(state, None))
                started = AnswerStarted(attempt=state.answer_attempt + 1)
                output = ComposerOutput(answer=text(seen), followups=[text(seen)])
                response = composed_response(state, START, output)
                return [
                    _stamped(LogEvent(answer_started=started)),
                    _stamped(LogEvent(run_finished=RunFinished(response=response))),
                ]
            case RunStep():
                if self.draw([False] * 7 + [True], "owner dies"):
                    return [_stamped(LogEvent(run_adopted=RunAdopted(reason="lease_expired")))]
                return await self._stepped(command, state)
        raise AssertionError(command)

    def _decisions(self, state: RunState) -> list[LogEvent]:
        """A person decides about everything that waits, and an owner goes on with the run."""
        made = []
        for each in state.steps.values():
            if each.awaits and each.approval is not None:
                approved = self.draw([True, False], "approved")
                status = (
                    gateway.APPROVAL_STATUS_APPROVED if approved else gateway.APPROVAL_STATUS_DENIED
                )
                words = self.draw(["", "shorter"]) if approved and each.proposals < 3 else ""
                final = ApprovalResolved(approval=resolved(each.approval, status, START, words))
                made.append(_stamped(LogEvent(approval_resolved=final)))
        return [*made, _stamped(LogEvent(run_adopted=RunAdopted(reason="resumed")))]

    def _plan(self, state: RunState, revision: int) -> LogEvent:
        revising = None if state.replanning is None else revision_context(state)
        seen = marked(plan_request(state.request, 8, None, revising))
        how = self.draw(["plans"] * 6 + ["asks", "fails"], "planner")
        if how == "asks" and not state.request.clarification_turn_count:
            planned = Planned(revision=revision, clarification=_questions(seen))
            return _stamped(LogEvent(planned=planned))
        plan = Plan(steps=self._steps(state, revision, seen), origin="test")
        unfit = revising is not None and revision_problems(state, plan) != ("", [])
        if how == "fails" or unfit:
            error = AgentError(type="InvalidPlan", message=text(seen))
            return _stamped(LogEvent(plan_failed=PlanFailed(revision=revision, error=error)))
        return _stamped(LogEvent(planned=Planned(revision=revision, plan=plan)))

    def _steps(self, state: RunState, revision: int, seen: bool) -> list[Step]:
        """Up to four steps that wait for others, or refer to them, of this plan or an earlier."""
        done = [each.step.step_id for each in completed(state)] if revision else []
        made: list[Step] = []
        for number in range(self.draw([1, 2, 3, 4], "steps")):
            agent = self.draw([READER, LIAR, LIAR] if self.sources else [LIAR])
            new = step(f"s{revision}_{number}", agent, f"{text(seen)} {revision} {number}")
            for need in [*done, *(each.step_id for each in made)]:
                how = self.draw(["not", "not", "soft", "hard"], f"needs {need}")
                if how == "soft":
                    new.depends_on.append(need)
                elif how == "hard":
                    new.sub_task_input[need].CopyFrom(to_value(f"@{{outputs.{need}.answer}}"))
            made.append(new)
        return made

    async def _stepped(self, command: RunStep, state: RunState) -> list[LogEvent]:
        made: list[LogEvent] = []

        async def emit(event: LogEvent) -> None:
            made.append(event)

        context = EffectContext(
            state=state,
            secrets={},
            deps=self.services,
            emit=emit,
            committed=emit,
            say=lambda *_: None,
        )
        await run_step(context, command)
        for event in made:
            actions = event.approval_requested.approval.actions
            assert all(action.tainted for action in actions) or not any(map(marked, actions))
            requested = event.approval_requested.approval
            tainted = any(action.tainted for action in actions)
            assert bool(requested.origins) == tainted, "a tainted proposal does not say of what"
        return made

    # The agents.

    def _executed(self, agent: str, request: ExecuteRequest) -> ExecuteResponse | Exception:
        given = request.input
        self.inputs.append(given)
        seen = marked(given)
        assert given.tainted or not seen, "a step downstream of text of others is not tainted"
        dirty = self.begins_dirty or self.read
        assert dirty or not given.tainted, "a step is tainted, and nothing could have tainted it"
        outcome = self.draw(_OUTCOMES, f"{agent} {given.metadata.step_key}")
        if outcome == "breaks":
            words = text(seen)
            return grpc.aio.AioRpcError(
                grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), words
            )
        if agent == READER:
            seen = self.read = True
        return ExecuteResponse(result=self._result(agent, given, outcome, text(seen)))

    def _result(self, agent: str, given: AgentInput, outcome: str, words: str) -> AgentResult:
        """Everything that an agent can write into, and no word of where it has it from."""
        result = AgentResult(
            status=SUCCEEDED,
            answer=words,
            data=to_value_map({"x": words}),
            partial_data=to_value_map({"x": words}),
            highlights=[words],
            followups=[words],
            assumptions=[words],
            task_description=words,
            tainted=agent == READER,
        )
        if outcome in ("fails", "fails for now"):
            result.status = FAILED
            result.error.type, result.error.message = "HttpError", words
            if outcome == "fails for now":
                result.error.retryable = True
        elif outcome == "skips":
            result.status = SKIPPED
        elif outcome == "asks" and not given.clarification_turn_count:
            result.status = AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION
            result.clarification.CopyFrom(_questions(MARK in words))
        elif outcome == "proposes" and not given.approval_context.approved_actions:
            result.status = AGENT_EXECUTION_STATUS_AWAITING_APPROVAL
            action = ProposedAction(
                action_id="1",
                tool="act",
                summary=words,
                digest=f"sha256:{given.metadata.step_key}",
                arguments=to_value_map({"x": words}),
                side_effect=SIDE_EFFECT_CLASS_IDEMPOTENT,
            )
            result.proposed_actions.append(action)
        return result


class _Call:
    """A call that is answered with one message, or breaks."""

    def __init__(self, answer: ExecuteResponse | Exception) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[ExecuteResponse]:
        if isinstance(self._answer, Exception):
            raise self._answer
        yield self._answer

    def cancel(self) -> None:
        """Nothing is under way."""


def _questions(seen: bool) -> Clarification:
    words = text(seen)
    question = ClarifyingQuestion(question=words, options=[words])
    return Clarification(questions=[question], assumptions=[words])


def _stamped(event: LogEvent) -> LogEvent:
    event.create_time.FromDatetime(START)
    return event
