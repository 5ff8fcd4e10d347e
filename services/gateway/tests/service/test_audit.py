"""Audit trail of the gateway: each action with its entry, or neither; no content."""

import asyncio
import hashlib
import json
import os
import sys
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from gateway_harness.answering import approvals, asked, refusal, respond
from gateway_harness.callers import signed_in, token
from gateway_harness.harness import ERASE, Client, Harness, gateway_process
from gateway_harness.receiver import KEYS
from prometheus_client import CollectorRegistry

from bos.agent.v1 import AgentResult
from bos.common.v1 import DatabaseQuery
from bos.gateway.v1 import (
    APPROVAL_DECISION_APPROVE,
    APPROVAL_DECISION_DENY,
    RUN_STATUS_FAILED,
    AgentRequest,
    AskRequest,
    AskStreamRequest,
    CancelRunRequest,
    CancelUserRunRequest,
    CreateVerifiedQueryRequest,
    CreateWebhookRequest,
    DeleteVerifiedQueryRequest,
    DeleteWebhookRequest,
    DownloadFileRequest,
    GetApprovalRequest,
    GetSpendRequest,
    GetStorageRequest,
    GetUserRunRequest,
    ListUserApprovalsRequest,
    ListUserRunsRequest,
    OperatorServiceStub,
    SubmitRunRequest,
    VerifiedQueryServiceStub,
    WebhookServiceStub,
)
from bos_agentkit import AgentTask, agent_card, succeeded, tool
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.run_log.maintenance import Maintenance
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect, open_database
from bos_testkit.agents import EchoAgent, FileAgent, RecordingAgent, SlowAgent
from bos_testkit.audit import (
    AUDITED,
    audit_entries,
    audited,
    refused_entries,
    sealed_trail,
    until_audited,
)
from bos_testkit.deploy import DeployAgent
from bos_testkit.plans import step

APPROVE, DENY = APPROVAL_DECISION_APPROVE, APPROVAL_DECISION_DENY
ADA, MAX = token("ada"), token("max", roles=("user", "approver"))
OPS = token("ops", roles=("operator",))
FOUR_EYES = {"deploy.*": {"roles": ["approver"], "four_eyes": True}}
PLANTED = "planted"
FILE = f"{PLANTED} bytes".encode()


class Reader(RecordingAgent):
    """Reads by a tool, and says so."""

    def __init__(self) -> None:
        @tool(description="Runs a query.")
        async def query(statement: str) -> dict[str, Any]:
            return {"rows": [statement]}

        self.tools = (query,)
        super().__init__("reader", card=agent_card("reader", "Reads.", tools=self.tools))

    async def behave(self, task: AgentTask) -> AgentResult:
        data = await task.tools.call("query", statement=f"SELECT '{PLANTED}'")
        return succeeded(task, answer=PLANTED, data=data)


class Liar(RecordingAgent):
    """May read, and says nothing of it."""

    def __init__(self) -> None:
        card = agent_card("liar", "Reads.", downstream_audiences=["mcp_db"])
        super().__init__("liar", card=card)


class Querying(RecordingAgent):
    """Says that it has run a query."""

    async def behave(self, task: AgentTask) -> AgentResult:
        query = DatabaseQuery(database="company", dialect="postgres", tables=[PLANTED])
        query.sql = f"SELECT * FROM {PLANTED}"
        return succeeded(task, answer=PLANTED, query=query)


@pytest.fixture
async def agent(harness: Harness) -> DeployAgent:
    agent = DeployAgent()
    await harness.add_agent(agent)
    await harness.add_agent(FileAgent("files", {f"{PLANTED}.txt": ("text/plain", FILE)}))
    await harness.add_agent(SlowAgent("slow"))
    await harness.add_agent(EchoAgent("echo"))
    await harness.add_agent(Querying("querying"))
    made = step(f"{PLANTED}_step", "deploy", "deploy shop 1.2")
    made.tools.extend(["check_deploy_status", "trigger_deployment"])
    harness.planner.steps = [made]
    return agent


def gateway_of(harness: Harness, folder: Path, **more: Any) -> AbstractAsyncContextManager[Client]:
    """A gateway with people who signed in, that keeps its lease however busy the machine is."""
    own = {"lease_s": 15.0, "lease_renewal_s": 1.0, "artefacts_url": (folder / "a").as_uri()}
    return harness.gateway(**{"auth": signed_in(folder), **KEYS, **own, **more})


