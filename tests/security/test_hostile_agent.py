"""An agent that lies: its card asks for every service, and it uses its token wherever it can.

Gateway, memory, identity, planner, mcp_db and sandbox are processes of their own, all with the keys
that verify run tokens. The agent is ours, and hands its token to the test, which attacks with it.
"""

from __future__ import annotations

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
from gateway_harness.harness import Harness, gateway_settings, open_harness
from mcp.client.client import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from bos.agent.v1 import (
    AgentInput,
    AgentResult,
    AgentServiceStub,
    DescribeRequest,
    ExecuteRequest,
    PrepareRequest,
    TaskMetadata,
)
from bos.composer.v1 import ComposeRequest, ComposerServiceStub
from bos.gateway.v1 import (
    APPROVAL_DECISION_APPROVE,
    APPROVAL_STATUS_PENDING,
    RUN_STATUS_WAITING_FOR_APPROVAL,
    AgentRequest,
    ApprovalServiceStub,
    AskRequest,
    AskStreamRequest,
    CancelRunRequest,
    GetApprovalRequest,
    GetRunRequest,
    ListAgentsRequest,
    ListApprovalsRequest,
    ListRunsRequest,
    OrchestratorServiceStub,
    PlanQuestionRequest,
    RespondApprovalRequest,
    WatchRunRequest,
)
from bos.identity.v1 import GetUserRequest, IdentityServiceStub, ListSessionsRequest
from bos.memory.v1 import (
    ExtractFactsRequest,
    GetLongTermMemoryRequest,
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

KEY = "the-static-key-of-ada"
USER = "ada"
WANTED = [
    *("gateway", "identity", "memory", "planner", "composer", "rest", "bos"),
    *("counting", "other", "mcp_db", "sandbox", "documents", "sql", "code", "rag", "*", ""),
]
GRANTED = {"hostile", "mcp_db", "sandbox"}
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
    """Everything that runs, with a user whose run the agent works for."""

    harness: Harness
    hostile: Hostile
    counting: CountingAgent
    other: EchoAgent
    channels: dict[str, grpc.aio.Channel] = field(default_factory=dict)
    mcp_url: str = ""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What the agent calls with."""
        return ((RUN_TOKEN_KEY, self.hostile.token),)


@pytest.fixture
async def target(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Target]:
    private, public = generate_keypair()
    key_file, database = tmp_path / "signing.pem", tmp_path / "company.db"
    key_file.write_text(generate_keypair()[0])
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(
            "CREATE TABLE customers (name TEXT); INSERT INTO customers VALUES ('Asha');"
        )
    # Every process has the keys, also those that must not use them.
    common = {"BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS": public}
    people = {"BOS_AUTH_STATIC_KEY": KEY, "BOS_AUTH_STATIC_KEY_USER": USER}
    inside = AuthSettings.load(static_key=None, run_token_public_keys=public)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context

        async def process(module: str, **variables: str) -> str:
            return (await enter(service_process(module, {**common, **variables}))).address

        harness = await enter(open_harness(postgres_dsn))
        found = Target(harness, Hostile(), CountingAgent(protected=True), EchoAgent("other"))
        for agent in (found.hostile, found.counting, found.other):
            await harness.add_agent(agent, auth=inside)
        proposing = step("b", "counting", "mark it")
        proposing.tools.append("leave_mark")
        harness.planner.steps = [step("a", "hostile"), proposing]
        memory = await process("bos_memory", BOS_MEMORY_STORE_URL=postgres_dsn, **people)
        identity = await process(
            "bos_identity",
            BOS_IDENTITY_STORE_URL=postgres_dsn,
            BOS_IDENTITY_SIGNING_KEY_FILES=json.dumps([str(key_file)]),
            **people,
        )
        planner, composer = await process("bos_planner"), await process("bos_composer")
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
        sandbox = await process("bos_sandbox")
        mcp_db = await process(
            "bos_mcp_db",
            BOS_DATABASE_URL=f"sqlite:///{database}",
            BOS_DATABASE_ALLOWED_TABLES="customers",
        )
        found.mcp_url = f"http://{mcp_db}/mcp"
        for name, address in {
            **{"gateway": gateway, "memory": memory, "identity": identity},
            **{"planner": planner, "composer": composer, "sandbox": sandbox},
            **harness.agent_targets,
        }.items():
            found.channels[name] = await enter(grpc.aio.insecure_channel(address))
        yield found


def as_ada() -> dict[str, Any]:
    return {"metadata": (("authorization", f"Bearer {KEY}"),), "timeout": _TIMEOUT_S}


@asynccontextmanager
async def at_work(target: Target) -> AsyncIterator[tuple[str, str]]:
    """While the agent works for a step of ada's; yields the run and what that waits for."""
    runs = OrchestratorServiceStub(target.channels["gateway"])
    decisions = ApprovalServiceStub(target.channels["gateway"])
    request = AskStreamRequest(request=AgentRequest(question="What is new?"))
    call = runs.AskStream(request, **{**as_ada(), "timeout": 3600})
    message: Any = await call.read()
    run_id = message.event.run_id
    while not message.event.HasField("approval_requested"):
        message = await call.read()
        assert message is not grpc.aio.EOF, run_id
    await target.hostile.started.wait()
    listed = await decisions.ListApprovals(ListApprovalsRequest(), **as_ada())
    (approval,) = listed.approvals
    try:
        yield run_id, approval.approval_id
    finally:
        call.cancel()


def calls_of(target: Target, run: str, approval: str, how: dict[str, Any]) -> dict[str, Any]:
    """Everything that the agent wants beyond its step."""
    at = target.channels
    runs, decisions = OrchestratorServiceStub(at["gateway"]), ApprovalServiceStub(at["gateway"])
    people, turns = MemoryServiceStub(at["memory"]), MemoryTurnServiceStub(at["memory"])
    identity, question = IdentityServiceStub(at["identity"]), AgentRequest(question="Why?")
    turn = RecordTurnRequest(user_id=USER, run_id=run, conversation_id="talk", question="Lies?")
    turn.ask_time.GetCurrentTime()
    turn.answer_time.GetCurrentTime()
    fact = ExtractFactsRequest(user_id=USER, question="My name is Mallory.")
    fact.ask_time.GetCurrentTime()
    approve = RespondApprovalRequest(approval_id=approval, decision=APPROVAL_DECISION_APPROVE)
    own = TaskMetadata(user_id=USER, run_id=run, step_key=f"{run}/0/a")
    foreign = TaskMetadata(user_id="eve", run_id=run, step_key=f"{run}/0/b")
    found: dict[str, Any] = {
        "list runs": runs.ListRuns(ListRunsRequest(), **how),
        "read its run": runs.GetRun(GetRunRequest(run_id=run), **how),
        "watch its run": runs.WatchRun(WatchRunRequest(run_id=run), **how),
        "cancel its run": runs.CancelRun(CancelRunRequest(run_id=run), **how),
        "list agents": runs.ListAgents(ListAgentsRequest(), **how),
        "plan": runs.PlanQuestion(PlanQuestionRequest(request=question), **how),
        "ask": runs.Ask(AskRequest(request=question), **how),
        "list approvals": decisions.ListApprovals(ListApprovalsRequest(), **how),
        "approve": decisions.RespondApproval(approve, **how),
        "read a turn": turns.OpenTurn(OpenTurnRequest(user_id=USER, max_messages=9), **how),
        "write a turn": turns.RecordTurn(turn, **how),
        "plant a fact": turns.ExtractFacts(fact, **how),
        "read memory": people.GetLongTermMemory(GetLongTermMemoryRequest(), **how),
        "read talks": people.ListConversations(ListConversationsRequest(), **how),
        "who is it": identity.GetUser(GetUserRequest(), **how),
        "sessions": identity.ListSessions(ListSessionsRequest(), **how),
        "planner": PlannerServiceStub(at["planner"]).MakePlan(
            MakePlanRequest(question="Why?"), **how
        ),
        "composer": ComposerServiceStub(at["composer"]).Compose(
            ComposeRequest(question="Why?"), **how
        ),
    }
    for name in ("counting", "other"):
        agent = AgentServiceStub(at[name])
        for whose, metadata in (("its own", own), ("another's", foreign)):
            request = ExecuteRequest(input=AgentInput(task="mark it", metadata=metadata))
            found[f"{whose} step at {name}"] = agent.Execute(request, **how)
        prepare = PrepareRequest(metadata=TaskMetadata(user_id=USER, run_id=run), question="?")
        found[f"have {name} prefetch"] = agent.Prepare(prepare, **how)
        found[f"card of {name}"] = agent.Describe(DescribeRequest(), **how)
    return found


async def outcome(call: Any) -> grpc.StatusCode:
    try:
        await (call.read() if hasattr(call, "read") else call)
    except grpc.aio.AioRpcError as error:
        return error.code()
    finally:
        call.cancel()
    return grpc.StatusCode.OK


async def query(target: Target) -> int:
    """What mcp_db says to the agent's token: the status of HTTP; 200 if the query was answered."""
    headers = {RUN_TOKEN_KEY: target.hostile.token}
    async with httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT_S) as http:
        reply = await http.post(target.mcp_url, json={})
        if reply.status_code in (401, 503):
            return reply.status_code
        transport = streamable_http_client(target.mcp_url, http_client=http)
        sql = {"query": "SELECT name FROM customers"}
        try:
            async with McpClient(transport) as client:
                answer = await client.call_tool("mcp_db_query", sql)
        except Exception:
            # The token may end between two of the session's requests.
            reply = await http.post(target.mcp_url, json={})
            if reply.status_code in (401, 503):
                return reply.status_code
            raise
    assert "Asha" in str(answer)
    return 200


