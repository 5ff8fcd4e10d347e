"""An agent that lies, and members of groups that reach for what is for another by its token.

Its card asks for every service. Gateway, memory, identity, planner, mcp_db and sandbox are
processes of their own, all with the keys that verify run tokens. The agent is ours, and hands its
token to the test, which attacks with it; the test sets the plan.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import Any

import grpc
import httpx2
import jwt
import pytest
import pytest_asyncio
from gateway_harness.callers import ISSUER, signed_in, token
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
    RUN_STATUS_FAILED,
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
from bos_postgres import create_database
from bos_testkit.agents import CountingAgent, EchoAgent, SlowAgent
from bos_testkit.plans import step
from bos_testkit.postgres import PostgresServer
from bos_testkit.processes import service_process

pytestmark = [
    pytest.mark.security,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]

KEY = "the-static-key-of-ada"
USER = "ada"
GROUPS = {
    "clerks": {"tables": {"main": ["customers"]}},
    "analysts": {"tables": {"main": ["orders"]}},
    "people_team": {"agents": ["payroll"], "tables": {"main": ["salar*"]}},
}
EVERYBODY = {"agents": ["hostile", "counting"], "tools": ["counting.*"]}
ADA = (("authorization", f"Bearer {KEY}"),)
ANALYST, HR = token("ann", "analysts"), token("hal", "people_team")
OUTSIDER = token("eve", "unheard-of")
WANTED = [
    *("gateway", "identity", "memory", "planner", "composer", "rest", "bos"),
    *("counting", "payroll", "mcp_db", "sandbox", "documents", "sql", "code", "rag", "*", ""),
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
    payroll: EchoAgent
    channels: dict[str, grpc.aio.Channel] = field(default_factory=dict)
    mcp_url: str = ""

    @property
    def runs(self) -> Any:
        return OrchestratorServiceStub(self.channels["gateway"])

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What the agent calls with."""
        return ((RUN_TOKEN_KEY, self.hostile.token),)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Target]:
    postgres_dsn = await create_database(postgres_server.dsn(), f"hostile_{secrets.token_hex(6)}")
    tmp_path = tmp_path_factory.mktemp("hostile")
    private, public = generate_keypair()
    key_file, database = tmp_path / "signing.pem", tmp_path / "company.db"
    key_file.write_text(generate_keypair()[0])
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(
            "CREATE TABLE customers (name TEXT); INSERT INTO customers VALUES ('Asha');"
            "CREATE TABLE orders (item TEXT); INSERT INTO orders VALUES ('tea');"
            "CREATE TABLE salaries (name TEXT); INSERT INTO salaries VALUES ('Asha earns most');"
        )
    # Every process has the keys, also those that must not use them.
    common = {
        "BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS": public,
        "BOS_ACCESS_GROUPS": json.dumps(GROUPS),
        "BOS_ACCESS_EVERYBODY": json.dumps(EVERYBODY),
    }
    people = {"BOS_AUTH_STATIC_KEY": KEY, "BOS_AUTH_STATIC_KEY_USER": USER}
    members = {
        "BOS_AUTH_STATIC_KEY_GROUPS": json.dumps(["clerks"]),
        "BOS_AUTH_ISSUER": ISSUER,
        "BOS_AUTH_JWKS_FILE": str(signed_in(tmp_path).jwks_file),
    }
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
        gateway = await process("bos_gateway", **settings, **people, **members)
        common["BOS_AUTH_RUN_TOKEN_CHECK_TARGET"] = gateway
        sandbox = await process("bos_sandbox")
        mcp_db = await process(
            "bos_mcp_db",
            BOS_DATABASE_URL=f"sqlite:///{database}",
            BOS_DATABASE_ALLOWED_TABLES="customers,orders,salaries",
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
    return {"metadata": ADA, "timeout": _TIMEOUT_S}


@asynccontextmanager
async def at_work(target: Target, caller: Any) -> AsyncIterator[str]:
    """While the agent works for a step of the caller's, a step of ada's proposes; the run's id."""
    target.harness.planner.steps = [step("a", "hostile")]
    if caller is ADA:
        proposing = step("b", "counting", "mark it")
        proposing.tools.append("leave_mark")
        target.harness.planner.steps.append(proposing)
    target.hostile.started.clear()
    target.hostile.release.clear()
    request = AskStreamRequest(request=AgentRequest(question="What is new?"))
    call = target.runs.AskStream(request, metadata=caller, timeout=3600)
    message: Any = await call.read()
    run_id = message.event.run_id
    await target.hostile.started.wait()
    try:
        yield run_id
    finally:
        target.hostile.release.set()
        call.cancel()
        cancel = CancelRunRequest(run_id=run_id)
        await target.runs.CancelRun(cancel, metadata=caller, timeout=_TIMEOUT_S)


async def proposed(target: Target, run: str) -> str:
    """The one approval that a run of ada's asks for, once there is one."""
    decisions = ApprovalServiceStub(target.channels["gateway"])
    request = ListApprovalsRequest(status=APPROVAL_STATUS_PENDING)
    async with asyncio.timeout(_TIMEOUT_S):
        while True:
            listed = (await decisions.ListApprovals(request, **as_ada())).approvals
            if own := [each.approval_id for each in listed if each.run_id == run]:
                (approval_id,) = own
                return str(approval_id)
            await asyncio.sleep(0.05)


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
    for name in ("counting", "payroll"):
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
    target.payroll.inputs.clear()
    async with at_work(target, ADA) as run:
        approval = await proposed(target, run)
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
        assert not target.payroll.inputs
        people = MemoryServiceStub(target.channels["memory"])
        talks = await people.ListConversations(ListConversationsRequest(), **as_ada())
        assert "talk" not in {each.conversation_id for each in talks.conversations}
        assert await query(target) == 200
        assert await run_program(target) == grpc.StatusCode.OK


async def test_its_token_ends_with_its_step(target: Target) -> None:
    async with at_work(target, ADA) as run:
        await proposed(target, run)
        assert await query(target) == 200
        assert await run_program(target) == grpc.StatusCode.OK
        target.hostile.release.set()
        # The token itself is good for an hour, and its run goes on.
        await until(lambda: query(target), 401)
        await until(lambda: run_program(target), grpc.StatusCode.UNAUTHENTICATED)
        found = await target.runs.GetRun(GetRunRequest(run_id=run), **as_ada())
        assert found.run.status == RUN_STATUS_WAITING_FOR_APPROVAL


@asynccontextmanager
async def database(target: Target) -> AsyncIterator[McpClient]:
    headers = {RUN_TOKEN_KEY: target.hostile.token}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT_S) as http,
        McpClient(streamable_http_client(target.mcp_url, http_client=http)) as client,
    ):
        yield client


