"""The work that commands ask for: planning, running a step, composing. Each ends in events.

An effect never touches the run's state and never raises for what its service did wrong: that
becomes an event (SPEC Q-04, Q-05). It may be cancelled at any moment, and cancels its call then.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import grpc

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_AWAITING_APPROVAL,
    AGENT_EXECUTION_STATUS_FAILED,
    AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
    AGENT_EXECUTION_STATUS_SKIPPED,
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    SIDE_EFFECT_CLASS_IDEMPOTENT,
    SIDE_EFFECT_CLASS_NONE,
    AgentResult,
    ExecuteRequest,
)
from bos.common.v1 import TRACE_EVENT_TYPE_ERROR, TRACE_EVENT_TYPE_MESSAGE, AgentError, TraceEvent
from bos.composer.v1 import ComposeRequest, ComposerOutput
from bos.planner.v1 import MakePlanRequest
from bos.runlog.v1 import (
    AnswerDelta,
    AnswerStarted,
    LogEvent,
    PlanFailed,
    Planned,
    RunFinished,
    StepDispatched,
    StepFinished,
    StepProgressed,
)
from bos_chassis.errors import (
    DeadlineExceeded,
    ResourceExhausted,
    Unavailable,
    from_rpc_error,
)
from bos_gateway.agent_input import agent_input
from bos_gateway.decide import run_deadline, steps_deadline
from bos_gateway.response import composed_response, fallback_output, final_answer
from bos_plans import dependencies, plan_problems

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from bos.common.v1 import TraceEventType
    from bos.composer.v1 import ComposerServiceAsyncStub
    from bos.planner.v1 import MakePlanResponse, PlannerServiceAsyncStub
    from bos_chassis.telemetry import Telemetry
    from bos_gateway.decide import RunStep
    from bos_gateway.metrics import GatewayMetrics
    from bos_gateway.registry import Registry
    from bos_gateway.settings import GatewaySettings
    from bos_gateway.state import RunState, StepState
    from bos_gateway.tokens import Metadata, Tokens

    Emit = Callable[[LogEvent], Awaitable[None]]
    """Hands an event to the run's loop, which stores it; waits while the loop is behind."""

PLANNER = "planner"
COMPOSER = "composer"
INVALID_PLAN = "InvalidPlan"
AGENT_UNKNOWN = "AgentUnknown"
HITL_SKIPPED = "hitl_skipped_non_streaming"

_RETRYABLE = (Unavailable, ResourceExhausted, DeadlineExceeded)
# Contract of every agent: AgentError.details says whether another attempt makes sense.
_RETRYABLE_DETAIL = "retryable"
_ANSWER_MARGIN_S = 0.75
_HARMLESS = frozenset({SIDE_EFFECT_CLASS_NONE, SIDE_EFFECT_CLASS_IDEMPOTENT})
_ENDED = frozenset(
    {
        AGENT_EXECUTION_STATUS_SUCCEEDED,
        AGENT_EXECUTION_STATUS_FAILED,
        AGENT_EXECUTION_STATUS_SKIPPED,
        AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
    }
)


@dataclass(frozen=True, slots=True)
class Collaborators:
    """What effects work with; shared by all runs of the process."""

    planner: PlannerServiceAsyncStub
    composer: ComposerServiceAsyncStub
    registry: Registry
    tokens: Tokens
    settings: GatewaySettings
    metrics: GatewayMetrics
    telemetry: Telemetry


