"""Memory of a run: context it gets, turns it stores, and runs without memory."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from gateway_harness.harness import Harness, serve_double
from gateway_harness.raw_agents import RawAgent, add_raw_agent, success
from gateway_harness.stored import fetch, until
from google.protobuf import struct_pb2

from bos.agent.v1 import SIDE_EFFECT_CLASS_NONE
from bos.common.v1 import (
    ConversationMessage,
    CriticalFacts,
    LongTermMemory,
    MessageRole,
)
from bos.gateway.v1 import RUN_STATUS_SUCCEEDED
from bos.memory.v1 import (
    ExtractFactsRequest,
    ExtractFactsResponse,
    MemoryTurnServiceServicer,
    OpenTurnResponse,
    RecordTurnRequest,
    RecordTurnResponse,
)
from bos_agentkit import tool
from bos_chassis.values import to_value_map
from bos_errors import BosError, InvalidArgument, Unavailable
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

SAID = ConversationMessage(role=MessageRole.MESSAGE_ROLE_USER, content="What was revenue in Q2?")
KNOWN = LongTermMemory(critical=CriticalFacts(user_name="Ada"))
PATIENT = {"memory_timeout_s": 20.0}


@dataclass
class MemoryDouble(MemoryTurnServiceServicer):
    """Knows ada and one question; answers unless it hangs or has an error."""

    calls: list[str] = field(default_factory=list)
    recorded: list[RecordTurnRequest] = field(default_factory=list)
    asked: list[ExtractFactsRequest] = field(default_factory=list)
    hanging: set[str] = field(default_factory=set)
    errors: dict[str, BosError] = field(default_factory=dict)
    said: list[ConversationMessage] = field(default_factory=lambda: [SAID])

    async def _called(self, method: str) -> None:
        self.calls.append(method)
        if method in self.hanging:
            await asyncio.Event().wait()
        if method in self.errors:
            raise self.errors[method]

    async def OpenTurn(self, request: Any, context: Any) -> OpenTurnResponse:
        await self._called("OpenTurn")
        history = self.said if request.conversation_id else []
        return OpenTurnResponse(conversation_history=history, long_term_memory=KNOWN)

    async def ExtractFacts(self, request: Any, context: Any) -> ExtractFactsResponse:
        await self._called("ExtractFacts")
        self.asked.append(request)
        return ExtractFactsResponse()

    async def RecordTurn(self, request: Any, context: Any) -> RecordTurnResponse:
        await self._called("RecordTurn")
        self.recorded.append(request)
        return RecordTurnResponse(recorded=True)


@pytest.fixture
async def memory() -> MemoryDouble:
    return MemoryDouble()


@pytest.fixture
async def target(memory: MemoryDouble, harness: Harness) -> str:
    return await serve_double(harness.stack, memory)


@pytest.mark.requirement("L-01", "B-15")
async def test_history_and_memory_reach_planner_and_composer(harness: Harness, target: str) -> None:
    async with harness.gateway(memory_target=target, **PATIENT) as client:
        await client.ask("And the quarter before?", conversation_id="talk")

    for request in (*harness.planner.requests, *harness.composer.requests):
        assert list(request.conversation_history) == [SAID]
        assert request.long_term_memory == KNOWN
    assert len(harness.planner.requests) == len(harness.composer.requests) == 1


@tool(description="Counts.", side_effect=SIDE_EFFECT_CLASS_NONE)
async def count() -> int:
    return 149


@pytest.mark.requirement("A-15", "C-13")
async def test_an_agents_input_is_filled_in_by_the_gateway(harness: Harness, target: str) -> None:
    orders, north = to_value_map({"orders": 149}), to_value_map({"region": "north"})
    first = RawAgent("first", lambda _: success(data=orders), tools=(count,), max_retries=3)
    secret = RawAgent("secret", lambda _: success(), secret_context_keys=["api_key"], max_retries=0)
    a, b = step("a", "first", "count the orders"), step("b", "secret", "send them", "a")
    a.tools.append("count")
    for name, value in north.fields.items():
        a.entities[name].CopyFrom(value)
    b.timeout.FromSeconds(7)
    harness.planner.steps = [a, b]
    await add_raw_agent(harness, first)
    await add_raw_agent(harness, secret)
    context = struct_pb2.Struct()
    context.update({"current_date": "2026-06-15", "api_key": "hunter2"})
    async with harness.gateway(memory_target=target, backoff_multiplier=1.5, **PATIENT) as client:
        events = await client.events("And in May?", conversation_id="talk", context=context)

    (to_first,), (to_secret,) = first.inputs, secret.inputs
    for given in (to_first, to_secret):
        assert given.question == "And in May?"
        assert list(given.conversation_history) == [SAID]
        assert given.long_term_memory == KNOWN
        assert given.context["current_date"] == "2026-06-15"
        assert "api_key" not in given.context
        assert given.retry_config.backoff_multiplier == 1.5
        assert given.metadata.run_id == events[0].run_id
        assert given.metadata.conversation_id == "talk"
        assert given.metadata.attempt == 1
        assert given.metadata.user_id
    assert (to_first.agent_id, to_first.task) == ("first_0", "count the orders")
    assert (to_secret.agent_id, to_secret.task) == ("secret_1", "send them")
    assert (list(to_first.tools), list(to_secret.tools)) == (["count"], [])
    assert (dict(to_first.entities), dict(to_secret.entities)) == (dict(north.fields), {})
    assert (dict(to_first.secrets), dict(to_secret.secrets)) == ({}, {"api_key": "hunter2"})
    retries = to_first.retry_config.max_retries, to_secret.retry_config.max_retries
    assert retries == (3, 0)
    assert 0 < to_secret.retry_config.timeout.ToTimedelta().total_seconds() <= 7
    assert not to_first.dependency_outputs
    assert to_secret.dependency_outputs["a"].fields["orders"] == orders.fields["orders"]


@pytest.mark.requirement("C-06")
async def test_question_without_a_conversation_starts_one(
    harness: Harness, target: str, memory: MemoryDouble
) -> None:
    async with harness.gateway(memory_target=target, **PATIENT) as client:
        events = await client.events("What was revenue in Q2?")
        await until(harness.dsn, REMEMBERED)

    conversation_id = events[0].run_accepted.conversation_id
    assert conversation_id == events[0].run_id
    response = events[-1].run_finished.response
    assert response.metadata.conversation_id == conversation_id
    (turn,) = memory.recorded
    assert (turn.conversation_id, turn.run_id) == (conversation_id, events[0].run_id)
    assert (turn.question, turn.answer) == ("What was revenue in Q2?", response.answer)
    assert [each.run_id for each in memory.asked] == [events[0].run_id]
    assert list(harness.planner.requests[0].conversation_history) == []
    # Without memory questions stand alone.
    async with harness.gateway() as client:
        (accepted, *_) = await client.events()
    assert accepted.run_accepted.conversation_id == ""
    assert harness.planner.requests[-1].long_term_memory == LongTermMemory()


@pytest.mark.parametrize("how", ["hangs", "fails"])
@pytest.mark.requirement("L-11")
async def test_no_run_waits_for_memory_or_fails_by_it(
    harness: Harness, target: str, memory: MemoryDouble, how: str
) -> None:
    methods = {"OpenTurn", "ExtractFacts", "RecordTurn"}
    if how == "hangs":
        memory.hanging |= methods
    else:
        memory.errors |= dict.fromkeys(methods, Unavailable("not now"))
    async with harness.gateway(memory_target=target, memory_timeout_s=0.2) as client:
        response = await client.ask()
        assert response.status == RUN_STATUS_SUCCEEDED
        await eventually(lambda: methods <= set(memory.calls))


async def test_unreadable_turn_is_skipped_and_others_are_recorded(
    harness: Harness, target: str, memory: MemoryDouble
) -> None:
    async with harness.gateway(memory_target="127.0.0.1:1") as client:
        for question in ("What was revenue in Q1?", "And in Q2?"):
            await client.ask(question, conversation_id="talk")
    await fetch(
        harness.dsn,
        "UPDATE run_events SET payload = '\\xff' WHERE kind = 'run_accepted' AND run_id = "
        "(SELECT run_id FROM runs ORDER BY created_at LIMIT 1)",
    )
    async with harness.gateway(memory_target=target, **PATIENT) as client:
        await client.ask("And in Q3?", conversation_id="talk")
        assert list(harness.planner.requests[-1].conversation_history) == [SAID]
        await until(harness.dsn, REMEMBERED)
    assert [turn.question for turn in memory.recorded] == ["And in Q2?", "And in Q3?"]


async def test_turn_of_a_dead_owner_is_recorded_by_another_gateway(
    harness: Harness, target: str, memory: MemoryDouble
) -> None:
    async with harness.gateway(memory_target="127.0.0.1:1") as client:
        await client.ask("What was revenue in Q2?")
    # As if some time had passed.
    past = "UPDATE runs SET finished_at = finished_at - interval '1 minute'"
    await fetch(harness.dsn, f"{past} WHERE remembered_at IS NULL")
    async with harness.gateway(memory_target=target, maintenance_interval_s=0.05, **PATIENT):
        await until(harness.dsn, REMEMBERED)
    assert [turn.question for turn in memory.recorded] == ["What was revenue in Q2?"]


async def test_a_turn_that_memory_refuses_for_good_is_not_sent_again(
    harness: Harness, target: str, memory: MemoryDouble
) -> None:
    memory.errors["RecordTurn"] = InvalidArgument.field("question", "cannot be stored")
    async with harness.gateway(memory_target=target, **PATIENT) as client:
        await client.ask()
        await until(harness.dsn, REMEMBERED)
    assert memory.calls.count("RecordTurn") == 1


REMEMBERED = "count(*) = 0 FROM runs WHERE remembered_at IS NULL"
