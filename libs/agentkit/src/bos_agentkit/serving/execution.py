"""Execution of one attempt at a step: deadline, cancellation, errors, ids, usage and times.

The gateway starts further attempts, where ``AgentError.retryable`` allows them.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from google.protobuf import duration_pb2, timestamp_pb2
from opentelemetry.trace import StatusCode

from bos.agent.v1 import AgentExecutionStatus, AgentResult
from bos_agentkit.actions import digest_matches, with_secrets
from bos_agentkit.agent import check_tools
from bos_agentkit.failures import (
    ApprovalNeeded,
    error_of,
)
from bos_agentkit.results import awaiting_approval
from bos_agentkit.task import DEFAULT_TIMEOUT_S, AgentTask
from bos_chassis.deadlines import remaining_s, set_remaining
from bos_chassis.tracing import attributes as names
from bos_errors import BosError, DeadlineExceeded, Internal
from bos_llm import (
    MODEL_TIMEOUT,
    add_unreported,
    set_budget,
    set_key_profile,
    set_model_choice,
)
from bos_llm.errors import BudgetExhausted, ModelOutputInvalid, ModelRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.trace import Span

    from bos.agent.v1 import AgentInput
    from bos_agentkit.agent import Agent
    from bos_chassis.telemetry import Telemetry

_FAILED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_FAILED
_AWAITING_APPROVAL = AgentExecutionStatus.AGENT_EXECUTION_STATUS_AWAITING_APPROVAL
_RESULT_STATUSES = frozenset(
    {
        AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED,
        _FAILED,
        AgentExecutionStatus.AGENT_EXECUTION_STATUS_SKIPPED,
        _AWAITING_APPROVAL,
        AgentExecutionStatus.AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
    }
)
# Time reserved before the caller's deadline, so that the result, with its partial data, is still
# sent: a tenth of the time left, within these bounds in seconds.
_MIN_RESERVE_S, _MAX_RESERVE_S = 0.05, 0.5
_MAX_CLEANUP_S = 1.0


class AgentRunner:
    """Executes the steps of one agent.

    Args:
        agent: The agent.
        telemetry: For spans and the log, which alone holds tracebacks.
        max_result_bytes: Larger results become failures here, before the transport refuses them.
        step_timeout_s: Time limit of a step, overriding the card; None: the card's.

    Raises:
        ConfigurationError: the agent's card and code disagree about its tools.
    """

    def __init__(
        self,
        agent: Agent,
        telemetry: Telemetry,
        *,
        max_result_bytes: int,
        step_timeout_s: float | None = None,
    ) -> None:
        check_tools(agent)
        self.agent = agent
        self._step_timeout_s = step_timeout_s
        self._tracer = telemetry.tracer
        self._log = telemetry.logger("bos.agent")
        self._max_result_bytes = max_result_bytes
        self._unresponsive: set[asyncio.Task[AgentResult]] = set()

    @property
    def unresponsive(self) -> int:
        """Number of cancelled steps whose agent is still running and uses resources."""
        return len(self._unresponsive)

    def task(self, input: AgentInput) -> AgentTask:
        """Create the task for ``input``; its time starts now."""
        return AgentTask(
            input,
            agent=self.agent.card.name,
            tools=self.agent.all_tools(),
            timeout_s=self._timeout_s(input),
            tracer=self._tracer,
        )

    async def run(self, task: AgentTask) -> AgentResult:
        """Execute the step and close its trace; failures become part of the result.

        Cancelling this cancels the agent and waits for its cleanup.
        """
        started, clock = datetime.now(UTC), time.perf_counter()
        with self._tracer.start_as_current_span(
            f"{names.INVOKE_AGENT} {task.agent}",
            attributes={
                names.GEN_AI_OPERATION_NAME: names.INVOKE_AGENT,
                names.GEN_AI_AGENT_NAME: task.agent,
                names.GEN_AI_AGENT_ID: task.input.agent_id,
                names.RUN_ID: task.input.metadata.run_id,
                names.STEP_KEY: task.input.metadata.step_key,
                names.ATTEMPT: task.input.metadata.attempt,
                names.USER_DIGEST: names.user_digest(task.input.metadata.user_id),
            },
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                result = await self._attempt(task)
                elapsed = timedelta(seconds=time.perf_counter() - clock)
                result = self._complete(task, result, started, elapsed)
                if result.status == _FAILED:
                    self._record_failure(task, result, span)
                return result
            finally:
                task.trace.close()

    def _timeout_s(self, input: AgentInput) -> float:
        """Time limit of the plan, or else of the card, capped by the caller's deadline."""
        wanted = input.retry_config.timeout.ToTimedelta().total_seconds()
        if wanted <= 0:
            wanted = self._step_timeout_s or (
                self.agent.card.default_timeout.ToTimedelta().total_seconds()
            )
        if wanted <= 0:
            wanted = DEFAULT_TIMEOUT_S
        remaining = remaining_s()
        if remaining is None:
            return wanted
        reserve = min(_MAX_RESERVE_S, max(_MIN_RESERVE_S, remaining / 10))
        return min(wanted, max(0.0, remaining - reserve))

    async def _attempt(self, task: AgentTask) -> AgentResult:
        work = asyncio.create_task(self._work(task), name=f"step {task.input.metadata.step_key}")
        try:
            await asyncio.wait({work}, timeout=task.remaining_s())
            if work.done():
                return self._outcome(task, work)
            # Determined first, because cancelling the agent abandons its open calls.
            model_is_late = task.budget.under_way > 0
        finally:
            if not work.done():
                await self._cancel(work)
        # The agent has ended, so the budget has counted a call cancelled with it.
        return _late(task, model_is_late=model_is_late)

    async def _work(self, task: AgentTask) -> AgentResult:
        set_remaining(task.remaining_s())  # calls that the agent makes end before it does
        set_budget(task.budget)
        set_key_profile(task.input.api_keys_config_ref)
        set_model_choice(task.input.model)
        approved = task.input.approval_context.approved_actions
        if approved:
            secrets = task.input.secrets
            whole = [with_secrets(action, secrets) for action in approved]
            return await self.agent.perform(task, whole)
        return await self.agent.execute(task)

    def _outcome(self, task: AgentTask, work: asyncio.Task[AgentResult]) -> AgentResult:
        if work.cancelled():
            return self._failure_of(task, asyncio.CancelledError())
        error = work.exception()
        if error is None:
            return self._checked(task, work.result())
        errors = tuple(_leaves(error))
        actions = [one.action for one in errors if isinstance(one, ApprovalNeeded)]
        if len(actions) == len(errors):
            return awaiting_approval(task, actions)
        return self._failure_of(
            task, next(one for one in errors if not isinstance(one, ApprovalNeeded))
        )

    def _checked(self, task: AgentTask, result: object) -> AgentResult:
        problem = _defect(result)
        if problem is None and isinstance(result, AgentResult):
            return result
        return self._failure_of(task, Internal(f"The agent {task.agent} {problem}."))

    def _failure_of(self, task: AgentTask, error: BaseException) -> AgentResult:
        metered = ModelOutputInvalid | ModelRefused | BudgetExhausted
        if isinstance(error, metered) and error.usage is not None:
            task.usage.add(error.usage)
        # An unusable reply of a model is an Internal error, but no defect of the agent.
        defect = isinstance(error, Internal) and not isinstance(error, ModelOutputInvalid)
        if not isinstance(error, BosError) or defect:
            self._log.error(
                "agent failed unexpectedly",
                agent=task.agent,
                step=task.input.metadata.step_key,
                exc_info=error,
            )
        if isinstance(error, DeadlineExceeded):
            model_is_late = _is_of_model(task, error)
            if not task.remaining_s():
                return _late(task, model_is_late=model_is_late)  # whichever timer fired first
            if model_is_late:
                error = DeadlineExceeded(
                    error.message, reason=MODEL_TIMEOUT, metadata=error.metadata
                )
        return _failure(task, error)

    async def _cancel(self, work: asyncio.Task[AgentResult]) -> None:
        """Cancel the agent and wait for its cleanup, at most until the caller's deadline."""
        work.cancel()
        remaining = remaining_s()
        patience = _MAX_CLEANUP_S if remaining is None else min(_MAX_CLEANUP_S, remaining / 2)
        await asyncio.wait({work}, timeout=patience)
        if not work.done():
            self._log.error("agent ignores cancellation", agent=self.agent.card.name)
            self._unresponsive.add(work)
            work.add_done_callback(self._unresponsive.discard)
        elif not work.cancelled():
            # Its outcome is too late; retrieving it avoids asyncio's warning.
            work.exception()

    def _complete(
        self, task: AgentTask, result: AgentResult, started: datetime, elapsed: timedelta
    ) -> AgentResult:
        """Copy of ``result`` with ids, usage and times."""
        if result.status == _FAILED:
            self._drop_optional_data(result)
        if result.ByteSize() > self._max_result_bytes:
            result = _failure(task, _too_large(result, self._max_result_bytes))
        complete = AgentResult()
        complete.CopyFrom(result)
        complete.agent_id = task.input.agent_id
        complete.agent_name = task.agent
        complete.task_description = task.effective_task
        complete.task_overridden = task.overridden
        complete.tainted = result.tainted or task.tainted
        complete.start_time.CopyFrom(_timestamp(started))
        complete.latency.CopyFrom(_duration(elapsed))
        if not result.HasField("usage"):
            complete.usage.CopyFrom(task.usage.message(elapsed))
        add_unreported(complete.usage, task.budget)
        if not result.performed_actions:
            complete.performed_actions.extend(task.tools.performed)
        if complete.status == _FAILED:
            _complete_failure(task, complete)
        self._drop_optional_data(complete)
        return complete

    def _drop_optional_data(self, result: AgentResult) -> None:
        """Drop partial data, then results of actions, that make the result too large to send.

        The result itself is measured separately; an error is always sent.
        """
        if result.ByteSize() > self._max_result_bytes:
            result.partial_data.Clear()
        if result.ByteSize() > self._max_result_bytes:
            for performed in result.performed_actions:
                performed.result.Clear()

    def _record_failure(self, task: AgentTask, result: AgentResult, span: Span) -> None:
        """Record the result's error as an ERROR event."""
        error = result.error
        task.trace.error(error.message, type=error.type, retryable=error.retryable)
        span.set_attribute(names.ERROR_TYPE, error.type)
        span.set_status(StatusCode.ERROR)


