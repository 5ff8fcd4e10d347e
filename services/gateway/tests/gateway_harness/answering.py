"""Questions whose runs ask for approvals, the clients that follow them, and their decisions."""

import asyncio
from typing import Any

import grpc
import pytest

from bos.gateway.v1 import (
    APPROVAL_DECISION_APPROVE,
    APPROVAL_DECISION_DENY,
    RUN_STATUS_WAITING_FOR_APPROVAL,
    Approval,
    GetApprovalRequest,
    ListApprovalsRequest,
    RespondApprovalRequest,
    RunEvent,
)
from bos_errors import from_rpc_error
from bos_testkit.waiting import eventually
from gateway_harness.harness import Client
from gateway_harness.stored import until

APPROVE, DENY = APPROVAL_DECISION_APPROVE, APPROVAL_DECISION_DENY


class Following:
    """A client that follows a run in the background: the one it asks for, or that of a call."""

    def __init__(
        self, client: Client, question: str = "Deploy?", call: Any = None, **request: Any
    ) -> None:
        self.events: list[RunEvent] = []
        self.call = client.call(call) if call else client.stream(question, **request)
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> list[RunEvent]:
        async for message in self.call:
            self.events.append(message.event)
        return self.events

    async def asked(self, times: int = 1) -> Approval:
        """The latest request, once there have been so many."""
        await eventually(lambda: len(self.requests) >= times or self.task.done())
        return self.requests[times - 1]

    @property
    def requests(self) -> list[Approval]:
        kind = "approval_requested"
        return [e.approval_requested.approval for e in self.events if e.HasField(kind)]

    def has(self, kind: str) -> bool:
        return any(event.HasField(kind) for event in self.events)

    async def end(self) -> list[RunEvent]:
        async with asyncio.timeout(60):
            return await self.task


async def asked(client: Client) -> Approval:
    """The request that a question leads to; its run waits."""
    async for message in client.stream("Deploy?"):
        if message.event.HasField("approval_requested"):
            return message.event.approval_requested.approval
    raise AssertionError("no approval was requested")


async def listed(client: Client, **wanted: Any) -> list[Approval]:
    return list((await client.call(ListApprovalsRequest(**wanted))).approvals)


async def respond(
    client: Client, approval: Approval, decision: int, instructions: str = ""
) -> Approval:
    request = RespondApprovalRequest(
        approval_id=approval.approval_id, decision=decision, instructions=instructions
    )
    return (await client.call(request)).approval


async def get(client: Client, approval: Approval) -> Approval:
    return (await client.call(GetApprovalRequest(approval_id=approval.approval_id))).approval


async def until_released(dsn: str, run_id: str) -> None:
    """Until the run waits for an approval, unowned."""
    waits = "replica_id IS NULL AND status = $2 FROM runs WHERE run_id = $1"
    await until(dsn, waits, run_id, RUN_STATUS_WAITING_FOR_APPROVAL)


async def refusal(call: Any) -> Any:
    """The error with which a call is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await (call.read() if hasattr(call, "read") else call)
    return from_rpc_error(raised.value)