async def said(client: McpClient, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = await client.call_tool(tool, arguments)
    found: dict[str, Any] = answer.structured_content or {}
    return found


async def test_agent_of_another_group_is_not_offered_or_called(
    target: Target,
) -> None:
    target.harness.planner.steps = [step("a", "payroll", "who earns most?")]
    target.harness.planner.requests.clear()
    target.payroll.inputs.clear()
    request = AgentRequest(question="Who earns most?")
    forged = await target.runs.Ask(
        AskRequest(request=request), timeout=_TIMEOUT_S, metadata=ANALYST
    )
    assert "payroll" not in {result.agent_name for result in forged.response.agent_results}
    dry = await target.runs.PlanQuestion(
        PlanQuestionRequest(request=request), timeout=_TIMEOUT_S, metadata=ANALYST
    )
    assert "payroll" not in {step.agent for step in dry.plan.steps}
    offered = [[card.name for card in made.cards] for made in target.harness.planner.requests]
    assert [sorted(names) for names in offered] == [["counting", "hostile"]] * 2
    listed = await target.runs.ListAgents(ListAgentsRequest(), metadata=ANALYST)
    assert {each.card.name for each in listed.agents} == {"counting", "hostile"}
    assert not target.payroll.inputs
    member = await target.runs.Ask(AskRequest(request=request), timeout=_TIMEOUT_S, metadata=HR)
    assert member.response.status != RUN_STATUS_FAILED
    assert len(target.payroll.inputs) == 1


async def test_agent_reads_only_what_its_user_may_read(target: Target) -> None:
    wants = [
        "SELECT name FROM salaries",
        "SELECT o.item, s.name FROM orders AS o CROSS JOIN salaries AS s",
        "WITH s AS (SELECT * FROM main.salaries) SELECT * FROM s",
        'SELECT (SELECT max(name) FROM "salaries") AS name, item FROM orders',
        "SELECT item FROM orders UNION SELECT name FROM salaries",
        "SELECT sql FROM sqlite_master",
    ]
    async with at_work(target, ANALYST), database(target) as client:
        for query in wants:
            answer = await said(client, "mcp_db_query", query=query)
            assert (answer["success"], answer["data"]) == (False, []), query
        listed = await said(client, "mcp_db_schema")
        assert [table["name"] for table in listed["tables"]] == ["orders"]
        for tables in (["salaries"], ["main.salaries"], ["orders", "salaries"]):
            answer = await said(client, "mcp_db_schema", tables=tables)
            assert (answer["success"], answer["tables"]) == (False, [])
            assert "Asha" not in str(answer)
        answer = await said(client, "mcp_db_query", query="SELECT item FROM orders")
        assert answer["data"] == [["tea"]]
    async with at_work(target, HR), database(target) as client:
        answer = await said(client, "mcp_db_query", query="SELECT name FROM salaries")
        assert answer["data"] == [["Asha earns most"]]
        assert not (await said(client, "mcp_db_query", query="SELECT item FROM orders"))["success"]


async def test_users_without_groups_read_nothing(target: Target) -> None:
    async with at_work(target, OUTSIDER), database(target) as client:
        for tool, arguments in (
            ("mcp_db_schema", {}),
            ("mcp_db_query", {"query": "SELECT item FROM orders"}),
        ):
            answer = await said(client, tool, **arguments)
            assert answer["error"]["reason"] == "NOTHING_READABLE"


async def test_groups_cannot_be_written_into_a_token(target: Target) -> None:
    async with at_work(target, ANALYST):
        its = target.hostile.token
        head, claims, signature = its.split(".")
        content = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        assert content["groups"] == ["analysts"]
        content["groups"] = ["people_team"]
        forged = base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()
        async with httpx2.AsyncClient(timeout=_TIMEOUT_S) as http:
            for credential, known in ((f"{head}.{forged}.{signature}", False), (its, True)):
                reply = await http.post(
                    target.mcp_url, json={}, headers={RUN_TOKEN_KEY: credential}
                )
                assert (reply.status_code != 401) is known