async def ask(gateway: Client, **request: Any) -> Any:
    asked = AgentRequest(question=f"{PLANTED}?", conversation_id=PLANTED, **request)
    return (await gateway.stub.Ask(AskRequest(request=asked), timeout=60, metadata=ADA)).response


async def slow_run(harness: Harness, gateway: Client) -> str:
    harness.planner.steps = [step("a", "slow")]
    request = AskStreamRequest(request=AgentRequest(question=f"{PLANTED}?"))
    async for message in gateway.stub.AskStream(request, timeout=60, metadata=ADA):
        return str(message.event.run_id)
    raise AssertionError("no run")


async def do(harness: Harness, gateway: Client, method: str) -> tuple[str, str]:
    """Do it once; returns who did it, and to what."""
    agents = {"DownloadFile": "files", "CreateVerifiedQuery": "querying"}
    agents |= {"Ask": "echo", "SubmitRun": "echo", "DeleteVerifiedQuery": "querying"}
    if method in agents:
        harness.planner.steps = [step("a", agents[method], PLANTED)]
    how: dict[str, Any] = {"timeout": 60, "metadata": ADA}
    hooks: Any = WebhookServiceStub(gateway.channel)
    queries: Any = VerifiedQueryServiceStub(gateway.channel)
    operator: Any = OperatorServiceStub(gateway.channel)
    match method:
        case "Ask":
            return "ada", (await ask(gateway)).run_id
        case "SubmitRun":
            submitted = SubmitRunRequest(request=AgentRequest(question=f"{PLANTED}?"))
            return "ada", (await gateway.stub.SubmitRun(submitted, **how)).run.run_id
        case "CancelRun":
            run_id = await slow_run(harness, gateway)
            await gateway.stub.CancelRun(CancelRunRequest(run_id=run_id, reason=PLANTED), **how)
            return "ada", run_id
        case "DownloadFile":
            run_id = (await ask(gateway)).run_id
            wanted = DownloadFileRequest(run_id=run_id, digest=hashlib.sha256(FILE).hexdigest())
            parts = [part.content async for part in gateway.stub.DownloadFile(wanted, **how)]
            assert b"".join(parts) == FILE
            return "ada", run_id
        case "CreateWebhook" | "DeleteWebhook":
            url = f"https://example.com/{PLANTED}"
            made = await hooks.CreateWebhook(CreateWebhookRequest(url=url), **how)
            webhook_id = str(made.webhook.webhook_id)
            if method == "DeleteWebhook":
                await hooks.DeleteWebhook(DeleteWebhookRequest(webhook_id=webhook_id), **how)
            return "ada", webhook_id
        case "CreateVerifiedQuery" | "DeleteVerifiedQuery":
            request = CreateVerifiedQueryRequest(run_id=(await ask(gateway)).run_id)
            query_id = (await queries.CreateVerifiedQuery(request, **how)).verified_query.query_id
            if method == "DeleteVerifiedQuery":
                gone = DeleteVerifiedQueryRequest(query_id=query_id)
                await queries.DeleteVerifiedQuery(gone, **how)
            return "ada", query_id
        case "AskStream" | "RespondApproval":
            approval = await asked(gateway, ADA)
            if method == "AskStream":
                return "ada", approval.run_id
            await respond(gateway, approval, APPROVE, MAX)
            return "max", approval.approval_id
        case _:
            run_id = await slow_run(harness, gateway)
            looked_at: dict[str, tuple[Any, str]] = {
                "ListUserRuns": (ListUserRunsRequest(owner_id="ada"), "ada"),
                "GetUserRun": (GetUserRunRequest(run_id=run_id), run_id),
                "CancelUserRun": (CancelUserRunRequest(run_id=run_id, reason=PLANTED), run_id),
                "ListUserApprovals": (ListUserApprovalsRequest(), ""),
                "GetSpend": (GetSpendRequest(), ""),
                "GetStorage": (GetStorageRequest(), ""),
            }
            asked_for, target = looked_at[method]
            await getattr(operator, method)(asked_for, timeout=60, metadata=OPS)
            return "ops", target


