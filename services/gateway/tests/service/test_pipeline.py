"""A run continues during its commits; uncommitted events are neither shown nor acted on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from gateway_harness.harness import Harness
from gateway_harness.run_contract import stored_runs

from bos.agent.v1 import (
    SIDE_EFFECT_CLASS_IRREVERSIBLE,
    SIDE_EFFECT_CLASS_NONE,
    SideEffectClass,
)
from bos.gateway.v1 import (
    RUN_STATUS_CANCELLED,
    RUN_STATUS_FAILED,
    RUN_STATUS_SUCCEEDED,
    AgentRequest,
    AskStreamRequest,
    CancelRunRequest,
    GetRunRequest,
)
from bos.runlog.v1 import LogEvent
from bos_gateway.core.run_state import BrokenLog, RunState
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.runs import orchestrator
from bos_postgres import connect
from bos_testkit.agents import CountingAgent, EchoAgent
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
