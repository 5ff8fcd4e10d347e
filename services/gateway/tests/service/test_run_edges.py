"""Runs at the edge: during commits, without an owner, and while their store refuses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
import grpc
import pytest
from gateway_harness.harness import Client, Harness
from gateway_harness.run_contract import stored_runs

from bos.agent.v1 import (
    SIDE_EFFECT_CLASS_IRREVERSIBLE,
    SIDE_EFFECT_CLASS_NONE,
    AgentResult,
    SideEffectClass,
)
from bos.gateway.v1 import (
    RUN_STATUS_CANCELLED,
    RUN_STATUS_FAILED,
    RUN_STATUS_SUCCEEDED,
    AgentRequest,
    AskRequest,
    AskStreamRequest,
    CancelRunRequest,
    GetRunRequest,
)
from bos.runlog.v1 import LogEvent
from bos_agentkit import Agent, AgentTask, agent_card, succeeded
from bos_chassis.settings import ServerSettings
from bos_chassis.values import make_table
from bos_errors import (
    ConfigurationError,
    Unavailable,
    from_rpc_error,
)
from bos_gateway.core.run_state import BrokenLog, RunState
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.runs import orchestrator
from bos_postgres import connect
from bos_testkit.agents import CountingAgent, EchoAgent, SlowAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

_HOLD = """
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END $$;
CREATE TRIGGER hold BEFORE INSERT ON run_events FOR EACH ROW
WHEN (NEW.kind = '{kind}') EXECUTE FUNCTION hold();
"""


@asynccontextmanager
async def held(dsn: str, kind: str) -> AsyncIterator[None]:
    """Events of this kind do not come into the log while the block runs."""
    async with connect(dsn, schema=SCHEMA) as session:
        await session.execute(_HOLD.format(kind=kind))
        async with session.transaction():
            await session.execute("SELECT pg_advisory_xact_lock(7)")
            yield


@pytest.mark.parametrize(
    ("side_effect", "early"),
    [(SIDE_EFFECT_CLASS_NONE, True), (SIDE_EFFECT_CLASS_IRREVERSIBLE, False)],
)
async def test_only_harmless_steps_start_before_their_dispatch(
    harness: Harness, side_effect: SideEffectClass, early: bool
) -> None:
    acting, pure = CountingAgent("acting", side_effect=side_effect), EchoAgent("pure")
    await harness.add_agent(acting)
    await harness.add_agent(pure)
    harness.planner.steps = [step("p", "pure"), step("a", "acting")]
    async with harness.gateway() as gateway:
        async with held(harness.dsn, "step_dispatched"):
            call = gateway.stub.AskStream(
                AskStreamRequest(request=AgentRequest(question="Go?")), timeout=60
            )
            await eventually(lambda: bool(pure.inputs))
            if early:
                await eventually(lambda: bool(acting.inputs))
            assert bool(acting.inputs) is early
        events = [message.event async for message in call]
    assert events[-1].run_finished.response.status == RUN_STATUS_SUCCEEDED
    assert len(acting.inputs) == 1


@pytest.mark.requirement("A-09")
async def test_no_event_is_shown_before_its_commit(harness: Harness) -> None:
    pure = EchoAgent("pure")
    await harness.add_agent(pure)
    harness.planner.steps = [step("p", "pure")]
    async with harness.gateway() as gateway:
        async with held(harness.dsn, "planned"):
            call = gateway.stub.AskStream(
                AskStreamRequest(request=AgentRequest(question="Go?")), timeout=60
            )
            first = await call.read()
            # The step has begun on a plan that is not in the log yet.
            await eventually(lambda: bool(pure.inputs))
            second = asyncio.ensure_future(call.read())
            request = GetRunRequest(run_id=first.event.run_id)
            found = (await gateway.stub.GetRun(request, timeout=20)).run
            assert not found.HasField("plan")
            assert found.last_sequence == 1
            assert not second.done()
        assert (await second).event.HasField("planned")
        sequences = [first.event.sequence, (await second).event.sequence]
        while (message := await call.read()) is not grpc.aio.EOF:
            if not message.event.HasField("answer_delta"):  # text has the place of its beginning
                sequences.append(message.event.sequence)
    assert sequences == sorted(set(sequences))


async def test_run_whose_log_refuses_event_ends_behind_what_is_stored(
    harness: Harness,
) -> None:
    """Its owner had gone on from the event that is refused; nothing of that counts."""
    pure = EchoAgent("pure")
    await harness.add_agent(pure)
    harness.planner.steps = [step("p", "pure")]
    async with harness.gateway() as gateway:
        async with connect(harness.dsn, schema=SCHEMA) as session:
            await session.execute("ALTER TABLE run_events ADD CHECK (kind <> 'step_finished')")
        response = await gateway.ask("Go?", request_id="r")
        assert response.status == RUN_STATUS_FAILED
    run = (await stored_runs(harness.dsn))["r"]
    assert run.finished
    assert run.sequences == list(range(1, len(run.events) + 1))
    assert [event.HasField("run_finished") for event in run.events].count(True) == 1


async def test_nothing_that_acts_begins_once_the_run_was_cancelled(harness: Harness) -> None:
    """Though its dispatch comes into the log, before the cancel or together with it."""
    acting, pure = (
        CountingAgent("acting", side_effect=SIDE_EFFECT_CLASS_IRREVERSIBLE),
        EchoAgent("p"),
    )
    await harness.add_agent(acting)
    await harness.add_agent(pure)
    harness.planner.steps = [step("p", "p"), step("a", "acting")]
    async with harness.gateway() as gateway:
        async with held(harness.dsn, "step_dispatched"):
            call = gateway.stub.AskStream(
                AskStreamRequest(request=AgentRequest(question="Go?")), timeout=60
            )
            first = await call.read()
            await eventually(lambda: bool(pure.inputs))
            request = CancelRunRequest(run_id=first.event.run_id, reason="no")
            await gateway.stub.CancelRun(request, timeout=20)
        while (message := await call.read()) is not grpc.aio.EOF:
            last = message.event
    assert last.run_finished.response.status == RUN_STATUS_CANCELLED
    assert not acting.inputs


async def test_a_defect_in_applying_an_event_ends_the_run_at_once(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, sound = EchoAgent("pure"), orchestrator.apply

    def broken(state: RunState, event: LogEvent) -> None:
        sound(state, event)
        if event.HasField("step_finished"):
            raise BrokenLog("a defect")

    await harness.add_agent(agent)
    harness.planner.steps = [step("p", "pure")]
    monkeypatch.setattr(orchestrator, "apply", broken)
    async with harness.gateway() as gateway:
        response = await gateway.ask("Go?", request_id="r")
    assert response.status == RUN_STATUS_FAILED
    assert len(agent.inputs) == 1
    run = (await stored_runs(harness.dsn))["r"]
    assert run.sequences == list(range(1, len(run.events) + 1))
    assert not any(event.HasField("run_adopted") for event in run.events)


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