def _failure(task: AgentTask, error: BaseException) -> AgentResult:
    return AgentResult(status=_FAILED, error=error_of(error), partial_data=task.partial_data)


def _complete_failure(task: AgentTask, result: AgentResult) -> None:
    if not result.error.type:
        result.error.type = Internal.__name__
    if task.partial_data is not None and not result.HasField("partial_data"):
        result.partial_data.CopyFrom(task.partial_data)
    # Never retried: the action would be performed a second time.
    if task.tools.irreversible_dispatched:
        result.error.retryable = False


def _defect(result: object) -> str | None:
    """Problem with the form of a result, as the end of a sentence; its content is not judged."""
    if not isinstance(result, AgentResult):
        return "returned something that is not a result"
    if result.status not in _RESULT_STATUSES:
        return "returned a result without a final status"
    if (result.status == _AWAITING_APPROVAL) != bool(result.proposed_actions):
        return "returned proposed actions without waiting for approval, or the other way round"
    if not all(digest_matches(action) for action in result.proposed_actions):
        return "proposed an action whose digest is not its own"
    return None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Exceptions inside an exception group; tools may be called concurrently."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _is_of_model(task: AgentTask, error: DeadlineExceeded) -> bool:
    """Whether a deadline was exceeded by a model call.

    A model call that exceeds the caller's deadline gives no reason, but leaves unreported tokens.
    So does one that was cancelled because something else failed, but that error has a reason.
    """
    if error.reason == DeadlineExceeded.default_reason:
        return task.budget.abandoned > 0
    return error.reason == MODEL_TIMEOUT


