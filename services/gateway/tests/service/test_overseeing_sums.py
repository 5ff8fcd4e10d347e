"""Operators filter runs, and see approvals, spend and storage; administrators read the trail."""

from pathlib import Path
from typing import Any

import pytest
from gateway_harness.answering import asked, refusal, respond
from gateway_harness.callers import signed_in, token
from gateway_harness.harness import Client, Harness

from bos.agent.v1 import AgentResult
from bos.audit.v1 import AuditServiceStub, ListAuditEntriesRequest
from bos.gateway.v1 import (
    APPROVAL_DECISION_APPROVE,
    APPROVAL_STATUS_DENIED,
    APPROVAL_STATUS_PENDING,
    AgentRequest,
    AskRequest,
    GetSpendRequest,
    GetStorageRequest,
    ListUserApprovalsRequest,
    ListUserRunsRequest,
    OperatorServiceStub,
)
from bos_agentkit import AgentTask, failed, succeeded
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from bos_testkit.agents import RecordingAgent
from bos_testkit.audit import audit_entries, seal_all
from bos_testkit.deploy import DeployAgent
from bos_testkit.plans import step

PLANTED = "planted"
ADA, BEA = token("ada"), token("bea")
OPS = token("ops", roles=("operator",))
ROOT = token("root", roles=("administrator",))
NO_OPERATOR = token("eve", roles=("user", "approver", "administrator"))
NO_ADMINISTRATOR = token("eve", roles=("user", "approver", "operator"))


class Spender(RecordingAgent):
    """Says that it used the tokens that its task names, or fails."""

    async def behave(self, task: AgentTask) -> AgentResult:
        if "fail" in task.effective_task:
            return failed(task, type="QuotaExceeded", message=f"{PLANTED} message")
        result = succeeded(task, answer=f"{PLANTED} answer")
        result.usage.input_tokens = int(task.effective_task)
        return result


@pytest.fixture
async def agents(harness: Harness) -> None:
    for name in ("spender", "saver"):
        await harness.add_agent(Spender(name))


async def ask(harness: Harness, gateway: Client, caller: Any, agent: str, task: str) -> str:
    harness.planner.steps = [step(f"{PLANTED}_step", agent, task)]
    request = AskRequest(request=AgentRequest(question=f"{PLANTED}?"))
    answer = await gateway.stub.Ask(request, timeout=60, metadata=caller)
    return str(answer.response.run_id)


async def call(gateway: Client, method: str, request: Any, caller: Any = OPS) -> Any:
    stub = OperatorServiceStub(gateway.channel)
    return await getattr(stub, method)(request, timeout=60, metadata=caller)


@pytest.mark.usefixtures("agents")
async def test_runs_are_found_by_agent_error_and_tokens(harness: Harness, tmp_path: Path) -> None:
    async with harness.gateway(auth=signed_in(tmp_path)) as gateway:
        cheap = await ask(harness, gateway, ADA, "spender", "10")
        dear = await ask(harness, gateway, BEA, "saver", "5000")
        wrong = await ask(harness, gateway, ADA, "saver", "fail")

        async def found(**wanted: Any) -> list[str]:
            page = await call(gateway, "ListUserRuns", ListUserRunsRequest(**wanted))
            return [run.run_id for run in page.runs]

        assert await found(agent="saver") == [wrong, dear]
        assert await found(agent="saver", owner_id="bea") == [dear]
        assert await found(error_type="QuotaExceeded") == [wrong]
        assert await found(error_type="Other") == []
        assert await found(min_tokens=5000) == [dear]
        assert await found(min_tokens=10) == [dear, cheap]
        assert await found(agent="unknown") == []
        first = await call(gateway, "ListUserRuns", ListUserRunsRequest(agent="saver", page_size=1))
        assert [run.run_id for run in first.runs] == [wrong]
        assert await found(agent="saver", page_size=1, page_token=first.next_page_token) == [dear]


@pytest.mark.usefixtures("agents")
async def test_spend_is_summed_for_each_user_and_for_all(harness: Harness, tmp_path: Path) -> None:
    async with harness.gateway(auth=signed_in(tmp_path), max_run_tokens=0) as gateway:
        for caller, task in ((ADA, "10"), (ADA, "20"), (BEA, "5000"), (BEA, "fail")):
            await ask(harness, gateway, caller, "spender", task)
        spend = await call(gateway, "GetSpend", GetSpendRequest(days=31))
        assert [
            (each.user_id, each.runs, each.failed_runs, each.tokens) for each in spend.users
        ] == [("bea", 2, 1, 5000), ("ada", 2, 0, 30)]
        assert (spend.total.runs, spend.total.tokens) == (4, 5030)
        assert (spend.max_run_tokens, spend.max_user_day_tokens, spend.max_day_tokens) == (0, 0, 0)
        (entry,) = await audit_entries(harness.dsn, SCHEMA, "spend.read")
        assert (entry["actor"], entry["details"]) == ("ops", {"days": "31"})


async def test_approvals_of_all_are_listed_without_what_is_proposed(
    harness: Harness, tmp_path: Path
) -> None:
    await harness.add_agent(DeployAgent())
    made = step(f"{PLANTED}_step", "deploy", f"deploy {PLANTED} 1.2")
    made.tools.extend(["check_deploy_status", "trigger_deployment"])
    harness.planner.steps = [made]
    async with harness.gateway(auth=signed_in(tmp_path)) as gateway:
        first, second = await asked(gateway, ADA), await asked(gateway, BEA)
        page = await call(gateway, "ListUserApprovals", ListUserApprovalsRequest(page_size=1))
        (newest,) = page.approvals
        assert (newest.approval_id, newest.user_id) == (second.approval_id, "bea")
        assert (newest.status, newest.agent_name) == (APPROVAL_STATUS_PENDING, "deploy")
        assert list(newest.tools) == ["trigger_deployment"]
        assert newest.HasField("expire_time")
        assert not newest.HasField("respond_time")
        rest = ListUserApprovalsRequest(page_size=1, page_token=page.next_page_token)
        page = await call(gateway, "ListUserApprovals", rest)
        assert [each.approval_id for each in page.approvals] == [first.approval_id]
        assert not page.next_page_token
        denied = ListUserApprovalsRequest(status=APPROVAL_STATUS_DENIED)
        assert not (await call(gateway, "ListUserApprovals", denied)).approvals
        assert PLANTED not in str(page)


