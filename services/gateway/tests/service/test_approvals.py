"""A run asks a person before it acts: propose, approve, perform, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

import asyncpg
import grpc
import pytest
from gateway_harness.harness import Client, Harness, kinds, result_of

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_SUCCEEDED,
)
from bos.gateway.v1 import (
    APPROVAL_DECISION_APPROVE,
    APPROVAL_DECISION_DENY,
    APPROVAL_STATUS_APPROVED,
    APPROVAL_STATUS_PENDING,
    RUN_STATUS_SUCCEEDED,
    RUN_STATUS_WAITING_FOR_APPROVAL,
    Approval,
    ApprovalServiceStub,
    GetApprovalRequest,
    GetRunRequest,
    ListApprovalsRequest,
    RespondApprovalRequest,
    RunEvent,
)
from bos.planner.v1 import Step
from bos.runlog.v1 import LogEvent
from bos_errors import InvalidArgument, from_rpc_error
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from bos_testkit.deploy import DeployAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

APPROVE, DENY = APPROVAL_DECISION_APPROVE, APPROVAL_DECISION_DENY
TOOLS = ("check_deploy_status", "trigger_deployment", "rollback_deployment")


def deploy(step_id: str, task: str, *needs: str) -> Step:
    """A step that may use all tools of the deploying agent."""
    made = step(step_id, "deploy", task, *needs)
    made.tools.extend(TOOLS)
    return made


@pytest.fixture
async def agent(harness: Harness) -> DeployAgent:
    agent = DeployAgent()
    await harness.add_agent(agent)
    harness.planner.steps = [deploy("a", "deploy shop 1.2")]
    return agent


def patient(harness: Harness, **overrides: Any) -> AbstractAsyncContextManager[Client]:
    """A gateway that keeps its lease however busy the machine is."""
    return harness.gateway(**{"lease_s": 15.0, "lease_renewal_s": 1.0, **overrides})


def approvals(client: Client) -> Any:
    return ApprovalServiceStub(client.channel)


class Following:
    """A client that follows a run in the background."""

    def __init__(self, client: Client, question: str = "Deploy?", **request: Any) -> None:
        self.events: list[RunEvent] = []
        self._call = client.stream(question, **request)
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> list[RunEvent]:
        async for message in self._call:
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

    async def end(self) -> list[RunEvent]:
        async with asyncio.timeout(60):
            return await self.task


async def respond(
    client: Client, approval_id: str, decision: int, instructions: str = ""
) -> Approval:
    request = RespondApprovalRequest(
        approval_id=approval_id, decision=decision, instructions=instructions
    )
    answer: Approval = (await approvals(client).RespondApproval(request, timeout=20)).approval
    return answer


async def get(client: Client, approval_id: str) -> Approval:
    request = GetApprovalRequest(approval_id=approval_id)
    answer: Approval = (await approvals(client).GetApproval(request, timeout=20)).approval
    return answer


async def until_nobodys(connection: asyncpg.Connection[Any], run_id: str) -> None:
    """Until the run waits, unowned."""
    query = "SELECT replica_id IS NULL AND status = $2 FROM runs WHERE run_id = $1"
    async with asyncio.timeout(60):
        while not await connection.fetchval(query, run_id, RUN_STATUS_WAITING_FOR_APPROVAL):
            await connection.execute("SELECT pg_sleep(0.01)")


async def stored(harness: Harness, run_id: str) -> list[LogEvent]:
    async with connect(harness.dsn, schema=SCHEMA) as connection:
        rows = await connection.fetch(
            "SELECT payload FROM run_events WHERE run_id = $1 ORDER BY sequence", run_id
        )
    return [LogEvent.FromString(row["payload"]) for row in rows]


@pytest.mark.requirement("M-01", "M-04", "M-10")
async def test_approved_action_is_performed_exactly_once(
    harness: Harness, agent: DeployAgent
) -> None:
    async with patient(harness) as gateway:
        following = Following(gateway)
        approval = await following.asked()
        assert agent.landed == {}
        assert approval.status == APPROVAL_STATUS_PENDING
        (action,) = approval.actions
        assert (action.tool, action.summary) == ("trigger_deployment", "Deploy shop 1.2")
        assert action.arguments.fields["version"].string_value == "1.2"
        waits_s = approval.expire_time.ToNanoseconds() - approval.create_time.ToNanoseconds()
        assert waits_s == 120 * 10**9
        async with connect(harness.dsn, schema=SCHEMA) as connection:
            await until_nobodys(connection, approval.run_id)
        run = (await gateway.stub.GetRun(GetRunRequest(run_id=approval.run_id))).run
        assert run.status == RUN_STATUS_WAITING_FOR_APPROVAL
        answered = await respond(gateway, approval.approval_id, APPROVE)
        assert answered.status == APPROVAL_STATUS_APPROVED
        events = await following.end()
    assert agent.landed == {"deploy shop 1.2": 1}
    assert result_of(events, "a").status == AGENT_EXECUTION_STATUS_SUCCEEDED
    assert [p.action.digest for p in result_of(events, "a").performed_actions] == [action.digest]
    assert events[-1].run_finished.response.status == RUN_STATUS_SUCCEEDED
    order = [e.WhichOneof("event") for e in await stored(harness, approval.run_id)]
    shown = ["approval_requested", "approval_resolved", "effect_intended", "step_finished"]
    assert [kind for kind in order if kind in shown] == shown
    assert "approval_resolved" in kinds(events)


async def test_damaged_approval_does_not_affect_others(
    harness: Harness, agent: DeployAgent
) -> None:
    async with patient(harness, approval_timeouts={"trigger_deployment": 4.0}) as gateway:
        damaged, sound = Following(gateway, "One?"), Following(gateway, "Two?")
        asked = [(await each.asked()).approval_id for each in (damaged, sound)]
        async with connect(harness.dsn, schema=SCHEMA) as connection:
            tear = "UPDATE approvals SET payload = '\\xff' WHERE approval_id = $1"
            await connection.execute(tear, asked[0])
        page = await approvals(gateway).ListApprovals(ListApprovalsRequest(), timeout=20)
        assert {each.approval_id for each in page.approvals} == set(asked)
        with pytest.raises(grpc.aio.AioRpcError, match="can only be denied"):
            await respond(gateway, asked[0], APPROVE)
        for following in (damaged, sound):
            result = result_of(await following.end(), "a")
            assert result.error.type == "hitl_timeout"
            assert "Deploy shop 1.2" in result.error.message
    assert agent.landed == {}


@pytest.mark.requirement("A-24", "M-17", "M-18", "M-19")
async def test_instructions_lead_to_another_proposal(harness: Harness, agent: DeployAgent) -> None:
    """What cannot be classified adds to the task; the model is that of the question."""
    async with patient(harness, models={"large": "Thorough"}) as gateway:
        following = Following(gateway, model="large")
        first = await following.asked()
        for decision, instructions in ((DENY, "but"), (0, "")):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await respond(gateway, first.approval_id, decision, instructions)
            assert isinstance(from_rpc_error(caught.value), InvalidArgument)
        await respond(gateway, first.approval_id, APPROVE, "deploy shop 1.3")
        second = await following.asked(2)
        assert second.approval_id != first.approval_id
        assert agent.landed == {}
        assert [action.summary for action in second.actions] == ["Deploy shop 1.3"]
        await respond(gateway, second.approval_id, APPROVE)
        events = await following.end()
    (asked,) = harness.planner.instructions
    assert (asked.task, asked.instructions) == ("deploy shop 1.2", "deploy shop 1.3")
    assert (asked.proposal, asked.model) == ("Deploy shop 1.2", "large")
    assert {task.model for task in agent.inputs} == {"large"}
    assert agent.landed == {"deploy shop 1.3": 1}
    result = result_of(events, "a")
    for text in (second.task_description, result.task_description):
        assert "### User Enhanced Instructions" in text
    assert not result.task_overridden