async def test_each_deed_leaves_its_entry_and_no_content(
    harness: Harness, agent: DeployAgent, tmp_path: Path
) -> None:
    rules = {"deploy.*": {"roles": ["approver"]}}
    asking = list(harness.planner.steps)
    async with gateway_of(harness, tmp_path, approvers=rules) as gateway:
        for rpc in sorted(audited("gateway")):
            harness.planner.steps = asking
            actor, target = await do(harness, gateway, rpc.rpartition("/")[2])
            found = await audit_entries(harness.dsn, SCHEMA, AUDITED[rpc])
            (entry,) = [each for each in found if each["target"] == target]
            assert (entry["actor"], entry["actor_kind"]) == (actor, "user"), rpc
    assert PLANTED not in json.dumps(await audit_entries(harness.dsn, SCHEMA))
    await sealed_trail(harness.dsn, SCHEMA)


_COUNTED = """
SELECT (SELECT count(*) FROM runs) AS runs, (SELECT count(*) FROM run_inputs) AS inputs,
       (SELECT count(*) FROM webhooks) AS webhooks,
       (SELECT count(*) FROM verified_queries) AS verified,
       (SELECT count(*) FROM approvals WHERE status = 1) AS pending
"""


async def test_a_change_whose_audit_entry_fails_is_not_made(
    harness: Harness, agent: DeployAgent, tmp_path: Path
) -> None:
    rules = {"deploy.*": {"roles": ["approver"]}}
    asking = list(harness.planner.steps)
    async with gateway_of(harness, tmp_path, approvers=rules) as gateway:
        for rpc in sorted(audited("gateway")):
            async with connect(harness.dsn, schema=SCHEMA) as session:
                before = dict(await session.fetchrow(_COUNTED) or {})
            entries = await audit_entries(harness.dsn, SCHEMA, AUDITED[rpc])
            harness.planner.steps = asking
            async with refused_entries(harness.dsn, SCHEMA, AUDITED[rpc]):
                with pytest.raises(grpc.aio.AioRpcError):
                    await do(harness, gateway, rpc.rpartition("/")[2])
            found = await audit_entries(harness.dsn, SCHEMA, AUDITED[rpc])
            assert len(found) == len(entries), rpc
            async with connect(harness.dsn, schema=SCHEMA) as session:
                after = dict(await session.fetchrow(_COUNTED) or {})
            # Some deeds need an earlier one, which is made.
            made = {
                "runs": not AUDITED[rpc].startswith(("question.", "webhook.")),
                "inputs": 0,
                "webhooks": rpc.endswith("/DeleteWebhook"),
                "verified": rpc.endswith("/DeleteVerifiedQuery"),
                "pending": rpc.endswith("/RespondApproval"),
            }
            assert {name: after[name] - before[name] for name in made} == made, rpc
    assert not agent.effects


async def test_audit_of_an_answer_holds_display_and_performed_actions(
    harness: Harness, agent: DeployAgent, tmp_path: Path
) -> None:
    async with gateway_of(harness, tmp_path, approvers=FOUR_EYES) as gateway:
        approval = await asked(gateway, ADA)
        get = GetApprovalRequest(approval_id=approval.approval_id)
        seen = (await approvals(gateway).GetApproval(get, timeout=60, metadata=MAX)).approval
        error = await refusal(respond(gateway, approval, APPROVE, ADA))
        assert error.reason == "FOUR_EYES"
        await respond(gateway, approval, APPROVE, MAX)
        await respond(gateway, approval, APPROVE, MAX)  # the same once more is no second decision

        audit_of = partial(until_audited, harness.dsn, SCHEMA)
        (answered,) = await audit_of("approval.answered")
        shown = seen.display.SerializeToString(deterministic=True)
        assert answered["details"]["shown"] == f"sha256:{hashlib.sha256(shown).hexdigest()}"
        assert answered["details"]["decision"] == "approved"
        assert answered["details"]["asked_by"] == "ada"
        (refused,) = await audit_of("approval.refused")
        assert (refused["actor"], refused["outcome"]) == ("ada", "refused")
        assert refused["details"]["reason"] == "FOUR_EYES"
        (performed,) = await audit_of("action.performed")
        assert performed["details"]["digest"] == approval.actions[0].digest
        assert performed["details"]["approval"] == approval.approval_id
        assert (performed["actor"], performed["outcome"]) == ("ada", "succeeded")


async def test_denied_and_expired_actions_are_not_audited_as_performed(
    harness: Harness, agent: DeployAgent, tmp_path: Path
) -> None:
    async with gateway_of(harness, tmp_path, approval_timeout_s=1.0) as gateway:
        expired = await asked(gateway, ADA)
        entries = await until_audited(harness.dsn, SCHEMA, "approval.expired")
    assert [(each["actor"], each["actor_kind"], each["target"]) for each in entries] == [
        ("gateway", "service", expired.approval_id)
    ]
    async with gateway_of(harness, tmp_path) as gateway:
        await respond(gateway, await asked(gateway, ADA), DENY, ADA)
        (answered,) = await audit_entries(harness.dsn, SCHEMA, "approval.answered")
        assert answered["details"]["decision"] == "denied"
    assert await audit_entries(harness.dsn, SCHEMA, "action.performed") == []