async def test_approval_with_instructions_is_listed_as_sent_back(
    harness: Harness, tmp_path: Path
) -> None:
    await harness.add_agent(DeployAgent())
    harness.planner.steps = [step("a", "deploy", "deploy shop 1.2")]
    harness.planner.steps[0].tools.append("trigger_deployment")
    async with harness.gateway(auth=signed_in(tmp_path)) as gateway:
        approved, sent_back, waiting = [await asked(gateway, ADA) for _ in range(3)]
        await respond(gateway, approved, APPROVAL_DECISION_APPROVE, ADA)
        await respond(gateway, sent_back, APPROVAL_DECISION_APPROVE, ADA, f"{PLANTED} version 1.3")
        page = await call(gateway, "ListUserApprovals", ListUserApprovalsRequest())
        found = {each.approval_id: each for each in page.approvals}
        shown = [found[each.approval_id] for each in (approved, sent_back, waiting)]
        assert [each.is_sent_back for each in shown] == [False, True, False]
        assert PLANTED not in str(page)


@pytest.mark.requirement("O-09")
async def test_storage_names_the_largest_tables_first(harness: Harness, tmp_path: Path) -> None:
    async with harness.gateway(auth=signed_in(tmp_path)) as gateway:
        storage = await call(gateway, "GetStorage", GetStorageRequest())
        sizes = [each.bytes for each in storage.tables]
        assert sizes == sorted(sizes, reverse=True)
        assert storage.database_bytes > sum(sizes) > 0
        tables = {(each.schema, each.table) for each in storage.tables}
        assert {(SCHEMA, "runs"), (SCHEMA, "audit_trail")} <= tables
        assert not [schema for schema, _ in tables if schema.startswith("pg_")]


@pytest.mark.requirement("O-09")
async def test_only_operators_see_sums(harness: Harness, tmp_path: Path) -> None:
    async with harness.gateway(auth=signed_in(tmp_path)) as gateway:
        for method, request in {
            "ListUserApprovals": ListUserApprovalsRequest(),
            "GetSpend": GetSpendRequest(),
            "GetStorage": GetStorageRequest(),
        }.items():
            error = await refusal(call(gateway, method, request, NO_OPERATOR))
            assert (error.reason, error.metadata["role"]) == ("ROLE_REQUIRED", "operator")


async def trail(gateway: Client, caller: Any = ROOT, **wanted: Any) -> Any:
    request = ListAuditEntriesRequest(**{"service": SCHEMA, **wanted})
    stub = AuditServiceStub(gateway.channel)
    return await stub.ListAuditEntries(request, timeout=60, metadata=caller)


@pytest.mark.usefixtures("agents")
async def test_administrators_read_the_trail_by_filters_and_pages(
    harness: Harness, tmp_path: Path
) -> None:
    async with harness.gateway(auth=signed_in(tmp_path)) as gateway:
        of_ada = await ask(harness, gateway, ADA, "spender", "1")
        of_bea = await ask(harness, gateway, BEA, "spender", "2")
        await call(gateway, "GetSpend", GetSpendRequest())
        async with connect(harness.dsn, schema=SCHEMA) as session:
            await seal_all(session)
        found = await trail(gateway, action="question.asked")
        assert [(entry.actor, entry.target) for entry in found.entries] == [
            ("bea", of_bea),
            ("ada", of_ada),
        ]
        assert not found.next_page_token
        assert PLANTED not in str(found)
        (own,) = (await trail(gateway, actor="ops", action="spend.")).entries
        assert (own.action, own.actor_kind, own.outcome) == ("spend.read", "user", "succeeded")
        assert own.HasField("occur_time")
        assert not (await trail(gateway, target=of_ada, outcome="refused")).entries
        assert not (await trail(gateway, action="spend")).entries, "only a whole name or `spend.`"
        first = await trail(gateway, action="question.asked", page_size=1)
        rest = await trail(gateway, action="question.asked", page_token=first.next_page_token)
        assert [entry.target for entry in rest.entries] == [of_ada]
        read = await audit_entries(harness.dsn, SCHEMA, "audit.read")
        assert {entry["actor"] for entry in read} == {"root"}


async def test_trail_refuses_what_it_cannot_read(harness: Harness, tmp_path: Path) -> None:
    async with harness.gateway(auth=signed_in(tmp_path)) as gateway:
        for field, wanted in {
            "service": {"service": "memory"},
            "page_token": {"page_token": "made up"},
            "actor": {"actor": "a\0b"},
            "outcome": {"outcome": "perhaps"},
        }.items():
            error = await refusal(trail(gateway, **wanted))
            assert error.reason == "INVALID_ARGUMENT"
            assert field in str(error)


async def test_only_administrators_read_the_trail(harness: Harness, tmp_path: Path) -> None:
    async with harness.gateway(auth=signed_in(tmp_path)) as gateway:
        error = await refusal(trail(gateway, NO_ADMINISTRATOR))
        assert (error.reason, error.metadata["role"]) == ("ROLE_REQUIRED", "administrator")
        assert await audit_entries(harness.dsn, SCHEMA, "audit.read") == []