def _late(task: AgentTask, *, model_is_late: bool) -> AgentResult:
    """Failure of a step that exceeded its time limit."""
    failure = _failure(task, _out_of_time(task, model_is_late))
    if task.budget.counted:
        # Another attempt would repeat the same model calls at the same time and cost.
        failure.error.retryable = False
    return failure


def _out_of_time(task: AgentTask, model_is_late: bool) -> DeadlineExceeded:
    text = f"The agent {task.agent} did not finish within {task.timeout_s:.3g} s"
    if model_is_late:
        variable = f"BOS_{task.agent.upper().replace('-', '_')}_STEP_TIMEOUT_S"
        text = f"{text}: its model had not answered. {variable} gives it more time."
        return DeadlineExceeded(text, reason=MODEL_TIMEOUT)
    return DeadlineExceeded(f"{text}.", reason="STEP_TIMEOUT")


def _too_large(result: AgentResult, limit: int) -> BosError:
    return BosError(
        f"The result has {result.ByteSize()} bytes and only {limit} can be sent. "
        "Ask for fewer rows or columns.",
        reason="RESULT_TOO_LARGE",
    )


def _timestamp(moment: datetime) -> timestamp_pb2.Timestamp:
    stamp = timestamp_pb2.Timestamp()
    stamp.FromDatetime(moment)
    return stamp


def _duration(elapsed: timedelta) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromTimedelta(elapsed)
    return duration
