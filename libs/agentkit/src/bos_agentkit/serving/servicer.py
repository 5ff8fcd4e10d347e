"""gRPC servicer of an agent: streams trace events, files and the one result."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_FAILED,
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    AgentServiceServicer,
    DescribeRequest,
    DescribeResponse,
    ExecuteRequest,
    ExecuteResponse,
    PrepareRequest,
    PrepareResponse,
)
from bos_agentkit.agent import served_card
from bos_agentkit.serving.execution import AgentRunner
from bos_chassis.auth.callers import current_principal
from bos_chassis.deadlines import remaining_s, set_remaining
from bos_errors import (
    DeadlineExceeded,
    InvalidArgument,
    PermissionDenied,
    ResourceExhausted,
)
from bos_plans import canonical_name, canonical_tool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import grpc

    from bos.agent.v1 import AgentInput, TaskMetadata
    from bos_agentkit.agent import Agent
    from bos_chassis.telemetry import Telemetry

_RETRY_AFTER_S = 1.0
# A prefetch that takes longer is too late for the steps of its run.
_PREPARE_S = 10.0
_STEPS_PER_PREPARATION = 4
_WITH_FILES = (AGENT_EXECUTION_STATUS_SUCCEEDED, AGENT_EXECUTION_STATUS_FAILED)
_MAX_RESULT_BYTES = 4 * 1024 * 1024 - 1024  # gRPC's own default, less room for the envelope


class AgentServicer(AgentServiceServicer):
    """Servicer of one agent.

    Args:
        agent: The agent.
        telemetry: Telemetry of the service.
        max_concurrent_steps: Concurrent steps; more are RESOURCE_EXHAUSTED.
        max_result_bytes: Largest result that the server can send.
        step_timeout_s: Time limit of a step, overriding the card; None: the card's.

    Raises:
        ConfigurationError: the agent's card and code disagree about its tools.
    """

    def __init__(
        self,
        agent: Agent,
        telemetry: Telemetry,
        *,
        max_concurrent_steps: int = 64,
        max_result_bytes: int = _MAX_RESULT_BYTES,
        step_timeout_s: float | None = None,
    ) -> None:
        self._agent = agent
        self._name = agent.card.name
        self._step_timeout_s = step_timeout_s
        self._cards = {agent.card.name: agent.card}
        self._runner = AgentRunner(
            agent, telemetry, max_result_bytes=max_result_bytes, step_timeout_s=step_timeout_s
        )
        self._max_concurrent_steps = max_concurrent_steps
        self._max_preparations = max(1, max_concurrent_steps // _STEPS_PER_PREPARATION)
        self._running = 0
        self._preparing = 0

    async def Describe(
        self,
        request: DescribeRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> DescribeResponse:
        """Return the agent's card as it is now.

        Raises:
            Unavailable: the agent cannot work at the moment; says why.
        """
        self._agent.require_available()
        return DescribeResponse(card=served_card(self._agent, step_timeout_s=self._step_timeout_s))

    async def Prepare(
        self,
        request: PrepareRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> PrepareResponse:
        """Let the agent prefetch for a run, within a time limit and outside the capacity of steps.

        Raises:
            PermissionDenied: the caller's run token was minted for another run or user, or a step.
            ResourceExhausted: too many concurrent prefetches; this one is skipped.
            DeadlineExceeded: it exceeded its time limit.
        """
        _require_own(request.metadata)
        if self._preparing >= self._max_preparations:
            raise ResourceExhausted(
                f"The agent {self._name} reads ahead for {self._max_preparations} runs.",
                reason="AGENT_BUSY",
                retry_after_s=_RETRY_AFTER_S,
            )
        left = remaining_s()
        time_s = _PREPARE_S if left is None else min(_PREPARE_S, left)
        self._preparing += 1
        try:
            set_remaining(time_s)
            async with asyncio.timeout(time_s):
                await self._agent.prepare(request.metadata, request.question)
        except TimeoutError:
            raise DeadlineExceeded(f"Reading ahead took more than {time_s:.3g} s.") from None
        finally:
            self._preparing -= 1
        return PrepareResponse()

    async def Execute(
        self, request: ExecuteRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[ExecuteResponse]:
        """Stream trace events as they happen, then the files, then exactly one result.

        Raises:
            InvalidArgument: the step is for another agent.
            PermissionDenied: the caller's run token was minted for another step, run or user.
            ResourceExhausted: too many concurrent steps.
        """
        self._admit(request.input)
        task = self._runner.task(self._with_tool_names(request.input))
        self._running += 1
        work = asyncio.create_task(self._runner.run(task), name=f"run {task.agent}")
        try:
            async for batch in task.trace.batches():
                yield ExecuteResponse(trace=batch)
            result = await work
            if result.status in _WITH_FILES:
                for chunk in task.files.chunks():
                    yield ExecuteResponse(file=chunk)
            yield ExecuteResponse(result=result)
        finally:
            # Reached early when the client disconnects: the agent is cancelled.
            work.cancel()
            try:
                await asyncio.wait({work})
            finally:
                self._running -= 1

    def _admit(self, input: AgentInput) -> None:
        _require_own(input.metadata, step=True)
        if input.agent_name and canonical_name(input.agent_name, self._cards) is None:
            raise InvalidArgument.field(
                "input.agent_name",
                f"this is the agent {self._name}, not {input.agent_name}; check the targets",
            )
        if self._running + self._runner.unresponsive >= self._max_concurrent_steps:
            raise ResourceExhausted(
                f"The agent {self._name} has {self._max_concurrent_steps} steps in work.",
                reason="AGENT_BUSY",
                retry_after_s=_RETRY_AFTER_S,
            )

    def _with_tool_names(self, input: AgentInput) -> AgentInput:
        """The input with canonical names of tools, for callers who write an alias."""
        input.tool_name = canonical_tool(input.tool_name, self._agent.card)
        input.tools[:] = [canonical_tool(name, self._agent.card) for name in input.tools]
        return input


def _require_own(metadata: TaskMetadata, *, step: bool = False) -> None:
    """Require a run token for exactly this step, so that a leaked one cannot start others.

    A run token without a step allows ``Prepare`` alone.
    """
    principal = current_principal()
    if principal is None or principal.kind != "run_token":
        return
    named = (metadata.user_id, metadata.run_id, metadata.step_key)
    own = (principal.user_id, principal.run_id, principal.step_key)
    if named != own or (step and not principal.step_key):
        raise PermissionDenied(
            "The run token was not made for this step.", reason="RUN_TOKEN_OTHER_STEP"
        )
