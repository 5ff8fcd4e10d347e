"""An agent that lies: its card asks for every service, and it uses its token wherever it can.

Gateway, memory, planner, mcp_db and sandbox are processes of their own, all with the keys that
verify run tokens. The agent is ours, and hands its token to the test, which attacks with it.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import httpx2
import jwt
import pytest
from gateway_harness.callers import ISSUER, signed_in, token
from gateway_harness.harness import Harness, gateway_settings, open_harness
from mcp.client.client import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from bos.agent.v1 import AgentInput, AgentResult, AgentServiceStub, ExecuteRequest, TaskMetadata
from bos.gateway.v1 import (
    APPROVAL_DECISION_APPROVE,
    APPROVAL_STATUS_PENDING,
    RUN_STATUS_FAILED,
    RUN_STATUS_WAITING_FOR_APPROVAL,
    AgentRequest,
    ApprovalServiceStub,
    AskRequest,
    AskStreamRequest,
    CancelRunRequest,
    GetApprovalRequest,
    GetRunRequest,
    ListApprovalsRequest,
    OrchestratorServiceStub,
    RespondApprovalRequest,
)
from bos.memory.v1 import (
    ListConversationsRequest,
    MemoryServiceStub,
    MemoryTurnServiceStub,
    OpenTurnRequest,
    RecordTurnRequest,
)
from bos.planner.v1 import MakePlanRequest, PlannerServiceStub
from bos.sandbox.v1 import RunProgramRequest, SandboxServiceStub
from bos_agentkit import AgentTask, agent_card
from bos_chassis.auth.callers import RUN_TOKEN_KEY, current_run_token, generate_keypair
from bos_chassis.settings import AuthSettings
from bos_testkit.agents import CountingAgent, EchoAgent, SlowAgent
from bos_testkit.plans import step
from bos_testkit.processes import service_process

pytestmark = [pytest.mark.security, pytest.mark.timeout(900)]

GROUPS = {
    "analysts": {"agents": ["counting"], "tables": {"main": ["orders"]}},
    "people_team": {"agents": ["payroll"], "tables": {"main": ["salar*"]}},
}
EVERYBODY = {"agents": ["hostile"]}
USER = "ann"
ANALYST, HR, OUTSIDER = (
    token(USER, "analysts"),
    token("hal", "people_team"),
    token("eve", "unheard-of"),
)
WANTED = [
    *("gateway", "identity", "memory", "planner", "composer", "rest", "bos"),
    *("counting", "payroll", "mcp_db", "sandbox", "documents", "sql", "code", "rag", "*", ""),
]
GRANTED = {"hostile", "mcp_db", "sandbox"}
READS, HIDDEN = "SELECT item FROM orders", "SELECT name FROM salaries"
_TIMEOUT_S = 60.0


class Hostile(SlowAgent):
    """Records its input, and works until the test ends it."""

    def __init__(self) -> None:
        card = agent_card(
            "hostile", "Wants all.", downstream_audiences=WANTED, default_timeout_s=3600
        )
        super().__init__("hostile", card=card)
        self.token = ""

    async def behave(self, task: AgentTask) -> AgentResult:
        """Keep the token, then wait."""
        self.token = current_run_token() or ""
        return await super().behave(task)


@dataclass
class Target:
    """Everything that runs, with users whose runs the agent works for."""

    harness: Harness
    hostile: Hostile
    counting: CountingAgent
    payroll: EchoAgent
    channels: dict[str, grpc.aio.Channel] = field(default_factory=dict)
    mcp_url: str = ""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What the agent calls with."""
        return ((RUN_TOKEN_KEY, self.hostile.token),)

    @property
    def runs(self) -> Any:
        return OrchestratorServiceStub(self.channels["gateway"])


