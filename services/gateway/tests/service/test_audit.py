"""Audit trail of the gateway: each action with its entry, or neither; no content."""

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from gateway_harness.answering import APPROVE, DENY, asked, get, refusal, respond
from gateway_harness.callers import signed_in, token
from gateway_harness.harness import Client, Harness, erased, gateway_process
from gateway_harness.receiver import KEYS
from gateway_harness.stored import fetch, fetchval, log_of, until
from prometheus_client import CollectorRegistry

from bos.agent.v1 import AgentResult
from bos.common.v1 import DatabaseQuery
from bos.gateway.v1 import (
    RUN_STATUS_FAILED,
    AgentRequest,
    CancelUserRunRequest,
    CreateVerifiedQueryRequest,
    CreateWebhookRequest,
    DeleteVerifiedQueryRequest,
    DeleteWebhookRequest,
    DownloadFileRequest,
    GetSpendRequest,
    GetStorageRequest,
    GetUserRunRequest,
    ListUserApprovalsRequest,
    ListUserRunsRequest,
    SubmitRunRequest,
)
from bos_agentkit import AgentTask, agent_card, succeeded, tool
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.run_log.maintenance import Maintenance
from bos_gateway.run_log.session import SCHEMA
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

ADA, MAX = token("ada"), token("max", roles=("user", "approver"))
OPS = token("ops", roles=("operator",))
PLANTED = "planted"
FILE = f"{PLANTED} bytes".encode()


class Reader(RecordingAgent):
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
    await harness.add_agent(FileAgent("files", {f"{PLANTED}.txt": ("text/plain", FILE)}))
    await harness.plan(SlowAgent("slow"), EchoAgent("echo"), Querying("querying"))
    return await harness.plan_deployment()


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """Of a gateway whose users have signed in."""
    artefacts_url = (tmp_path / "a").as_uri()
    return {"auth": signed_in(tmp_path), "artefacts_url": artefacts_url, **KEYS}


async def ask(gateway: Client) -> str:
    return (await gateway.by(ADA).ask(f"{PLANTED}?", conversation_id=PLANTED)).run_id


async def slow_run(harness: Harness, gateway: Client) -> str:
    harness.planner.steps = [step("a", "slow")]
    return (await gateway.by(ADA).stream(f"{PLANTED}?").read()).event.run_id


async def do(harness: Harness, gateway: Client, method: str) -> tuple[str, str]:
    """Do it once; returns who did it, and to what."""
    agents = {"DownloadFile": "files", "CreateVerifiedQuery": "querying"}
    agents |= {"Ask": "echo", "SubmitRun": "echo", "DeleteVerifiedQuery": "querying"}
    if method in agents:
        harness.planner.steps = [step("a", agents[method], PLANTED)]
    ada = gateway.by(ADA)
    match method:
        case "Ask":
            return "ada", await ask(gateway)
        case "SubmitRun":
            submitted = SubmitRunRequest(request=AgentRequest(question=f"{PLANTED}?"))
            return "ada", (await ada.call(submitted)).run.run_id
        case "CancelRun":
            run_id = await slow_run(harness, gateway)
            await ada.cancel(run_id, PLANTED)
            return "ada", run_id
        case "DownloadFile":
            run_id = await ask(gateway)
            wanted = DownloadFileRequest(run_id=run_id, digest=hashlib.sha256(FILE).hexdigest())
            assert b"".join([part.content async for part in ada.call(wanted)]) == FILE
            return "ada", run_id
        case "CreateWebhook" | "DeleteWebhook":
            url = f"https://example.com/{PLANTED}"
            webhook_id = (await ada.call(CreateWebhookRequest(url=url))).webhook.webhook_id
            if method == "DeleteWebhook":
                await ada.call(DeleteWebhookRequest(webhook_id=webhook_id))
            return "ada", webhook_id
        case "CreateVerifiedQuery" | "DeleteVerifiedQuery":
            made = await ada.call(CreateVerifiedQueryRequest(run_id=await ask(gateway)))
            query_id = made.verified_query.query_id
            if method == "DeleteVerifiedQuery":
                await ada.call(DeleteVerifiedQueryRequest(query_id=query_id))
            return "ada", query_id
        case "AskStream" | "RespondApproval":
            approval = await asked(ada)
            if method == "AskStream":
                return "ada", approval.run_id
            await respond(gateway.by(MAX), approval, APPROVE)
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
            await gateway.by(OPS).call(asked_for)
            return "ops", target


async def test_each_deed_leaves_its_entry_and_no_content(
    harness: Harness, agent: DeployAgent, settings: dict[str, Any]
) -> None:
    rules = {"deploy.*": {"roles": ["approver"]}}
    asking = list(harness.planner.steps)
    async with harness.gateway(**settings, approvers=rules) as gateway:
        for rpc in sorted(audited("gateway")):
            harness.planner.steps = asking
            actor, target = await do(harness, gateway, rpc.rpartition("/")[2])
            found = await audit_entries(harness.dsn, SCHEMA, AUDITED[rpc])
            (entry,) = [each for each in found if each["target"] == target]
            assert (entry["actor"], entry["actor_kind"]) == (actor, "user"), rpc
    assert PLANTED not in json.dumps(await audit_entries(harness.dsn, SCHEMA))
    await sealed_trail(harness.dsn, SCHEMA)


async def counted(dsn: str) -> dict[str, int]:
    return dict((await fetch(dsn, _COUNTED))[0])


_COUNTED = """
SELECT (SELECT count(*) FROM runs) AS runs, (SELECT count(*) FROM run_inputs) AS inputs,
       (SELECT count(*) FROM webhooks) AS webhooks,
       (SELECT count(*) FROM verified_queries) AS verified,
       (SELECT count(*) FROM approvals WHERE status = 1) AS pending
"""


