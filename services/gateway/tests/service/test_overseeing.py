"""Operators see how others' runs stand, and end them; of what is in them they see nothing."""

from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from gateway_harness.answering import refusal
from gateway_harness.callers import signed_in, token
from gateway_harness.harness import Client, Harness

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_FAILED,
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    AgentResult,
)
from bos.gateway.v1 import (
    RUN_STATUS_CANCELLED,
    RUN_STATUS_EXECUTING,
    RUN_STATUS_FAILED,
    RUN_STATUS_SUCCEEDED,
    AgentRequest,
    AskRequest,
    AskStreamRequest,
    CancelRunRequest,
    CancelUserRunRequest,
    GetRunRequest,
    GetUserRunRequest,
    ListRunsRequest,
    ListUserRunsRequest,
    OperatorServiceStub,
    WatchRunRequest,
)
from bos_agentkit import AgentTask, failed, succeeded
from bos_gateway.run_log.session import SCHEMA
from bos_testkit.agents import RecordingAgent, SlowAgent
from bos_testkit.audit import audit_entries
from bos_testkit.plans import step

PLANTED = "planted"
ADA, BEA = token("ada"), token("bea")
OPS = token("ops", roles=("operator",))
NO_OPERATOR = token("eve", roles=("user", "approver", "administrator"))


class Talker(RecordingAgent):
    """Puts what it was asked into everything that it says; also into the type of an error."""

    async def behave(self, task: AgentTask) -> AgentResult:
        if "fail" in task.effective_task:
            error = f"{PLANTED}: what she asked, and {PLANTED} rows"
            return failed(task, type=error, message=f"{PLANTED} message")
        result = succeeded(task, answer=f"{PLANTED} answer")
        result.usage.input_tokens = 7
        result.usage.models.append(f"{PLANTED} is no model")
        return result


@pytest.fixture
async def agents(harness: Harness) -> None:
    await harness.add_agent(Talker("talker"))
    await harness.add_agent(SlowAgent("slow"))


def operator(gateway: Client) -> Any:
    return OperatorServiceStub(gateway.channel)


async def ask(harness: Harness, gateway: Client, caller: Any, task: str = "talk") -> str:
    harness.planner.steps = [step(f"{PLANTED}_step", "talker", f"{PLANTED} {task}")]
    request = AgentRequest(question=f"{PLANTED}?", conversation_id=PLANTED)
    answer = await gateway.stub.Ask(AskRequest(request=request), timeout=60, metadata=caller)
    return str(answer.response.run_id)


async def begin(harness: Harness, gateway: Client, caller: Any) -> str:
    """A run that is at work on a step."""
    harness.planner.steps = [step(f"{PLANTED}_step", "slow")]
    request = AskStreamRequest(request=AgentRequest(question=f"{PLANTED}?"))
    async for message in gateway.stub.AskStream(request, timeout=60, metadata=caller):
        if message.event.HasField("step_started"):
            return str(message.event.run_id)
    raise AssertionError("no step was started")


async def listed(gateway: Client, **wanted: Any) -> Any:
    request = ListUserRunsRequest(**wanted)
    return await operator(gateway).ListUserRuns(request, timeout=60, metadata=OPS)


async def seen(gateway: Client, run_id: str) -> Any:
    request = GetUserRunRequest(run_id=run_id)
    return (await operator(gateway).GetUserRun(request, timeout=60, metadata=OPS)).run


@pytest.mark.usefixtures("agents")
async def test_operator_sees_runs_of_all_users_without_content(
    harness: Harness, tmp_path: Path
) -> None:
    async with harness.gateway(auth=signed_in(tmp_path)) as gateway:
        of_ada = await ask(harness, gateway, ADA)
        of_bea = await ask(harness, gateway, BEA, "fail")
        running = await begin(harness, gateway, BEA)
        page = await listed(gateway)
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


@pytest.mark.usefixtures("agents")
async def test_run_with_an_unreadable_log_is_listed_by_its_row(
    harness: Harness, tmp_path: Path
) -> None:
    async with harness.gateway(auth=signed_in(tmp_path)) as gateway:
        sound = await ask(harness, gateway, ADA)
        broken = await ask(harness, gateway, BEA, "fail")
        connection = await asyncpg.connect(harness.dsn)
        await connection.execute(
            "UPDATE gateway.run_events SET payload = '\\xff' WHERE run_id = $1", UUID(broken)
        )
        await connection.close()
        page = await listed(gateway)
        assert [run.run_id for run in page.runs] == [broken, sound]
        assert [list(run.agents) for run in page.runs] == [[], ["talker"]]
        run = await seen(gateway, broken)
        assert (run.user_id, run.status) == ("bea", RUN_STATUS_FAILED)
        assert not run.steps