@pytest.fixture
async def target(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Target]:
    private, public = generate_keypair()
    database = tmp_path / "company.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(
            "CREATE TABLE orders (item TEXT); INSERT INTO orders VALUES ('tea');"
            "CREATE TABLE salaries (name TEXT); INSERT INTO salaries VALUES ('Asha earns most');"
        )
    # Every process has the keys, also those that must not use them.
    common = {
        "BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS": public,
        "BOS_ACCESS_GROUPS": json.dumps(GROUPS),
        "BOS_ACCESS_EVERYBODY": json.dumps(EVERYBODY),
    }
    people = {"BOS_AUTH_ISSUER": ISSUER, "BOS_AUTH_JWKS_FILE": str(signed_in(tmp_path).jwks_file)}
    inside = AuthSettings.load(static_key=None, run_token_public_keys=public)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context

        async def process(module: str, **variables: str) -> str:
            return (await enter(service_process(module, {**common, **variables}))).address

        harness = await enter(open_harness(postgres_dsn))
        found = Target(harness, Hostile(), CountingAgent(protected=True), EchoAgent("payroll"))
        for agent in (found.hostile, found.counting, found.payroll):
            await harness.add_agent(agent, auth=inside)
        memory = await process("bos_memory", BOS_MEMORY_STORE_URL=postgres_dsn, **people)
        settings = gateway_settings(
            harness,
            run_token_private_key=private,
            memory_target=memory,
            run_timeout_s=3600,
            agent_timeout_s=3600,
            approval_timeout_s=86400,
            lease_s=60,
        )
        gateway = await process("bos_gateway", **settings, **people)
        common["BOS_AUTH_RUN_TOKEN_CHECK_TARGET"] = gateway
        mcp_db = await process(
            "bos_mcp_db",
            BOS_DATABASE_URL=f"sqlite:///{database}",
            BOS_DATABASE_ALLOWED_TABLES="orders,salaries",
        )
        found.mcp_url = f"http://{mcp_db}/mcp"
        for name, address in {
            **{"gateway": gateway, "memory": memory, "planner": await process("bos_planner")},
            **{"sandbox": await process("bos_sandbox")},
            **harness.agent_targets,
        }.items():
            found.channels[name] = await enter(grpc.aio.insecure_channel(address))
        yield found


def by(caller: Any) -> dict[str, Any]:
    return {"metadata": caller, "timeout": _TIMEOUT_S}


@asynccontextmanager
async def at_work(target: Target, caller: Any) -> AsyncIterator[str]:
    """While the agent works for a step of the caller's; yields the run."""
    proposing = step("b", "counting", "mark it")
    proposing.tools.append("leave_mark")
    target.harness.planner.steps = [step("a", "hostile")] + [proposing] * (caller == ANALYST)
    target.hostile.started.clear()
    request = AskStreamRequest(request=AgentRequest(question="What is new?"))
    call = target.runs.AskStream(request, metadata=caller, timeout=3600)
    message: Any = await call.read()
    await target.hostile.started.wait()
    try:
        yield message.event.run_id
    finally:
        call.cancel()


async def approval_of(target: Target) -> str:
    """What the analyst's run waits for."""
    decisions = ApprovalServiceStub(target.channels["gateway"])
    async with asyncio.timeout(_TIMEOUT_S):
        while True:
            listed = await decisions.ListApprovals(ListApprovalsRequest(), **by(ANALYST))
            if listed.approvals:
                return str(listed.approvals[0].approval_id)
            await asyncio.sleep(0.05)


def calls_of(target: Target, run: str, approval: str, how: dict[str, Any]) -> dict[str, Any]:
    """What the agent wants beyond its step: ``tests/isolation`` tries every RPC."""
    at = target.channels
    turns, agent = MemoryTurnServiceStub(at["memory"]), AgentServiceStub(at["counting"])
    turn = RecordTurnRequest(user_id=USER, run_id=run, conversation_id="talk", question="Lies?")
    turn.ask_time.GetCurrentTime()
    turn.answer_time.GetCurrentTime()
    approve = RespondApprovalRequest(approval_id=approval, decision=APPROVAL_DECISION_APPROVE)
    own = TaskMetadata(user_id=USER, run_id=run, step_key=f"{run}/0/a")
    foreign = TaskMetadata(user_id="eve", run_id=run, step_key=f"{run}/0/b")
    return {
        "cancel its run": target.runs.CancelRun(CancelRunRequest(run_id=run), **how),
        "ask": target.runs.Ask(AskRequest(request=AgentRequest(question="Why?")), **how),
        "approve": ApprovalServiceStub(at["gateway"]).RespondApproval(approve, **how),
        "read a turn": turns.OpenTurn(OpenTurnRequest(user_id=USER, max_messages=9), **how),
        "write a turn": turns.RecordTurn(turn, **how),
        "planner": PlannerServiceStub(at["planner"]).MakePlan(
            MakePlanRequest(question="Why?"), **how
        ),
        **{
            f"step of {metadata.user_id} at an agent": agent.Execute(
                ExecuteRequest(input=AgentInput(task="mark it", metadata=metadata)), **how
            )
            for metadata in (own, foreign)
        },
    }


