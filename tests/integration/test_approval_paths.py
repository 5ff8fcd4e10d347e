"""Every case of human approval, over gRPC, REST and server-sent events alike.

Effects are counted where they land, at the agent, which is no part of any gateway.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_SKIPPED,
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    AgentResult,
)
from bos.gateway.v1 import RUN_STATUS_FAILED, RUN_STATUS_SUCCEEDED, OrchestratorResponse
from bos_testkit.waiting import eventually

from .approval_callers import CALLERS, Caller, Refused
from .approval_harness import (
    BOTH,
    DEPLOY,
    ROLL_BACK,
    TIMEOUT_S,
    ApprovalHarness,
    open_approval_harness,
)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.requirement("T-16")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(store_url: str, clean_environment: None) -> AsyncIterator[ApprovalHarness]:
    async with open_approval_harness(store_url) as opened:
        yield opened


@pytest.fixture(params=CALLERS)
def way(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def service(request: pytest.FixtureRequest, way: str) -> str:
    """What this test deploys, and no other does."""
    return f"shop-{request.node.originalname.removeprefix('test_').replace('_', '-')}-{way}"


@pytest_asyncio.fixture(loop_scope="module")
async def caller(harness: ApprovalHarness, way: str) -> AsyncIterator[Caller]:
    async with CALLERS[way](harness.workers[0]) as opened:
        yield opened


def landed(harness: ApprovalHarness, service: str) -> dict[str, int]:
    """What happened to the service, and how often."""
    return {
        label.replace(service, "it"): times
        for label, times in harness.agent.landed.items()
        if service in label.split()
    }


def result_of(response: OrchestratorResponse, number: int = 0) -> AgentResult:
    return response.agent_results[number]


def names(caller: Caller) -> list[str]:
    return [name for name, _ in caller.events]


def closing(asked: dict[str, Any]) -> dict[str, Any]:
    """The payload of the event that closes a request."""
    return {"request_id": asked["request_id"], "agent_id": asked["agent_id"]}


@pytest.mark.requirement("A-21", "M-07", "M-09")
async def test_approve(harness: ApprovalHarness, caller: Caller, service: str) -> None:
    await caller.ask(f"{DEPLOY} {service}")
    asked = await caller.asked()
    assert asked["agent_id"].startswith("deploy_")
    assert asked == {
        **closing(asked),
        "agent_name": "deploy",
        "tool_names": ["trigger_deployment"],
        "task_description": f"deploy {service} 1.2",
        "timeout_seconds": 120.0,
    }
    assert landed(harness, service) == {}
    assert await caller.decide(asked["request_id"], "approved") == "approved"
    response = await caller.end()
    assert landed(harness, service) == {"deploy it 1.2": 1}
    assert response.status == RUN_STATUS_SUCCEEDED
    assert [p.action.tool for p in result_of(response).performed_actions] == ["trigger_deployment"]
    assert names(caller) == ["hitl_required", "hitl_approved"]
    assert caller.events[1][1] == closing(asked)


@pytest.mark.parametrize("mode", ["enhance", "override"])
async def test_approve_with_instructions(
    harness: ApprovalHarness, caller: Caller, service: str, mode: str
) -> None:
    """They lead to another proposal: that one is what an approval without instructions allows."""
    service = f"{service}-{mode}"
    await caller.ask(f"{DEPLOY} {service}")
    first = await caller.asked()
    await caller.decide(first["request_id"], "approved", f"{mode}:\ndeploy {service} 1.3")
    second = await caller.asked(2)
    assert second["request_id"] != first["request_id"]
    assert landed(harness, service) == {}
    heading = {"enhance": "### User Enhanced Instructions", "override": "INSTEAD of the original"}
    assert heading[mode] in second["task_description"]
    await caller.decide(second["request_id"], "approved")
    response = await caller.end()
    assert landed(harness, service) == {"deploy it 1.3": 1}
    assert result_of(response).task_overridden is (mode == "override")
    assert result_of(response).task_description == second["task_description"]
    assert names(caller) == ["hitl_required", "hitl_approved"] * 2


@pytest.mark.requirement("M-09", "M-11")
async def test_deny(harness: ApprovalHarness, caller: Caller, service: str) -> None:
    await caller.ask(f"{DEPLOY} {service}")
    asked = await caller.asked()
    assert await caller.decide(asked["request_id"], "denied") == "denied"
    response = await caller.end()
    assert landed(harness, service) == {}
    result = result_of(response)
    assert (result.status, result.error.type) == (AGENT_EXECUTION_STATUS_SKIPPED, "denied_by_user")
    assert result.partial_data.fields["reason"].string_value == "denied_by_user"
    (tool,) = result.partial_data.fields["tools"].list_value.values
    assert tool.string_value == "trigger_deployment"
    assert response.status == RUN_STATUS_FAILED
    assert caller.events[1:] == [("hitl_denied", closing(asked))]


@pytest.mark.requirement("M-06", "M-09", "M-12")
async def test_time_out_and_a_response_after_it(
    harness: ApprovalHarness, caller: Caller, service: str
) -> None:
    await caller.ask(f"{ROLL_BACK} {service}")
    asked = await caller.asked()
    assert (asked["tool_names"], asked["timeout_seconds"]) == (["rollback_deployment"], TIMEOUT_S)
    response = await caller.end()
    result = result_of(response)
    assert (result.status, result.error.type) == (AGENT_EXECUTION_STATUS_SKIPPED, "hitl_timeout")
    assert caller.events[1:] == [("hitl_timeout", closing(asked))]
    for decision in ("approved", "denied"):
        with pytest.raises(Refused) as caught:
            await caller.decide(asked["request_id"], decision)
        assert (caught.value.code, caught.value.reason) == (caller.too_late, "APPROVAL_RESOLVED")
    assert landed(harness, service) == {}


@pytest.mark.requirement("M-08")
async def test_late_response(harness: ApprovalHarness, caller: Caller, service: str) -> None:
    """The first decision stands; the same one again is no error and does nothing again."""
    await caller.ask(f"{DEPLOY} {service}")
    asked = await caller.asked()
    assert await caller.decide(asked["request_id"], "approved") == "approved"
    assert await caller.decide(asked["request_id"], "approved") == "approved"
    await caller.end()
    assert await caller.decide(asked["request_id"], "approved") == "approved"
    for decision, instructions in (("denied", ""), ("approved", "and tell me")):
        with pytest.raises(Refused) as caught:
            await caller.decide(asked["request_id"], decision, instructions)
        assert (caught.value.code, caught.value.reason) == (caller.too_late, "APPROVAL_RESOLVED")
    assert landed(harness, service) == {"deploy it 1.2": 1}
    assert names(caller) == ["hitl_required", "hitl_approved"]


@pytest.mark.requirement("M-03")
async def test_restart_during_approval(harness: ApprovalHarness, way: str, service: str) -> None:
    """The only gateway that its client knows is killed; another one comes to the same address."""
    async with harness.worker() as worker, CALLERS[way](worker) as caller:
        await caller.ask(f"{DEPLOY} {service}")
        asked = await caller.asked()
        await worker.kill()
        port = int(worker.target.rpartition(":")[2])
        async with harness.gateway(port) as again:
            assert again.target == worker.target
            assert await caller.decide(asked["request_id"], "approved") == "approved"
            response = await caller.end()
    assert response.status == RUN_STATUS_SUCCEEDED
    assert landed(harness, service) == {"deploy it 1.2": 1}
    assert names(caller) == ["hitl_required", "hitl_approved"]


@pytest.mark.requirement("M-03")
async def test_two_workers(harness: ApprovalHarness, caller: Caller, service: str) -> None:
    """The stream is at one, the response goes through the other."""
    await caller.ask(f"{DEPLOY} {service}")
    asked = await caller.asked()
    assert await caller.decide(asked["request_id"], "approved", at=harness.workers[1]) == "approved"
    response = await caller.end()
    assert response.status == RUN_STATUS_SUCCEEDED
    assert landed(harness, service) == {"deploy it 1.2": 1}
    assert caller.events[1:] == [("hitl_approved", closing(asked))]


@pytest.mark.requirement("M-13")
async def test_parallel_stage(
    harness: ApprovalHarness, caller: Caller, service: str, way: str
) -> None:
    """The step that needs no approval runs at once; the stage waits for both."""
    looks = harness.agent.looks
    await caller.ask(f"{BOTH} {service}")
    asked = await caller.asked()
    await eventually(lambda: harness.agent.looks == looks + 1)
    if way != "rest":  # without a stream there are no events before the end
        await eventually(lambda: caller.finished_steps == ["look"])
    assert caller.response is None
    assert landed(harness, service) == {}
    await caller.decide(asked["request_id"], "approved")
    response = await caller.end()
    statuses = [result.status for result in response.agent_results]
    assert statuses == [AGENT_EXECUTION_STATUS_SUCCEEDED] * 2
    assert result_of(response, 1).answer == f"{service} runs none."
    assert landed(harness, service) == {"deploy it 1.2": 1}


@pytest.mark.requirement("M-14")
async def test_non_streaming_skip(harness: ApprovalHarness, caller: Caller, service: str) -> None:
    """No approver can be asked, so the step is skipped and says so; the others run."""
    response = await caller.unary(f"{BOTH} {service}")
    skipped, other = response.agent_results
    assert skipped.status == AGENT_EXECUTION_STATUS_SKIPPED
    assert skipped.error.type == "hitl_skipped_non_streaming"
    explanation = skipped.partial_data.fields["explanation"].string_value
    assert explanation == "This agent requires human approval. Use the streaming endpoint."
    assert other.status == AGENT_EXECUTION_STATUS_SUCCEEDED
    assert landed(harness, service) == {}