async def test_data_read_is_audited_if_its_agent_reports_nothing(
    harness: Harness, tmp_path: Path
) -> None:
    for made in (Reader(), Liar(), EchoAgent("echo")):
        await harness.add_agent(made)
    agents = ("reader", "liar", "echo")
    harness.planner.steps = [step(f"{PLANTED}_{agent}", agent) for agent in agents]
    async with gateway_of(harness, tmp_path) as gateway:
        run_id = (await ask(gateway)).run_id
    found = {
        each["details"]["agent"]: each
        for each in await audit_entries(harness.dsn, SCHEMA, "data.read")
    }
    assert set(found) == {"reader", "liar"}, "an agent that neither reads nor could has no entry"
    assert {each["target"] for each in found.values()} == {run_id}
    assert {each["actor"] for each in found.values()} == {"ada"}
    assert found["reader"]["details"]["tools"] == "query"
    assert found["reader"]["details"]["calls"] == "1"
    assert found["liar"]["details"]["services"] == "mcp_db"
    assert found["liar"]["details"]["step"] == "0.2"
    digests = {each["details"]["digest"] for each in found.values()}
    assert len(digests) == 2
    assert PLANTED not in json.dumps(await audit_entries(harness.dsn, SCHEMA))


async def test_a_result_whose_audit_entry_fails_is_not_stored(
    harness: Harness, tmp_path: Path
) -> None:
    await harness.add_agent(Reader())
    harness.planner.steps = [step("r", "reader")]
    async with gateway_of(harness, tmp_path) as gateway:
        async with refused_entries(harness.dsn, SCHEMA, "data.read"):
            assert (await ask(gateway)).status == RUN_STATUS_FAILED
        async with connect(harness.dsn, schema=SCHEMA) as session:
            kinds = await session.fetch("SELECT kind FROM run_events WHERE kind = 'step_finished'")
        assert kinds == []
    assert await audit_entries(harness.dsn, SCHEMA, "data.read") == []


async def test_erasure_by_operators_and_expiry_are_audited(
    harness: Harness, tmp_path: Path
) -> None:
    await harness.add_agent(EchoAgent("echo"))
    harness.planner.steps = [step("a", "echo")]
    async with gateway_of(harness, tmp_path) as gateway:
        for _ in range(2):
            await ask(gateway)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", ERASE, "--user", "ada"),
            env={**os.environ, "BOS_GATEWAY_STORE_URL": harness.dsn},
            stdout=asyncio.subprocess.DEVNULL,
        )
        assert await process.wait() == 0
        (erased,) = await audit_entries(harness.dsn, SCHEMA, "run.erased")
        assert (erased["actor_kind"], erased["target"]) == ("operator", "ada")
        assert erased["details"] == {"runs": "2"}
        await ask(gateway)
        async with open_database(harness.dsn, schema=SCHEMA) as pool:
            await Maintenance(pool, 1e-12, GatewayMetrics(CollectorRegistry())).round()
    (expired,) = await audit_entries(harness.dsn, SCHEMA, "runs.expired")
    assert (expired["actor_kind"], expired["details"]) == ("service", {"runs": "1"})


async def test_audit_of_a_killed_gateway_is_sealed_by_the_next(
    harness: Harness,
) -> None:
    await harness.add_agent(EchoAgent("echo"))
    harness.planner.steps = [step("a", "echo")]
    async with gateway_process(harness, audit__seal_s=60) as (process, gateway):
        run_id = (await gateway.ask()).run_id
        process.kill()
        await process.wait()
    pending = "SELECT count(*) FROM audit_pending WHERE action = 'question.asked'"
    async with connect(harness.dsn, schema=SCHEMA) as session:
        assert await session.fetchval(pending) == 1
        async with harness.gateway():
            async with asyncio.timeout(60):
                while await session.fetchval(pending):  # noqa: ASYNC110  Nothing sets an event.
                    await asyncio.sleep(0.001)
    found = [each for each in await sealed_trail(harness.dsn, SCHEMA) if each.target == run_id]
    assert "question.asked" in {each.action for each in found}