async def outcome(call: Any) -> grpc.StatusCode:
    try:
        await (call.read() if hasattr(call, "read") else call)
    except grpc.aio.AioRpcError as error:
        return error.code()
    finally:
        call.cancel()
    return grpc.StatusCode.OK


async def query(target: Target, sql: str) -> str:
    """What mcp_db answers to the agent's token: the status of a refusal, or the reply as text."""
    async with httpx2.AsyncClient(headers=dict(target.metadata), timeout=_TIMEOUT_S) as http:
        reply = await http.post(target.mcp_url, json={})
        if reply.status_code in (401, 503):
            return str(reply.status_code)
        transport = streamable_http_client(target.mcp_url, http_client=http)
        try:
            async with McpClient(transport) as client:
                answer = await client.call_tool("mcp_db_query", {"query": sql})
        except Exception:
            # The token may end between two of the session's requests.
            reply = await http.post(target.mcp_url, json={})
            if reply.status_code in (401, 503):
                return str(reply.status_code)
            raise
    return json.dumps(answer.structured_content)


async def run_program(target: Target) -> grpc.StatusCode:
    sandbox = SandboxServiceStub(target.channels["sandbox"])
    return await outcome(sandbox.RunProgram(RunProgramRequest(code="1 + 1"), **by(target.metadata)))


async def until(ask: Callable[[], Awaitable[object]], wanted: object) -> None:
    """Ask until the answer is the one that is wanted: what was true is remembered for a moment."""
    async with asyncio.timeout(60):
        while await ask() != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.requirement("C-05")
async def test_agent_gets_nothing_beyond_its_step_and_while_it_lasts(target: Target) -> None:
    async with at_work(target, ANALYST) as run:
        claims = jwt.decode(target.hostile.token, options={"verify_signature": False})
        assert (set(claims["aud"]), claims["groups"]) == (GRANTED, ["analysts"])
        approval = await approval_of(target)
        as_access_token = (("authorization", f"Bearer {target.hostile.token}"),)
        for way in (target.metadata, as_access_token):
            calls = calls_of(target, run, approval, by(way))
            got = {name: await outcome(call) for name, call in calls.items()}
            refused = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
            assert {name: code for name, code in got.items() if code not in refused} == {}, way
        # What it came for has not happened, and what it was made for works.
        decisions = ApprovalServiceStub(target.channels["gateway"])
        request = GetApprovalRequest(approval_id=approval)
        found = await decisions.GetApproval(request, **by(ANALYST))
        assert found.approval.status == APPROVAL_STATUS_PENDING
        assert not target.counting.effects
        people = MemoryServiceStub(target.channels["memory"])
        talks = await people.ListConversations(ListConversationsRequest(), **by(ANALYST))
        assert not talks.conversations
        assert "tea" in await query(target, READS)
        assert await run_program(target) == grpc.StatusCode.OK
        # The token itself is good for an hour, and its run goes on.
        target.hostile.release.set()
        await until(lambda: query(target, READS), "401")
        await until(lambda: run_program(target), grpc.StatusCode.UNAUTHENTICATED)
        run_now = await target.runs.GetRun(GetRunRequest(run_id=run), **by(ANALYST))
        assert run_now.run.status == RUN_STATUS_WAITING_FOR_APPROVAL


async def test_agent_reads_only_what_the_groups_of_its_user_may(target: Target) -> None:
    for caller, reads, hidden in ((ANALYST, READS, HIDDEN), (HR, HIDDEN, READS)):
        async with at_work(target, caller):
            assert json.loads(await query(target, reads))["data"], caller
            answer = json.loads(await query(target, hidden))
            assert (answer["success"], answer["data"]) == (False, []), caller
    async with at_work(target, OUTSIDER):
        answer = json.loads(await query(target, READS))
        assert answer["error"]["reason"] == "NOTHING_READABLE"


async def test_agent_of_another_group_is_not_offered_or_called(target: Target) -> None:
    target.harness.planner.steps = [step("a", "payroll", "who earns most?")]
    asked = AskRequest(request=AgentRequest(question="Who earns most?"))
    forged = await target.runs.Ask(asked, **by(ANALYST))
    assert "payroll" not in {result.agent_name for result in forged.response.agent_results}
    offered = {card.name for made in target.harness.planner.requests for card in made.cards}
    assert offered == {"counting", "hostile"}
    assert not target.payroll.inputs
    member = await target.runs.Ask(asked, **by(HR))
    assert member.response.status != RUN_STATUS_FAILED
    assert len(target.payroll.inputs) == 1
