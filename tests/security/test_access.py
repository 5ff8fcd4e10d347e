"""Members of one group reach for what is for another: through planners, agents and their tokens.

Gateway and mcp_db are processes of their own. Planner and agent are ours: the test sets the plan,
and the agent hands its token to the test, which reads with it what it can.
"""

import base64
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from gateway_harness.callers import ISSUER, signed_in, token
from gateway_harness.harness import Harness, gateway_settings, open_harness
from mcp.client.client import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from bos.agent.v1 import AgentResult
from bos.gateway.v1 import (
    RUN_STATUS_FAILED,
    AgentRequest,
    AskRequest,
    AskStreamRequest,
    ListAgentsRequest,
    OrchestratorServiceStub,
    PlanQuestionRequest,
)
from bos_agentkit import AgentTask, agent_card
from bos_chassis.auth.callers import RUN_TOKEN_KEY, current_run_token, generate_keypair
from bos_chassis.settings import AuthSettings
from bos_errors import from_rpc_error
from bos_testkit.agents import EchoAgent, SlowAgent
from bos_testkit.plans import step
from bos_testkit.processes import service_process

pytestmark = [pytest.mark.security, pytest.mark.timeout(900)]

GROUPS = {
    "analysts": {"tables": {"main": ["orders"]}},
    "people_team": {"agents": ["payroll"], "tables": {"main": ["salar*"]}},
}
EVERYBODY = {"agents": ["reader"]}
ANALYST, HR = token("ann", "analysts"), token("hal", "people_team")
OUTSIDER = token("eve", "unheard-of")
_TIMEOUT_S = 60.0


class Reader(SlowAgent):
    """Records its input, and works until the test ends it."""

    token = ""

    def __init__(self) -> None:
        card = agent_card("reader", "Reads.", downstream_audiences=["mcp_db"])
        super().__init__("reader", card=card)

    async def behave(self, task: AgentTask) -> AgentResult:
        """Keep the token, then wait."""
        self.token = current_run_token() or ""
        return await super().behave(task)


@dataclass
class Target:
    """What runs, and what the test holds of it."""

    harness: Harness
    reader: Reader
    payroll: EchoAgent
    gateway: grpc.aio.Channel
    mcp_url: str

    @property
    def runs(self) -> Any:
        return OrchestratorServiceStub(self.gateway)


@pytest.fixture
async def target(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Target]:
    private, public = generate_keypair()
    database = tmp_path / "company.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(
            "CREATE TABLE orders (item TEXT); INSERT INTO orders VALUES ('tea');"
            "CREATE TABLE salaries (name TEXT); INSERT INTO salaries VALUES ('Asha earns most');"
        )
    common = {
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
        reader, payroll = Reader(), EchoAgent("payroll")
        for agent in (reader, payroll):
            await harness.add_agent(agent, auth=inside)
        settings = gateway_settings(
            harness,
            run_token_private_key=private,
            run_timeout_s=3600,
            agent_timeout_s=3600,
            lease_s=60,
        )
        gateway = await process("bos_gateway", **settings, **people)
        mcp_db = await process(
            "bos_mcp_db",
            BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS=public,
            BOS_AUTH_RUN_TOKEN_CHECK_TARGET=gateway,
            BOS_DATABASE_URL=f"sqlite:///{database}",
            BOS_DATABASE_ALLOWED_TABLES="orders,salaries",
        )
        channel = await enter(grpc.aio.insecure_channel(gateway))
        yield Target(harness, reader, payroll, channel, f"http://{mcp_db}/mcp")


@asynccontextmanager
async def at_work(target: Target, caller: Any) -> AsyncIterator[str]:
    """While the agent works for a step of the caller's; yields its token."""
    target.harness.planner.steps = [step("a", "reader")]
    target.reader.started.clear()
    request = AskStreamRequest(request=AgentRequest(question="What is there?"))
    call = target.runs.AskStream(request, timeout=3600, metadata=caller)
    assert await call.read()
    await target.reader.started.wait()
    try:
        yield target.reader.token
    finally:
        call.cancel()


@asynccontextmanager
async def database(target: Target, run_token: str) -> AsyncIterator[McpClient]:
    headers = {RUN_TOKEN_KEY: run_token}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT_S) as http,
        McpClient(streamable_http_client(target.mcp_url, http_client=http)) as client,
    ):
        yield client


async def said(client: McpClient, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = await client.call_tool(tool, arguments)
    found: dict[str, Any] = answer.structured_content or {}
    return found


async def refusal(call: Any) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return from_rpc_error(raised.value)


async def test_agent_of_another_group_is_not_offered_or_called(
    target: Target,
) -> None:
    target.harness.planner.steps = [step("a", "payroll", "who earns most?")]
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
    assert offered == [["reader"], ["reader"]]
    listed = await target.runs.ListAgents(ListAgentsRequest(), metadata=ANALYST)
    assert [each.card.name for each in listed.agents] == ["reader"]
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
    async with at_work(target, ANALYST) as its, database(target, its) as client:
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
    async with at_work(target, HR) as its, database(target, its) as client:
        answer = await said(client, "mcp_db_query", query="SELECT name FROM salaries")
        assert answer["data"] == [["Asha earns most"]]
        assert not (await said(client, "mcp_db_query", query="SELECT item FROM orders"))["success"]


async def test_users_without_groups_read_nothing(target: Target) -> None:
    async with at_work(target, OUTSIDER) as its, database(target, its) as client:
        for tool, arguments in (
            ("mcp_db_schema", {}),
            ("mcp_db_query", {"query": "SELECT item FROM orders"}),
        ):
            answer = await said(client, tool, **arguments)
            assert answer["error"]["reason"] == "NOTHING_READABLE"


async def test_groups_cannot_be_written_into_a_token(target: Target) -> None:
    async with at_work(target, ANALYST) as its:
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