@pytest.mark.usefixtures("agents")
async def test_pages_hold_all_runs_once_and_filters_hold_what_they_say(
    harness: Harness, tmp_path: Path
) -> None:
    async with harness.gateway(auth=signed_in(tmp_path)) as gateway:
        made = [await ask(harness, gateway, who) for who in (ADA, BEA, ADA)]
        found, token_ = list[str](), ""
        while True:
            page = await listed(gateway, page_size=1, page_token=token_)
            found += [run.run_id for run in page.runs]
            token_ = page.next_page_token
            if not token_:
                break
        assert found == made[::-1]
        of_bea = await listed(gateway, owner_id="bea", status=RUN_STATUS_SUCCEEDED)
        assert [run.run_id for run in of_bea.runs] == [made[1]]
        assert not (await listed(gateway, status=RUN_STATUS_EXECUTING)).runs
        assert not (await listed(gateway, owner_id="unknown")).runs
        call = operator(gateway).ListUserRuns
        for field, request in {
            "page_token": ListUserRunsRequest(page_token="made up"),
            "owner_id": ListUserRunsRequest(owner_id="a\0b"),
        }.items():
            error = await refusal(call(request, timeout=60, metadata=OPS))
            assert error.reason == "INVALID_ARGUMENT"
            assert field in str(error)


@pytest.mark.usefixtures("agents")
async def test_operator_cancels_runs_of_others_and_is_audited(
    harness: Harness, tmp_path: Path
) -> None:
    async with harness.gateway(auth=signed_in(tmp_path)) as gateway:
        run_id = await begin(harness, gateway, ADA)
        request = CancelUserRunRequest(run_id=run_id, reason="it hangs")
        await operator(gateway).CancelUserRun(request, timeout=60, metadata=OPS)
        answer = await until_ended(gateway, run_id)
        assert answer.response.status == RUN_STATUS_CANCELLED
        assert "it hangs" in answer.response.answer
        (cancelled,) = await audit_entries(harness.dsn, SCHEMA, "run.cancelled")
        assert (cancelled["actor"], cancelled["target"]) == ("ops", run_id)
        assert cancelled["details"] == {"owner": "ada"}
        (read,) = await audit_entries(harness.dsn, SCHEMA, "run.inspected")
        assert (read["actor"], read["target"], read["details"]) == ("ops", run_id, {"owner": "ada"})


async def until_ended(gateway: Client, run_id: str) -> Any:
    call = gateway.stub.WatchRun(WatchRunRequest(run_id=run_id), timeout=60, metadata=ADA)
    async for message in call:
        if message.event.HasField("run_finished"):
            return message.event.run_finished
    raise AssertionError("it has not ended")


@pytest.mark.usefixtures("agents")
async def test_only_operators_see_and_cancel_runs_of_others(
    harness: Harness, tmp_path: Path
) -> None:
    async with harness.gateway(auth=signed_in(tmp_path)) as gateway:
        run_id, caller = await ask(harness, gateway, ADA), NO_OPERATOR
        at = operator(gateway)
        for call in (
            at.ListUserRuns(ListUserRunsRequest(), timeout=60, metadata=caller),
            at.GetUserRun(GetUserRunRequest(run_id=run_id), timeout=60, metadata=caller),
            at.CancelUserRun(CancelUserRunRequest(run_id=run_id), timeout=60, metadata=caller),
        ):
            error = await refusal(call)
            assert (error.reason, error.metadata["role"]) == ("ROLE_REQUIRED", "operator")
        assert await audit_entries(harness.dsn, SCHEMA, "run.inspected") == []


@pytest.mark.usefixtures("agents")
async def test_operator_reads_no_content_and_asks_for_no_other_user(
    harness: Harness, tmp_path: Path
) -> None:
    async with harness.gateway(auth=signed_in(tmp_path)) as gateway:
        run_id, stub = await ask(harness, gateway, ADA), gateway.stub
        assert not (await stub.ListRuns(ListRunsRequest(), timeout=60, metadata=OPS)).runs
        for call in (
            stub.GetRun(GetRunRequest(run_id=run_id), timeout=60, metadata=OPS),
            stub.CancelRun(CancelRunRequest(run_id=run_id), timeout=60, metadata=OPS),
            operator(gateway).GetUserRun(
                GetUserRunRequest(run_id="not an id"), timeout=60, metadata=OPS
            ),
        ):
            assert (await refusal(call)).reason == "NOT_FOUND"
        question = AskRequest(request=AgentRequest(question="And?"))
        error = await refusal(stub.Ask(question, timeout=60, metadata=OPS))
        assert error.reason == "ROLE_REQUIRED"
