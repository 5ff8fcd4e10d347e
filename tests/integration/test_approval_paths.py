"""Every way of a human approval, over server-sent events and the decision path of REST.

Effects are counted where they land, at the agent, which is no part of any gateway.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from google.protobuf.json_format import ParseDict

from bos.agent.v1 import AGENT_EXECUTION_STATUS_SKIPPED, AGENT_EXECUTION_STATUS_SUCCEEDED
from bos.common.v1 import OUTCOME_DENIED
from bos.gateway.v1 import (
    RUN_STATUS_PARTIALLY_SUCCEEDED,
    RUN_STATUS_SUCCEEDED,
    OrchestratorResponse,
)
from bos_client import BosClient
from bos_testkit.waiting import eventually

from .approval_harness import (
    BOTH,
    DEPLOY,
    ROLL_BACK,
    TIMEOUT_S,
    ApprovalHarness,
    Worker,
    open_approval_harness,
)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.requirement("T-16")]

_WITHIN_S = 60.0


class Caller:
    """One client of a worker: it follows the stream, and decides by REST."""

    def __init__(self, http: aiohttp.ClientSession, worker: Worker) -> None:
        self._http = http
        self.worker = worker
        self.events: list[tuple[str, dict[str, Any]]] = []
        """Events about approvals that it got, in order."""
        self.finished_steps: list[str] = []
        self.response: OrchestratorResponse | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    def ask(self, question: str) -> None:
        self._task = asyncio.create_task(self._follow(question))

    async def asked(self, times: int = 1) -> dict[str, Any]:
        """The latest request, once there have been so many."""
        task = self._task
        assert task is not None
        await eventually(
            lambda: self.names.count("hitl_required") >= times or task.done(), within_s=_WITHIN_S
        )
        requests = [payload for name, payload in self.events if name == "hitl_required"]
        if len(requests) < times:
            task.result()
        return requests[times - 1]

    async def end(self) -> OrchestratorResponse:
        assert self._task is not None
        async with asyncio.timeout(_WITHIN_S):
            await self._task
        assert self.response is not None
        return self.response

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self, question: str) -> None:
        async with self._http.post(
            f"{self.worker.rest_url}/query/stream", json={"question": question}
        ) as stream:
            assert stream.status == 200, await stream.text()
            name = ""
            async for raw in stream.content:
                field, _, value = raw.decode().rstrip("\n").partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    self._take(name, json.loads(value))

    def _take(self, name: str, content: dict[str, Any]) -> None:
        if name.startswith("hitl_"):
            self.events.append((name, content))
        elif name == "step_finished":
            self.finished_steps.append(content["step_finished"]["step_id"])
        elif name == "done":
            self.response = ParseDict(content, OrchestratorResponse())

    async def decide(
        self, request_id: str, decision: str, instructions: str = "", *, refused: int = 0
    ) -> str:
        """Decide ``approved`` or ``denied``; the state after that, or the reason if refused."""
        body = {"request_id": request_id, "decision": decision, "instructions": instructions}
        status, content = await self.post("/hitl/respond", body)
        assert status == (refused or 200), content
        if not refused:
            return str(content["status"]).removeprefix("APPROVAL_STATUS_").lower()
        (info,) = [d for d in content["error"]["details"] if d["@type"].endswith("ErrorInfo")]
        return str(info["reason"])

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        async with asyncio.timeout(_WITHIN_S):
            while True:
                async with self._http.post(self.worker.rest_url + path, json=body) as answer:
                    if answer.status != 503:
                        return answer.status, await answer.json()
                await asyncio.sleep(0.02)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(store_url: str, clean_environment: None) -> AsyncIterator[ApprovalHarness]:
    async with open_approval_harness(store_url) as opened:
        yield opened


@pytest.fixture
def service(request: pytest.FixtureRequest) -> str:
    """What this test deploys, and no other does."""
    return f"shop-{request.node.originalname.removeprefix('test_').replace('_', '-')}"


@pytest_asyncio.fixture(loop_scope="module")
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers={"Accept": "application/protobuf+json"}) as session:
        yield session


@pytest_asyncio.fixture(loop_scope="module")
async def caller(harness: ApprovalHarness, http: aiohttp.ClientSession) -> AsyncIterator[Caller]:
    opened = Caller(http, harness.workers[0])
    yield opened
    await opened.stop()


def landed(harness: ApprovalHarness, service: str) -> dict[str, int]:
    return {
        label.replace(service, "it"): times
        for label, times in harness.agent.landed.items()
        if service in label.split()
    }


def closing(asked: dict[str, Any]) -> dict[str, Any]:
    return {"request_id": asked["request_id"], "agent_id": asked["agent_id"]}


@pytest.mark.requirement("A-21", "M-07", "M-09")
async def test_approve(harness: ApprovalHarness, caller: Caller, service: str) -> None:
    caller.ask(f"{DEPLOY} {service}")
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
    assert [p.action.tool for p in response.agent_results[0].performed_actions] == [
        "trigger_deployment"
    ]
    assert caller.names == ["hitl_required", "hitl_approved"]
    assert caller.events[1][1] == closing(asked)


@pytest.mark.parametrize("mode", ["enhance", "override"])
async def test_approve_with_instructions(
    harness: ApprovalHarness, caller: Caller, service: str, mode: str
) -> None:
    """They lead to another proposal: that one is what an approval without instructions allows."""
    service = f"{service}-{mode}"
    caller.ask(f"{DEPLOY} {service}")
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
    assert response.agent_results[0].task_overridden is (mode == "override")
    assert response.agent_results[0].task_description == second["task_description"]
    assert caller.names == ["hitl_required", "hitl_approved"] * 2


@pytest.mark.requirement("M-09", "M-11")
async def test_deny(harness: ApprovalHarness, caller: Caller, service: str) -> None:
    caller.ask(f"{DEPLOY} {service}")
    asked = await caller.asked()
    assert await caller.decide(asked["request_id"], "denied") == "denied"
    response = await caller.end()
    assert landed(harness, service) == {}
    result = response.agent_results[0]
    assert (result.status, result.error.type) == (AGENT_EXECUTION_STATUS_SKIPPED, "denied_by_user")
    assert result.partial_data.fields["reason"].string_value == "denied_by_user"
    (tool,) = result.partial_data.fields["tools"].list_value.values
    assert tool.string_value == "trigger_deployment"
    ended = (response.status, response.outcome)
    assert ended == (RUN_STATUS_PARTIALLY_SUCCEEDED, OUTCOME_DENIED)
    assert response.answer.startswith("The approval was denied")
    assert caller.events[1:] == [("hitl_denied", closing(asked))]


@pytest.mark.requirement("M-06", "M-09", "M-12")
async def test_time_out_and_a_response_after_it(
    harness: ApprovalHarness, caller: Caller, service: str
) -> None:
    caller.ask(f"{ROLL_BACK} {service}")
    asked = await caller.asked()
    assert (asked["tool_names"], asked["timeout_seconds"]) == (["rollback_deployment"], TIMEOUT_S)
    response = await caller.end()
    result = response.agent_results[0]
    assert (result.status, result.error.type) == (AGENT_EXECUTION_STATUS_SKIPPED, "hitl_timeout")
    assert caller.events[1:] == [("hitl_timeout", closing(asked))]
    for decision in ("approved", "denied"):
        reason = await caller.decide(asked["request_id"], decision, refused=409)
        assert reason == "APPROVAL_RESOLVED"
    assert landed(harness, service) == {}


@pytest.mark.requirement("M-08")
async def test_late_response(harness: ApprovalHarness, caller: Caller, service: str) -> None:
    """The first decision stands; the same one again is no error and does nothing again."""
    caller.ask(f"{DEPLOY} {service}")
    asked = await caller.asked()
    assert await caller.decide(asked["request_id"], "approved") == "approved"
    assert await caller.decide(asked["request_id"], "approved") == "approved"
    await caller.end()
    assert await caller.decide(asked["request_id"], "approved") == "approved"
    for decision, instructions in (("denied", ""), ("approved", "and tell me")):
        reason = await caller.decide(asked["request_id"], decision, instructions, refused=409)
        assert reason == "APPROVAL_RESOLVED"
    assert landed(harness, service) == {"deploy it 1.2": 1}
    assert caller.names == ["hitl_required", "hitl_approved"]


@pytest.mark.requirement("M-03")
async def test_restart_during_approval(
    harness: ApprovalHarness, http: aiohttp.ClientSession, service: str
) -> None:
    """The only gateway that its client knows is killed; another one comes to the same address."""
    async with harness.worker() as worker:
        caller = Caller(http, worker)
        caller.ask(f"{DEPLOY} {service}")
        asked = await caller.asked()
        await worker.kill()
        port = int(worker.target.rpartition(":")[2])
        async with harness.gateway(port) as again:
            assert again.target == worker.target
            assert await caller.decide(asked["request_id"], "approved") == "approved"
            response = await caller.end()
    assert response.status == RUN_STATUS_SUCCEEDED
    assert landed(harness, service) == {"deploy it 1.2": 1}
    assert caller.names == ["hitl_required", "hitl_approved"]


@pytest.mark.requirement("M-03")
async def test_two_workers(harness: ApprovalHarness, caller: Caller, service: str) -> None:
    caller.ask(f"{DEPLOY} {service}")
    asked = await caller.asked()
    async with BosClient(harness.workers[1].target) as bos:
        await bos.approve(asked["request_id"])
    response = await caller.end()
    assert response.status == RUN_STATUS_SUCCEEDED
    assert landed(harness, service) == {"deploy it 1.2": 1}
    assert caller.events[1:] == [("hitl_approved", closing(asked))]


@pytest.mark.requirement("M-13")
async def test_parallel_stage(harness: ApprovalHarness, caller: Caller, service: str) -> None:
    """The step that needs no approval runs at once; the stage waits for both."""
    looks = harness.agent.looks
    caller.ask(f"{BOTH} {service}")
    asked = await caller.asked()
    await eventually(lambda: harness.agent.looks == looks + 1)
    await eventually(lambda: caller.finished_steps == ["look"])
    assert caller.response is None
    assert landed(harness, service) == {}
    await caller.decide(asked["request_id"], "approved")
    response = await caller.end()
    statuses = [result.status for result in response.agent_results]
    assert statuses == [AGENT_EXECUTION_STATUS_SUCCEEDED] * 2
    assert response.agent_results[1].answer == f"{service} runs none."
    assert landed(harness, service) == {"deploy it 1.2": 1}


@pytest.mark.requirement("M-14", "Q-02")
async def test_non_streaming_skip(harness: ApprovalHarness, caller: Caller, service: str) -> None:
    """No approver can be asked, so the step is skipped and says so; the others run."""
    _, content = await caller.post("/query", {"question": f"{BOTH} {service}"})
    response = ParseDict(content, OrchestratorResponse())
    skipped, other = response.agent_results
    assert skipped.status == AGENT_EXECUTION_STATUS_SKIPPED
    assert skipped.error.type == "hitl_skipped_non_streaming"
    explanation = skipped.partial_data.fields["explanation"].string_value
    assert explanation == "This agent requires human approval. Use the streaming endpoint."
    assert other.status == AGENT_EXECUTION_STATUS_SUCCEEDED
    assert landed(harness, service) == {}
