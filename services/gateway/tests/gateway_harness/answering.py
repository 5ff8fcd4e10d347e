"""Questions whose runs ask for approvals, and decisions by callers with credentials."""

from typing import Any

import grpc
import pytest

from bos.gateway.v1 import (
    AgentRequest,
    Approval,
    ApprovalServiceStub,
    AskStreamRequest,
    GetApprovalRequest,
    ListApprovalsRequest,
    RespondApprovalRequest,
)
from bos_errors import from_rpc_error
from gateway_harness.harness import Client


def approvals(gateway: Client) -> Any:
    return ApprovalServiceStub(gateway.channel)


async def asked(gateway: Client, caller: Any) -> Approval:
    """The request that a question of the caller's leads to; its run waits."""
    question = AskStreamRequest(request=AgentRequest(question="Deploy?"))
    async for message in gateway.stub.AskStream(question, timeout=60, metadata=caller):
        if message.event.HasField("approval_requested"):
            return Approval.FromString(
                message.event.approval_requested.approval.SerializeToString()
            )
    raise AssertionError("no approval was requested")


async def seen_by(gateway: Client, caller: Any, **wanted: Any) -> list[Approval]:
    request = ListApprovalsRequest(**wanted)
    answer = await approvals(gateway).ListApprovals(request, timeout=30, metadata=caller)
    return list(answer.approvals)


async def respond(
    gateway: Client, approval: Approval, decision: int, caller: Any, instructions: str = ""
) -> Approval:
    request = RespondApprovalRequest(
        approval_id=approval.approval_id, decision=decision, instructions=instructions
    )
    answer = await approvals(gateway).RespondApproval(request, timeout=30, metadata=caller)
    found: Approval = answer.approval
    return found


async def get(gateway: Client, approval: Approval, caller: Any) -> Approval:
    request = GetApprovalRequest(approval_id=approval.approval_id)
    found: Approval = (
        await approvals(gateway).GetApproval(request, timeout=30, metadata=caller)
    ).approval
    return found


async def refusal(call: Any) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return from_rpc_error(raised.value)
