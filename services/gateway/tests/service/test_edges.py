"""Edge cases: unowned runs, repeated work, effects of one user's failures on others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import grpc
import pytest
from gateway_harness.disconnects import run_under_way
from gateway_harness.harness import Client, Harness, kinds, result_of

from bos.agent.v1 import (
    AgentResult,
)
from bos.common.v1 import TraceEvent
from bos.gateway.v1 import (
    RUN_STATUS_CANCELLED,
    RUN_STATUS_SUCCEEDED,
    AgentRequest,
    AskRequest,
    CancelRunRequest,
)
from bos_agentkit import Agent, AgentTask, agent_card, succeeded
from bos_chassis.settings import ServerSettings
from bos_chassis.values import make_table
from bos_errors import (
    ConfigurationError,
    Unavailable,
    from_rpc_error,
)
from bos_gateway.core.result_limits import sound_trace
from bos_testkit.agents import EchoAgent, SlowAgent
from bos_testkit.plans import step


class Answering(Agent):
    """Returns the result that the test made."""

    def __init__(self, name: str, change: Any) -> None:
        self.card = agent_card(name, "Test agent.")
        self._change = change

    async def execute(self, task: AgentTask) -> AgentResult:
        result = succeeded(task, answer="Here it is.")
        self._change(result, task)
        return result


async def _locked(dsn: str, statement: str) -> asyncpg.Connection:
    connection = await asyncpg.connect(dsn)
    await connection.execute("BEGIN")
    await connection.execute(statement)
    return connection


async def test_run_is_driven_if_its_caller_left_during_acceptance(
    harness: Harness,
) -> None:
    async with harness.gateway() as gateway:
        lock = await _locked(harness.dsn, "LOCK TABLE gateway.runs IN SHARE MODE")
        request = AskRequest(request=AgentRequest(question="Still there?", request_id="r"))
        with pytest.raises(grpc.aio.AioRpcError):
            await gateway.stub.Ask(request, timeout=0.5)
        await lock.execute("ROLLBACK")
        await lock.close()
        response = await gateway.ask("Still there?", request_id="r")
    assert response.status == RUN_STATUS_SUCCEEDED
    assert len(harness.planner.requests) == 1


def _ragged(result: AgentResult, task: AgentTask) -> None:
    result.table.CopyFrom(make_table(["a", "b"], [[1, 2]]))
    del result.table.rows[0].values[1]


def _no_time(result: AgentResult, task: AgentTask) -> None:
    result.start_time.seconds = 10**15


@pytest.mark.parametrize("change", [_ragged, _no_time])
async def test_result_that_makes_no_sense_fails_its_step_only(
    harness: Harness, change: Any
) -> None:
    await harness.add_agent(Answering("odd", change))
    await harness.add_agent(EchoAgent("echo"))
    harness.planner.steps = [step("a", "odd"), step("b", "echo", "after @{outputs.a.row_count}")]
    async with harness.gateway() as gateway:
        events = await gateway.events()
    odd = result_of(events, "a")
    if change is _ragged:
        assert odd.error.type == "AgentProtocolError"
    assert events[-1].HasField("run_finished")


def test_trace_event_without_a_usable_time_gets_one() -> None:
    now = datetime(2026, 6, 15, tzinfo=UTC)
    good, odd, none = TraceEvent(), TraceEvent(), TraceEvent()
    good.create_time.FromDatetime(now - timedelta(hours=1))
    odd.create_time.seconds = 10**15
    sound_trace(events := [good, odd, none], now)
    times = [event.create_time.ToDatetime(tzinfo=UTC) for event in events]
    assert times == [now - timedelta(hours=1), now, now]


async def test_cancel_that_was_acknowledged_survives_a_restart(harness: Harness) -> None:
    slow = SlowAgent("slow")
    await harness.add_agent(slow)
    harness.planner.steps = [step("a", "slow")]
    async with harness.gateway() as gateway:
        run_id = await run_under_way(gateway, slow)
        # Appends wait for this, so the cancel cannot get into the log before the restart.
        lock = await _locked(harness.dsn, "LOCK TABLE gateway.run_events IN SHARE MODE")
        await gateway.stub.CancelRun(CancelRunRequest(run_id=run_id, reason="enough"))
        stopping = asyncio.create_task(_unlock_after_stop(lock, gateway))
    await stopping
    async with harness.gateway() as gateway:
        events = await gateway.watch(run_id)
    assert events[-1].run_finished.response.status == RUN_STATUS_CANCELLED
    # It came before anything else: the step that was under way was not sent again.
    assert kinds(events)[-3:] == [
        "run_resumed",
        "cancel_requested",
        "run_finished",
    ]
    assert len(slow.inputs) == 1


async def test_gateway_refuses_a_pooler_before_it_changes_the_database(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def shares_sessions(dsn: str) -> None:
        raise ConfigurationError("A connection pooler is in front.", reason="DATABASE_POOLER")

    connection = await asyncpg.connect(harness.dsn)
    await connection.execute("DROP SCHEMA gateway CASCADE")
    monkeypatch.setattr("bos_gateway.service.require_session_features", shares_sessions)
    with pytest.raises(ConfigurationError):
        async with harness.gateway():
            pass
    assert not await connection.fetchval("SELECT to_regnamespace('gateway') IS NOT NULL")
    await connection.close()


async def test_lease_must_outlive_its_renewals(harness: Harness) -> None:
    with pytest.raises(ConfigurationError, match="BOS_GATEWAY_LEASE_S"):
        async with harness.gateway(lease_s=1.0, lease_renewal_s=0.8):
            pass


async def _unlock_after_stop(lock: asyncpg.Connection, gateway: Client) -> None:
    await gateway.server.draining.wait()
    await lock.execute("ROLLBACK")
    await lock.close()


async def test_draining_ends_streams_before_its_grace_period(
    harness: Harness,
) -> None:
    slow = SlowAgent("slow")
    await harness.add_agent(slow)
    harness.planner.steps = [step("a", "slow")]
    grace_s = 300.0
    async with AsyncExitStack() as stack:
        opened = harness.gateway(server=ServerSettings.load(grace_s=grace_s))
        gateway = await stack.enter_async_context(opened)
        async with grpc.aio.insecure_channel(gateway.server.address) as channel:
            asked = asyncio.create_task(Client(channel, gateway.server).ask())
            await slow.started.wait()
            async with asyncio.timeout(grace_s / 2):
                await stack.aclose()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await asked
    assert isinstance(from_rpc_error(caught.value), Unavailable)


@pytest.mark.requirement("A-02", "A-07")
async def test_without_data_a_client_sees_no_rows_in_any_event(harness: Harness) -> None:
    def rows(result: AgentResult, task: AgentTask) -> None:
        task.trace.message("Fetched", row="cell-secret")
        result.table.CopyFrom(make_table(["c"], [["cell-secret"]]))
        result.data.fields["top"].string_value = "cell-secret"

    await harness.add_agent(Answering("rows", rows))
    await harness.add_agent(Answering("next", lambda result, task: None))
    harness.planner.steps = [step("a", "rows"), step("b", "next", "use @{outputs.a.top}")]
    async with harness.gateway() as gateway:
        hidden = await gateway.events(include_data=False)
        shown = await gateway.events()
    answers = {"answer_delta", "run_finished"}
    assert "cell-secret" not in str([e for e in hidden if e.WhichOneof("event") not in answers])
    assert "cell-secret" not in str(hidden[-1].run_finished.response.agent_results[0])
    assert not hidden[-1].run_finished.response.HasField("data")
    assert "cell-secret" in str(shown)


@asynccontextmanager
async def refusing_events(dsn: str, sqlstate: str) -> AsyncIterator[None]:
    """While the block runs PostgreSQL takes no event, with the error of a real reason for that."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(
        "CREATE FUNCTION gateway.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"RAISE 'not today' USING ERRCODE = '{sqlstate}'; END $$;"
        "CREATE TRIGGER refuse BEFORE INSERT ON gateway.run_events FOR EACH ROW "
        "EXECUTE FUNCTION gateway.refuse()"
    )
    try:
        yield
    finally:
        await connection.execute("DROP FUNCTION gateway.refuse CASCADE")
        await connection.close()


async def test_store_without_write_access_refuses_questions(
    harness: Harness,
) -> None:
    await harness.add_agent(EchoAgent("echo"))
    async with harness.gateway() as gateway:
        async with refusing_events(harness.dsn, "42501"):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await gateway.ask("forbidden")
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
            assert "not today" not in (refused.value.details() or "")
        assert (await gateway.ask("allowed")).status == RUN_STATUS_SUCCEEDED