async def test_a_change_whose_audit_entry_fails_is_not_made(
    harness: Harness, agent: DeployAgent, settings: dict[str, Any]
) -> None:
    rules = {"deploy.*": {"roles": ["approver"]}}
    asking = list(harness.planner.steps)
    async with harness.gateway(**settings, approvers=rules) as gateway:
        for rpc in sorted(audited("gateway")):
            before = await counted(harness.dsn)
            entries = await audit_entries(harness.dsn, SCHEMA, AUDITED[rpc])
            harness.planner.steps = asking
            async with refused_entries(harness.dsn, SCHEMA, AUDITED[rpc]):
                with pytest.raises(grpc.aio.AioRpcError):
                    await do(harness, gateway, rpc.rpartition("/")[2])
            found = await audit_entries(harness.dsn, SCHEMA, AUDITED[rpc])
            assert len(found) == len(entries), rpc
            after = await counted(harness.dsn)
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
    harness: Harness, agent: DeployAgent, settings: dict[str, Any]
) -> None:
    rules = {"deploy.*": {"roles": ["approver"], "four_eyes": True}}
    async with harness.gateway(**settings, approvers=rules) as gateway:
        ada, approver = gateway.by(ADA), gateway.by(MAX)
        approval = await asked(ada)
        seen = await get(approver, approval)
        assert (await refusal(respond(ada, approval, APPROVE))).reason == "FOUR_EYES"
        await respond(approver, approval, APPROVE)
        await respond(approver, approval, APPROVE)  # the same once more is no second decision

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
    harness: Harness, agent: DeployAgent, settings: dict[str, Any]
) -> None:
    async with harness.gateway(**settings, approval_timeout_s=1.0) as gateway:
        expired = await asked(gateway.by(ADA))
        entries = await until_audited(harness.dsn, SCHEMA, "approval.expired")
    assert [(each["actor"], each["actor_kind"], each["target"]) for each in entries] == [
        ("gateway", "service", expired.approval_id)
    ]
    async with harness.gateway(**settings) as gateway:
        ada = gateway.by(ADA)
        await respond(ada, await asked(ada), DENY)
        (answered,) = await audit_entries(harness.dsn, SCHEMA, "approval.answered")
        assert answered["details"]["decision"] == "denied"
    assert await audit_entries(harness.dsn, SCHEMA, "action.performed") == []


async def test_data_read_is_audited_if_its_agent_reports_nothing(
    harness: Harness, settings: dict[str, Any]
) -> None:
    await harness.plan(Reader(), Liar(), EchoAgent("echo"))
    async with harness.gateway(**settings) as gateway:
        run_id = await ask(gateway)
    entries = await audit_entries(harness.dsn, SCHEMA, "data.read")
    found = {each["details"]["agent"]: each for each in entries}
    assert set(found) == {"reader", "liar"}, "an agent that neither reads nor could has no entry"
    assert {(each["actor"], each["target"]) for each in entries} == {("ada", run_id)}
    assert found["reader"]["details"]["tools"] == "query"
    assert found["reader"]["details"]["calls"] == "1"
    assert found["liar"]["details"]["services"] == "mcp_db"
    assert found["liar"]["details"]["step"] == "0.2"
    assert len({each["details"]["digest"] for each in entries}) == 2
    assert PLANTED not in json.dumps(await audit_entries(harness.dsn, SCHEMA))


async def test_a_result_whose_audit_entry_fails_is_not_stored(
    harness: Harness, settings: dict[str, Any]
) -> None:
    await harness.plan(Reader())
    async with harness.gateway(**settings) as gateway:
        async with refused_entries(harness.dsn, SCHEMA, "data.read"):
            run_id = await ask(gateway)
        assert (await gateway.by(ADA).run(run_id)).status == RUN_STATUS_FAILED
    assert not [e for e in await log_of(harness.dsn) if e.HasField("step_finished")]
    assert await audit_entries(harness.dsn, SCHEMA, "data.read") == []


async def test_erasure_by_operators_and_expiry_are_audited(
    harness: Harness, pool: Any, settings: dict[str, Any]
) -> None:
    await harness.plan(EchoAgent("echo"))
    async with harness.gateway(**settings) as gateway:
        for _ in range(2):
            await ask(gateway)
        assert (await erased(harness, "--user", "ada"))[0] == 0
        (entry,) = await audit_entries(harness.dsn, SCHEMA, "run.erased")
        assert (entry["actor_kind"], entry["target"]) == ("operator", "ada")
        assert entry["details"] == {"runs": "2"}
        await ask(gateway)
        await Maintenance(pool, 1e-12, GatewayMetrics(CollectorRegistry())).round()
    (expired,) = await audit_entries(harness.dsn, SCHEMA, "runs.expired")
    assert (expired["actor_kind"], expired["details"]) == ("service", {"runs": "1"})


async def test_audit_of_a_killed_gateway_is_sealed_by_the_next(harness: Harness) -> None:
    await harness.plan(EchoAgent("echo"))
    async with gateway_process(harness, audit__seal_s=60) as (process, gateway):
        run_id = (await gateway.ask()).run_id
        process.kill()
        await process.wait()
    pending = "count(*) = {} FROM audit_pending WHERE action = 'question.asked'"
    assert await fetchval(harness.dsn, f"SELECT {pending.format(1)}")
    async with harness.gateway():
        await until(harness.dsn, pending.format(0))
    found = [each for each in await sealed_trail(harness.dsn, SCHEMA) if each.target == run_id]
    assert "question.asked" in {each.action for each in found}
