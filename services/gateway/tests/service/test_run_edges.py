"""Runs at the edge: during commits, without an owner, and while their store refuses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import pytest
from gateway_harness.answering import refusal
from gateway_harness.harness import Client, Harness
from gateway_harness.raw_agents import RawAgent, add_raw_agent, success
from gateway_harness.stored import adoptions, ended_once, fetch, log_of

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
)
from bos.runlog.v1 import LogEvent
from bos_agentkit import AgentTask, succeeded
from bos_chassis.settings import ServerSettings
from bos_chassis.values import make_table
from bos_errors import (
    ConfigurationError,
    Unavailable,
)
from bos_gateway.core.run_state import BrokenLog, RunState
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.runs import orchestrator
from bos_postgres import connect
from bos_testkit.agents import CountingAgent, EchoAgent, RecordingAgent, SlowAgent
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
    pure, acting = EchoAgent("pure"), CountingAgent("acting", side_effect=side_effect)
    await harness.plan(pure, acting)
    async with harness.gateway() as gateway:
        async with held(harness.dsn, "step_dispatched"):
            call = gateway.stream()
            await eventually(lambda: bool(pure.inputs))
            if early:
                await eventually(lambda: bool(acting.inputs))
            assert bool(acting.inputs) is early
        events = [message.event async for message in call]
    assert events[-1].run_finished.response.status == RUN_STATUS_SUCCEEDED
    assert len(acting.inputs) == 1


@pytest.mark.requirement("A-09")
async def test_no_event_is_shown_before_its_commit(harness: Harness) -> None:
    pure = await harness.plan(EchoAgent("pure"))
    async with harness.gateway() as gateway:
        async with held(harness.dsn, "planned"):
            call = gateway.stream()
            first = await call.read()
            # The step has begun on a plan that is not in the log yet.
            await eventually(lambda: bool(pure.inputs))
            second = asyncio.ensure_future(call.read())
            found = await gateway.run(first.event.run_id)
            assert not found.HasField("plan")
            assert found.last_sequence == 1
            assert not second.done()
        assert (await second).event.HasField("planned")
        sequences = [first.event.sequence, (await second).event.sequence]
        while (message := await call.read()) is not grpc.aio.EOF:
            if not message.event.HasField("answer_delta"):  # text has the place of its beginning
                sequences.append(message.event.sequence)
    assert sequences == sorted(set(sequences))


async def test_run_whose_log_refuses_event_ends_behind_what_is_stored(harness: Harness) -> None:
    """Its owner had gone on from the event that is refused; nothing of that counts."""
    await harness.plan(EchoAgent("pure"))
    async with harness.gateway() as gateway:
        await fetch(harness.dsn, "ALTER TABLE run_events ADD CHECK (kind <> 'step_finished')")
        assert (await gateway.ask("Go?")).status == RUN_STATUS_FAILED
    await ended_once(harness.dsn, "Go?")


async def test_nothing_that_acts_begins_once_the_run_was_cancelled(harness: Harness) -> None:
    """Though its dispatch comes into the log, before the cancel or together with it."""
    pure = EchoAgent("pure")
    acting = CountingAgent("acting", side_effect=SIDE_EFFECT_CLASS_IRREVERSIBLE)
    await harness.plan(pure, acting)
    async with harness.gateway() as gateway:
        async with held(harness.dsn, "step_dispatched"):
            call = gateway.stream()
            first = await call.read()
            await eventually(lambda: bool(pure.inputs))
            await gateway.cancel(first.event.run_id, "no")
        while (message := await call.read()) is not grpc.aio.EOF:
            last = message.event
    assert last.run_finished.response.status == RUN_STATUS_CANCELLED
    assert not acting.inputs


async def test_a_defect_in_applying_an_event_ends_the_run_at_once(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, sound = await harness.plan(EchoAgent("pure")), orchestrator.apply

    def broken(state: RunState, event: LogEvent) -> None:
        sound(state, event)
        if event.HasField("step_finished"):
            raise BrokenLog("a defect")

    monkeypatch.setattr(orchestrator, "apply", broken)
    async with harness.gateway() as gateway:
        assert (await gateway.ask("Go?")).status == RUN_STATUS_FAILED
    assert len(agent.inputs) == 1
    await ended_once(harness.dsn, "Go?")
    assert not adoptions(await log_of(harness.dsn))


async def test_run_is_driven_if_its_caller_left_during_acceptance(harness: Harness) -> None:
    async with harness.gateway() as gateway:
        async with connect(harness.dsn, schema=SCHEMA) as session, session.transaction():
            await session.execute("LOCK TABLE runs IN SHARE MODE")
            question = AgentRequest(question="Still there?", request_id="r")
            with pytest.raises(grpc.aio.AioRpcError):
                await gateway.call(AskRequest(request=question), timeout_s=0.5)
        response = await gateway.ask("Still there?", request_id="r")
    assert response.status == RUN_STATUS_SUCCEEDED
    assert len(harness.planner.requests) == 1


async def test_gateway_refuses_a_pooler_before_it_changes_the_database(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def shares_sessions(dsn: str) -> None:
        raise ConfigurationError("A connection pooler is in front.", reason="DATABASE_POOLER")

    monkeypatch.setattr("bos_gateway.service.require_session_features", shares_sessions)
    async with connect(harness.dsn) as session:
        await session.execute("DROP SCHEMA gateway CASCADE")
        with pytest.raises(ConfigurationError):
            async with harness.gateway():
                pass
        assert not await session.fetchval("SELECT to_regnamespace('gateway') IS NOT NULL")


async def test_draining_ends_streams_before_its_grace_period(harness: Harness) -> None:
    slow = await harness.plan(SlowAgent("slow"))
    grace_s = 300.0
    async with AsyncExitStack() as stack:
        opened = harness.gateway(server=ServerSettings.load(grace_s=grace_s))
        gateway = await stack.enter_async_context(opened)
        async with grpc.aio.insecure_channel(gateway.server.address) as channel:
            asked = asyncio.create_task(Client(channel, gateway.server).ask())
            await slow.started.wait()
            async with asyncio.timeout(grace_s / 2):
                await stack.aclose()
            assert isinstance(await refusal(asked), Unavailable)


class Rows(RecordingAgent):
    """Returns cells in its table, its data and its trace."""

    async def behave(self, task: AgentTask) -> AgentResult:
        task.trace.message("Fetched", row="cell-secret")
        data = {"top": "cell-secret"}
        table = make_table(["c"], [["cell-secret"]])
        return succeeded(task, answer="Here it is.", data=data, table=table)


@pytest.mark.requirement("A-02", "A-07")
async def test_without_data_a_client_sees_no_rows_in_any_event(harness: Harness) -> None:
    await harness.add_agent(Rows("rows"))
    await add_raw_agent(harness, RawAgent("next", lambda _: success()))
    harness.planner.steps = [step("a", "rows"), step("b", "next", "use @{outputs.a.top}")]
    async with harness.gateway() as gateway:
        hidden = await gateway.events(include_data=False)
        shown = await gateway.events()
    answers = {"answer_delta", "run_finished"}
    assert "cell-secret" not in str([e for e in hidden if e.WhichOneof("event") not in answers])
    assert "cell-secret" not in str(hidden[-1].run_finished.response.agent_results[0])
    assert not hidden[-1].run_finished.response.HasField("data")
    assert "cell-secret" in str(shown)


async def test_store_without_write_access_refuses_questions(harness: Harness) -> None:
    async with harness.gateway() as gateway:
        for statement in (
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE 'not today' USING ERRCODE = '42501'; END $$",
            "CREATE TRIGGER refuse BEFORE INSERT ON run_events FOR EACH ROW "
            "EXECUTE FUNCTION refuse()",
        ):
            await fetch(harness.dsn, statement)
        refused = await refusal(gateway.ask("forbidden"))
        assert refused.code == grpc.StatusCode.UNAVAILABLE
        assert "not today" not in str(refused)
        await fetch(harness.dsn, "DROP FUNCTION refuse CASCADE")
        assert (await gateway.ask("allowed")).status == RUN_STATUS_SUCCEEDED
