"""Operators see how runs of all users stand, and no content; administrators read the trail."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gateway_harness.answering import APPROVE, asked, refusal, respond
from gateway_harness.callers import signed_in, token
from gateway_harness.harness import Client, Harness, deploying
from gateway_harness.stored import fetch
from gateway_harness.streamed import seen_until

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_FAILED,
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    AgentResult,
)
from bos.audit.v1 import ListAuditEntriesRequest
from bos.gateway.v1 import (
    APPROVAL_STATUS_DENIED,
    APPROVAL_STATUS_PENDING,
    RUN_STATUS_CANCELLED,
    RUN_STATUS_EXECUTING,
    RUN_STATUS_FAILED,
    RUN_STATUS_SUCCEEDED,
    CancelUserRunRequest,
    GetSpendRequest,
    GetStorageRequest,
    GetUserRunRequest,
    ListUserApprovalsRequest,
    ListUserRunsRequest,
)
from bos_agentkit import AgentTask, failed, succeeded
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from bos_testkit.agents import RecordingAgent, SlowAgent
from bos_testkit.audit import audit_entries, seal_all
from bos_testkit.deploy import DeployAgent
from bos_testkit.plans import step

PLANTED = "planted"
ADA, BEA = token("ada"), token("bea")
OPS = token("ops", roles=("operator",))
ROOT = token("root", roles=("administrator",))


class Talker(RecordingAgent):
    """Says what it was asked in everything, also in types of errors; uses as many tokens."""

    async def behave(self, task: AgentTask) -> AgentResult:
        said = task.effective_task.removeprefix(f"{PLANTED} ")
        if said == "fail":
            error = f"{PLANTED}: what she asked, and {PLANTED} rows"
            return failed(task, type=error, message=f"{PLANTED} message")
        if said == "exceed":
            return failed(task, type="QuotaExceeded", message=f"{PLANTED} message")
        result = succeeded(task, answer=f"{PLANTED} answer")
        result.usage.input_tokens = int(said)
        result.usage.models.append(f"{PLANTED} is no model")
        return result


async def test_operator_sees_runs_of_all_users_without_content(
    harness: Harness, gateway: Client
) -> None:
    of_ada = await ask(harness, gateway, ADA)
    of_bea = await ask(harness, gateway, BEA, "fail")
    running = await begin(harness, gateway, BEA)
    page = await call(gateway, ListUserRunsRequest())
    assert [(run.run_id, run.user_id) for run in page.runs] == [
        (running, "bea"),
        (of_bea, "bea"),
        (of_ada, "ada"),
    ]
    assert [run.status for run in page.runs] == [
        RUN_STATUS_EXECUTING,
        RUN_STATUS_FAILED,
        RUN_STATUS_SUCCEEDED,
    ]
    assert [list(run.agents) for run in page.runs] == [["slow"], ["talker"], ["talker"]]
    assert page.runs[1].error_type
    assert [run.HasField("finish_time") for run in page.runs] == [False, True, True]

    went_well, went_wrong = await seen(gateway, of_ada), await seen(gateway, of_bea)
    (good,), (bad,) = went_well.steps, went_wrong.steps
    assert (good.agent, good.place, good.attempts) == ("talker", 1, 1)
    assert good.status == AGENT_EXECUTION_STATUS_SUCCEEDED
    assert good.HasField("start_time")
    assert good.HasField("latency")
    assert good.usage.input_tokens == 7
    assert went_well.usage.input_tokens >= 7
    assert (bad.status, bad.error_type) == (AGENT_EXECUTION_STATUS_FAILED, "Other")
    assert PLANTED not in f"{page}{went_well}{went_wrong}"


async def test_run_with_an_unreadable_log_is_listed_by_its_row(
    harness: Harness, gateway: Client
) -> None:
    sound = await ask(harness, gateway, ADA)
    broken = await ask(harness, gateway, BEA, "fail")
    await fetch(harness.dsn, "UPDATE run_events SET payload = '\\xff' WHERE run_id = $1", broken)
    page = await call(gateway, ListUserRunsRequest())
    assert [run.run_id for run in page.runs] == [broken, sound]
    assert [list(run.agents) for run in page.runs] == [[], ["talker"]]
    run = await seen(gateway, broken)
    assert (run.user_id, run.status) == ("bea", RUN_STATUS_FAILED)
    assert not run.steps


async def test_runs_are_found_by_filters_and_in_pages(harness: Harness, gateway: Client) -> None:
    cheap = await ask(harness, gateway, ADA, "10")
    dear = await ask(harness, gateway, BEA, "5000", "other")
    wrong = await ask(harness, gateway, ADA, "exceed", "other")

    async def found(**wanted: Any) -> list[str]:
        page = await call(gateway, ListUserRunsRequest(**wanted))
        return [run.run_id for run in page.runs]

    for wanted, runs in (
        ({"agent": "other"}, [wrong, dear]),
        ({"agent": "other", "owner_id": "bea"}, [dear]),
        ({"agent": "unknown"}, []),
        ({"owner_id": "ada", "status": RUN_STATUS_SUCCEEDED}, [cheap]),
        ({"owner_id": "unknown"}, []),
        ({"status": RUN_STATUS_EXECUTING}, []),
        ({"error_type": "QuotaExceeded"}, [wrong]),
        ({"error_type": "Other"}, []),
        ({"min_tokens": 5000}, [dear]),
        ({"min_tokens": 10}, [dear, cheap]),
    ):
        assert await found(**wanted) == runs, wanted
    for wanted, runs in (({}, [wrong, dear, cheap]), ({"agent": "other"}, [wrong, dear])):
        paged, page_token = list[str](), ""
        while not paged or page_token:
            request = ListUserRunsRequest(page_size=1, page_token=page_token, **wanted)
            page = await call(gateway, request)
            paged += [run.run_id for run in page.runs]
            page_token = page.next_page_token
        assert paged == runs, wanted
    for field, value in (("page_token", "made up"), ("owner_id", "a\0b")):
        error = await refusal(found(**{field: value}))
        assert error.reason == "INVALID_ARGUMENT"
        assert field in str(error)


async def test_operator_cancels_runs_of_others_and_is_audited(
    harness: Harness, gateway: Client
) -> None:
    run_id = await begin(harness, gateway, ADA)
    await call(gateway, CancelUserRunRequest(run_id=run_id, reason="it hangs"))
    response = (await gateway.by(ADA).watch(run_id))[-1].run_finished.response
    assert response.status == RUN_STATUS_CANCELLED
    assert "it hangs" in response.answer
    for action in ("run.cancelled", "run.inspected"):
        (entry,) = await audit_entries(harness.dsn, SCHEMA, action)
        assert (entry["actor"], entry["target"]) == ("ops", run_id)
        assert entry["details"] == {"owner": "ada"}


async def test_spend_is_summed_for_each_user_and_for_all(harness: Harness, gateway: Client) -> None:
    for caller, task in ((ADA, "10"), (ADA, "20"), (BEA, "5000"), (BEA, "fail")):
        await ask(harness, gateway, caller, task)
    spend = await call(gateway, GetSpendRequest(days=31))
    assert [(each.user_id, each.runs, each.failed_runs, each.tokens) for each in spend.users] == [
        ("bea", 2, 1, 5000),
        ("ada", 2, 0, 30),
    ]
    assert (spend.total.runs, spend.total.tokens) == (4, 5030)
    assert (spend.max_run_tokens, spend.max_user_day_tokens, spend.max_day_tokens) == (0, 0, 0)
    (entry,) = await audit_entries(harness.dsn, SCHEMA, "spend.read")
    assert (entry["actor"], entry["details"]) == ("ops", {"days": "31"})


async def test_approvals_of_all_are_listed_without_what_is_proposed(
    harness: Harness, gateway: Client
) -> None:
    harness.planner.steps = [deploying(f"deploy {PLANTED} 1.2")]
    first, second = await asked(gateway.by(ADA)), await asked(gateway.by(BEA))
    page = await call(gateway, ListUserApprovalsRequest(page_size=1))
    (newest,) = page.approvals
    assert (newest.approval_id, newest.user_id) == (second.approval_id, "bea")
    assert (newest.status, newest.agent_name) == (APPROVAL_STATUS_PENDING, "deploy")
    assert list(newest.tools) == ["trigger_deployment"]
    assert newest.HasField("expire_time")
    assert not newest.HasField("respond_time")
    rest = ListUserApprovalsRequest(page_size=1, page_token=page.next_page_token)
    page = await call(gateway, rest)
    assert [each.approval_id for each in page.approvals] == [first.approval_id]
    assert not page.next_page_token
    denied = ListUserApprovalsRequest(status=APPROVAL_STATUS_DENIED)
    assert not (await call(gateway, denied)).approvals
    # One with instructions was sent back.
    await respond(gateway.by(ADA), first, APPROVE)
    await respond(gateway.by(BEA), second, APPROVE, f"{PLANTED} version 1.3")
    page = await call(gateway, ListUserApprovalsRequest())
    found = {each.approval_id: each.is_sent_back for each in page.approvals}
    assert [found[each.approval_id] for each in (first, second)] == [False, True]
    assert PLANTED not in f"{newest}{page}"


@pytest.mark.requirement("O-09")
async def test_storage_names_the_largest_tables_first(gateway: Client) -> None:
    storage = await call(gateway, GetStorageRequest())
    sizes = [each.bytes for each in storage.tables]
    assert sizes == sorted(sizes, reverse=True)
    assert storage.database_bytes > sum(sizes) > 0
    tables = {(each.schema, each.table) for each in storage.tables}
    assert {(SCHEMA, "runs"), (SCHEMA, "audit_trail")} <= tables
    assert not [schema for schema, _ in tables if schema.startswith("pg_")]


async def trail(gateway: Client, **wanted: Any) -> Any:
    request = ListAuditEntriesRequest(**{"service": SCHEMA, **wanted})
    return await gateway.by(ROOT).call(request)


async def test_administrators_read_the_trail_by_filters_and_pages(
    harness: Harness, gateway: Client
) -> None:
    of_ada = await ask(harness, gateway, ADA)
    of_bea = await ask(harness, gateway, BEA)
    await call(gateway, GetSpendRequest())
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
    for field, value in {
        "service": "memory",
        "page_token": "made up",
        "actor": "a\0b",
        "outcome": "perhaps",
    }.items():
        error = await refusal(trail(gateway, **{field: value}))
        assert error.reason == "INVALID_ARGUMENT"
        assert field in str(error)


@pytest.fixture
async def gateway(harness: Harness, tmp_path: Path) -> AsyncIterator[Client]:
    await harness.plan(Talker("talker"), Talker("other"), SlowAgent("slow"), DeployAgent())
    async with harness.gateway(auth=signed_in(tmp_path)) as opened:
        yield opened


async def ask(
    harness: Harness, gateway: Client, caller: Any, task: str = "7", agent: str = "talker"
) -> str:
    harness.planner.steps = [step(f"{PLANTED}_step", agent, f"{PLANTED} {task}")]
    return (await gateway.by(caller).ask(f"{PLANTED}?", conversation_id=PLANTED)).run_id


async def begin(harness: Harness, gateway: Client, caller: Any) -> str:
    harness.planner.steps = [step(f"{PLANTED}_step", "slow")]
    return (await seen_until(gateway.by(caller), "step_started"))[0].run_id


async def call(gateway: Client, request: Any) -> Any:
    return await gateway.by(OPS).call(request)


async def seen(gateway: Client, run_id: str) -> Any:
    return (await call(gateway, GetUserRunRequest(run_id=run_id))).run
