"""The gRPC side of an agent: translate, stream the trace, then the one result."""

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
)
from bos_agentkit.execution import AgentRunner
from bos_chassis.auth import current_principal
from bos_chassis.errors import InvalidArgument, PermissionDenied, ResourceExhausted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import grpc

    from bos.agent.v1 import AgentInput
    from bos_agentkit.agent import Agent
    from bos_chassis.telemetry import Telemetry

_RETRY_AFTER_S = 1.0
_WITH_FILES = (AGENT_EXECUTION_STATUS_SUCCEEDED, AGENT_EXECUTION_STATUS_FAILED)
_MAX_RESULT_BYTES = 4 * 1024 * 1024 - 1024  # gRPC's own default, less room for the envelope


class AgentServicer(AgentServiceServicer):
    """Serves one agent.

    Args:
        agent: The agent.
        telemetry: Telemetry of the service.
        max_concurrent_steps: Steps at once; more are RESOURCE_EXHAUSTED.
        max_result_bytes: Largest result that the server can send.

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
    ) -> None:
        self._card = agent.card
        self._names = frozenset({agent.card.name, *agent.card.aliases})
        self._runner = AgentRunner(agent, telemetry, max_result_bytes=max_result_bytes)
        self._max_concurrent_steps = max_concurrent_steps
        self._running = 0

    async def Describe(
        self,
        request: DescribeRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> DescribeResponse:
        """The card."""
        return DescribeResponse(card=self._card)

    async def Execute(
        self, request: ExecuteRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[ExecuteResponse]:
        """Trace events as they happen, then the files, then exactly one result.

        Raises:
            InvalidArgument: the step is meant for another agent.
            PermissionDenied: the caller's run token was minted for another step, run or user.
            ResourceExhausted: too many steps at once.
        """
        self._admit(request.input)
        task = self._runner.task(request.input)
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
            # Reached early when the client goes away: nobody waits for the agent any longer.
            work.cancel()
            try:
                await asyncio.wait({work})
            finally:
                self._running -= 1

    def _admit(self, input: AgentInput) -> None:
        _require_own_step(input)
        if input.agent_name and input.agent_name not in self._names:
            raise InvalidArgument.field(
                "input.agent_name",
                f"this is the agent {self._card.name}, not {input.agent_name}; check the targets",
            )
        if self._running + self._runner.stubborn >= self._max_concurrent_steps:
            raise ResourceExhausted(
                f"The agent {self._card.name} has {self._max_concurrent_steps} steps in work.",
                reason="AGENT_BUSY",
                retry_after_s=_RETRY_AFTER_S,
            )


def _require_own_step(input: AgentInput) -> None:
    """A run token opens exactly one step: a leaked one must not start others in its user's name."""
    principal = current_principal()
    if principal is None or principal.kind != "run_token":
        return
    named = (input.metadata.user_id, input.metadata.run_id, input.metadata.step_key)
    if named != (principal.user_id, principal.run_id, principal.step_key):
        raise PermissionDenied(
            "The run token was not made for this step.", reason="RUN_TOKEN_OTHER_STEP"
        )