class Effects:
    """The effects of one run.

    Args:
        state: The run; read only.
        secrets: Its credentials, by context key.
        collaborators: Services and settings.
        emit: Where events go.
    """

    def __init__(
        self,
        state: RunState,
        secrets: Mapping[str, str],
        collaborators: Collaborators,
        emit: Emit,
    ) -> None:
        self._state = state
        self._secrets = secrets
        self._with = collaborators
        self._emit = emit
        self._log = collaborators.telemetry.logger("bos.gateway.effects")

    async def make_plan(self, revision: int) -> None:
        """Ask the planner; ends in Planned or PlanFailed."""
        timeout_s = min(self._with.settings.plan_timeout_s, _left_s(run_deadline(self._state)))
        try:
            answer = await self._with.planner.MakePlan(
                self._plan_request(),
                timeout=timeout_s,
                metadata=self._token("", [PLANNER], timeout_s),
            )
        except grpc.RpcError as error:
            failure = from_rpc_error(error)
            self._log.warning("planning failed", run=self._state.run_id, reason=failure.reason)
            message = f"The question could not be planned: {failure.message}"
            await self._plan_failed(revision, type(failure).__name__, message, None)
            return
        problems = plan_problems(
            answer.plan,
            {card.name: card for card in self._state.request.cards},
            max_steps=self._state.request.settings.max_steps,
            completed=self._state.outputs,
        )
        if problems:
            self._log.error("planner made an invalid plan", problems=problems)
            message = f"The question could not be planned: {' '.join(problems)}"
            await self._plan_failed(revision, INVALID_PLAN, message, answer)
            return
        await self._emit(_now(LogEvent(planned=_planned(revision, answer))))

    async def run_step(self, command: RunStep) -> None:
        """Have the agent run the step, with retries (SPEC C-32); ends in StepFinished."""
        step = self._state.steps[command.step_id]
        card = self._state.card(step.step.agent)
        attempts_left = 1 + (card.max_retries if card else 0)
        attempt = step.attempt
        wait_s = self._with.settings.backoff_s
        started = datetime.now(UTC)
        while True:
            attempt += 1
            attempts_left -= 1
            dispatched = StepDispatched(
                revision=command.revision,
                step_id=command.step_id,
                agent_id=step.agent_id,
                sub_task=command.sub_task,
                attempt=attempt,
            )
            await self._emit(_now(LogEvent(step_dispatched=dispatched)))
            result, retryable = await self._attempt(step, command, attempt)
            if not retryable or attempts_left <= 0 or self._steps_over(wait_s):
                break
            self._with.metrics.step_retries.labels(step.step.agent).inc()
            await self._progress(
                command,
                _trace(
                    step,
                    TRACE_EVENT_TYPE_MESSAGE,
                    f"Attempt {attempt} failed and is repeated: {result.error.message}",
                ),
            )
            # Jitter keeps steps that failed together from coming back together.
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))  # noqa: S311
            wait_s *= self._state.request.settings.backoff_multiplier
        result.latency.FromTimedelta(datetime.now(UTC) - started)
        finished = StepFinished(
            revision=command.revision, step_id=command.step_id, result=result, attempts=attempt
        )
        await self._emit(_now(LogEvent(step_finished=finished)))

    async def compose(self) -> None:
        """Have the answer composed; ends in RunFinished (SPEC K-16, C-24)."""
        attempt = self._state.answer_attempt + 1
        await self._emit(_now(LogEvent(answer_started=AnswerStarted(attempt=attempt))))
        output = final_answer(self._state)
        if output is not None:
            await self._delta(attempt, output.answer)
        else:
            output = await self._composed(attempt)
        response = composed_response(self._state, datetime.now(UTC), output)
        await self._emit(_now(LogEvent(run_finished=RunFinished(response=response))))

    async def _composed(self, attempt: int) -> ComposerOutput:
        timeout_s = min(self._with.settings.compose_timeout_s, _left_s(run_deadline(self._state)))
        call = self._with.composer.Compose(
            self._compose_request(),
            timeout=timeout_s,
            metadata=self._token("", [COMPOSER], timeout_s),
        )
        try:
            async for message in call:
                if message.WhichOneof("payload") == "output":
                    return message.output
                await self._delta(attempt, message.delta)
            problem = "The composer ended without an answer."
        except grpc.RpcError as error:
            problem = from_rpc_error(error).message
        finally:
            call.cancel()
        self._log.warning("composing failed", run=self._state.run_id, problem=problem)
        output = fallback_output(self._state)
        trace = TraceEvent(
            type=TRACE_EVENT_TYPE_ERROR,
            agent=COMPOSER,
            message=f"The answer was put together without the composer: {problem}",
        )
        trace.create_time.GetCurrentTime()
        output.trace.append(trace)
        return output

    async def _attempt(
        self, step: StepState, command: RunStep, attempt: int
    ) -> tuple[AgentResult, bool]:
        """One call of the agent: its result, and whether trying again could help."""
        agent = step.step.agent
        stub = self._with.registry.stub(agent)
        if stub is None:
            text = f'No agent named "{agent}" is configured here.'
            return await self._failed(command, step, AGENT_UNKNOWN, text), False
        timeout_s = min(self._step_timeout_s(step), _left_s(steps_deadline(self._state)))
        message_in = agent_input(
            self._state,
            step,
            command.sub_task,
            attempt=attempt,
            timeout_s=timeout_s,
            secrets=self._secrets,
        )
        call = stub.Execute(
            ExecuteRequest(input=message_in),
            # The agent ends by itself at its time-out; only then can it hand over what it has.
            timeout=timeout_s + _ANSWER_MARGIN_S,
            metadata=self._token(command.sub_task.sub_task_id, self._audiences(agent), timeout_s),
        )
        try:
            async for message in call:
                if message.WhichOneof("payload") == "result":
                    return await self._checked(command, step, message.result)
                await self._progress(command, *message.trace.events)
        except grpc.RpcError as error:
            failure = from_rpc_error(error)
            text = f"The agent {agent} could not do its part: {failure.message}"
            result = await self._failed(command, step, type(failure).__name__, text)
            return result, isinstance(failure, _RETRYABLE) and self._repeatable(step)
        finally:
            call.cancel()
        text = f"The agent {agent} ended without a result."
        return await self._failed(command, step, "AgentProtocolError", text), True

    async def _checked(
        self, command: RunStep, step: StepState, result: AgentResult
    ) -> tuple[AgentResult, bool]:
        """The agent's own result, made whole; a proposal is turned down (see below)."""
        checked = AgentResult()
        checked.CopyFrom(result)
        checked.agent_id = step.agent_id
        checked.agent_name = step.step.agent
        checked.depends_on[:] = sorted(dependencies(step.step))
        if checked.status == AGENT_EXECUTION_STATUS_AWAITING_APPROVAL:
            # Nobody can be asked on this path, so the action does not happen (SPEC M-14).
            checked.status = AGENT_EXECUTION_STATUS_SKIPPED
            checked.error.type = HITL_SKIPPED
            tools = sorted({action.tool for action in result.proposed_actions})
            checked.error.message = (
                f"This action needs a person's approval and was not performed: {', '.join(tools)}."
            )
            checked.partial_data.fields["reason"].string_value = HITL_SKIPPED
        elif checked.status not in _ENDED:
            text = f"The agent {step.step.agent} returned a result without a final status."
            return await self._failed(command, step, "AgentProtocolError", text), False
        failed = checked.status == AGENT_EXECUTION_STATUS_FAILED
        retryable = failed and checked.error.details[_RETRYABLE_DETAIL].bool_value
        return checked, retryable and self._repeatable(step)

    async def _failed(
        self, command: RunStep, step: StepState, error_type: str, message: str
    ) -> AgentResult:
        """A failed result that the gateway itself makes, with its trace event (SPEC Q-05, Q-07)."""
        trace = _trace(step, TRACE_EVENT_TYPE_ERROR, message)
        trace.data["type"].string_value = error_type
        await self._progress(command, trace)
        return AgentResult(
            agent_id=step.agent_id,
            agent_name=step.step.agent,
            status=AGENT_EXECUTION_STATUS_FAILED,
            error=AgentError(type=error_type, message=message),
            task_description=command.sub_task.task,
            depends_on=sorted(dependencies(step.step)),
        )

    async def _progress(self, command: RunStep, *events: TraceEvent) -> None:
        progressed = StepProgressed(
            revision=command.revision, step_id=command.step_id, events=events
        )
        await self._emit(_now(LogEvent(step_progressed=progressed)))

    async def _delta(self, attempt: int, text: str) -> None:
        if text:
            delta = AnswerDelta(attempt=attempt, text=text)
            await self._emit(_now(LogEvent(answer_delta=delta)))

    async def _plan_failed(
        self, revision: int, error_type: str, message: str, answer: MakePlanResponse | None
    ) -> None:
        trace = TraceEvent(type=TRACE_EVENT_TYPE_ERROR, agent=PLANNER, message=message)
        trace.create_time.GetCurrentTime()
        failed = PlanFailed(
            revision=revision,
            error=AgentError(type=error_type, message=message),
            trace=[*(answer.trace if answer else ()), trace],
            usage=answer.usage if answer else None,
        )
        await self._emit(_now(LogEvent(plan_failed=failed)))

    def _plan_request(self) -> MakePlanRequest:
        accepted = self._state.request
        request = accepted.request
        return MakePlanRequest(
            question=request.question,
            context=request.context,
            prefer_agents=request.prefer_agents,
            disable_agents=request.disable_agents,
            cards=accepted.cards,
            fallback_agent=accepted.settings.fallback_agent,
            long_term_memory=accepted.long_term_memory,
            conversation_history=accepted.conversation_history,
            max_steps=accepted.settings.max_steps,
        )

    def _compose_request(self) -> ComposeRequest:
        state, accepted = self._state, self._state.request
        results = [step.result for step in state.steps.values() if step.result is not None]
        return ComposeRequest(
            question=accepted.request.question,
            decision=state.decision,
            intent=state.intent,
            results=results,
            long_term_memory=accepted.long_term_memory,
            conversation_history=accepted.conversation_history,
            system_prompt=accepted.request.system_prompt,
            context=accepted.request.context,
        )

    def _step_timeout_s(self, step: StepState) -> float:
        card = self._state.card(step.step.agent)
        if step.step.HasField("timeout"):
            return float(step.step.timeout.ToNanoseconds() / 1e9)
        if card is not None and card.HasField("default_timeout"):
            return float(card.default_timeout.ToNanoseconds() / 1e9)
        return self._with.settings.agent_timeout_s

    def _repeatable(self, step: StepState) -> bool:
        """Whether a failed attempt cannot have left an effect that a second one would double.

        Tools that need approval do not act without one, so only the unprotected ones count.
        """
        card = self._state.card(step.step.agent)
        allowed = set(step.step.tools)
        return card is not None and all(
            tool.side_effect in _HARMLESS or tool.requires_approval
            for tool in card.tools
            if not allowed or tool.name in allowed
        )

    def _steps_over(self, wait_s: float) -> bool:
        return _left_s(steps_deadline(self._state)) <= wait_s

    def _audiences(self, agent: str) -> list[str]:
        card = self._state.card(agent)
        return [agent, *(card.downstream_audiences if card else ())]

    def _token(self, step_key: str, audiences: Sequence[str], timeout_s: float) -> Metadata:
        user_id = self._state.request.user_id
        return self._with.tokens.metadata(
            user_id, self._state.run_id, step_key, audiences, timeout_s
        )


def _planned(revision: int, answer: MakePlanResponse) -> Planned:
    planned = Planned(
        revision=revision,
        plan=answer.plan,
        decision=answer.decision,
        intent=answer.intent,
        trace=answer.trace,
        usage=answer.usage,
    )
    if answer.HasField("clarification"):
        planned.clarification.CopyFrom(answer.clarification)
    return planned


def _trace(step: StepState, kind: TraceEventType, message: str) -> TraceEvent:
    trace = TraceEvent(type=kind, agent=step.step.agent, message=message)
    trace.create_time.GetCurrentTime()
    return trace


def _left_s(deadline: datetime) -> float:
    """Seconds until ``deadline``; never 0, because gRPC takes that for no time-out at all."""
    return max(0.001, (deadline - datetime.now(UTC)).total_seconds())


def _now(event: LogEvent) -> LogEvent:
    event.create_time.GetCurrentTime()
    return event