async def run_program(target: Target) -> grpc.StatusCode:
    sandbox = SandboxServiceStub(target.channels["sandbox"])
    request = RunProgramRequest(code="1 + 1")
    return await outcome(sandbox.RunProgram(request, timeout=_TIMEOUT_S, metadata=target.metadata))


async def until(ask: Callable[[], Awaitable[object]], wanted: object) -> None:
    """Ask until the answer is the one that is wanted: what was true is remembered for a moment."""
    async with asyncio.timeout(60):
        while await ask() != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.requirement("C-05")
async def test_it_gets_nothing_beyond_its_step(target: Target) -> None:
    async with at_work(target) as (run, approval):
        claims = jwt.decode(target.hostile.token, options={"verify_signature": False})
        assert set(claims["aud"]) == GRANTED
        ways = {
            "run token": {"metadata": target.metadata, "timeout": _TIMEOUT_S},
            "as an access token": {
                "metadata": (("authorization", f"Bearer {target.hostile.token}"),),
                "timeout": _TIMEOUT_S,
            },
        }
        for way, how in ways.items():
            got = {
                name: await outcome(call)
                for name, call in calls_of(target, run, approval, how).items()
            }
            refused = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
            assert {name: code for name, code in got.items() if code not in refused} == {}, way
        # What it came for has not happened, and what it was made for works.
        decisions = ApprovalServiceStub(target.channels["gateway"])
        request = GetApprovalRequest(approval_id=approval)
        found = await decisions.GetApproval(request, **as_ada())
        assert found.approval.status == APPROVAL_STATUS_PENDING
        assert not target.counting.effects
        assert not target.other.inputs
        people = MemoryServiceStub(target.channels["memory"])
        talks = await people.ListConversations(ListConversationsRequest(), **as_ada())
        assert not talks.conversations
        assert await query(target) == 200
        assert await run_program(target) == grpc.StatusCode.OK


async def test_its_token_ends_with_its_step(target: Target) -> None:
    async with at_work(target) as (run, _):
        assert await query(target) == 200
        assert await run_program(target) == grpc.StatusCode.OK
        target.hostile.release.set()
        # The token itself is good for an hour, and its run goes on.
        await until(lambda: query(target), 401)
        await until(lambda: run_program(target), grpc.StatusCode.UNAUTHENTICATED)
        runs = OrchestratorServiceStub(target.channels["gateway"])
        found = await runs.GetRun(GetRunRequest(run_id=run), **as_ada())
        assert found.run.status == RUN_STATUS_WAITING_FOR_APPROVAL
