"""Hostile data: impossible numbers, deep, wide and huge values, torn rows.

In every case the run ends once, its log stays readable, and other runs are not affected.
"""

import math
from typing import Any

from gateway_harness.harness import Client, Harness, kinds, result_of
from gateway_harness.raw_agents import RawAgent, add_raw_agent, deep, nested, success, wide
from gateway_harness.stored import log_of
from google.protobuf import struct_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToJson

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_AWAITING_APPROVAL,
    AGENT_EXECUTION_STATUS_FAILED,
    AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    SIDE_EFFECT_CLASS_NONE,
    AgentCard,
    AgentResult,
    ExecuteResponse,
    PerformedAction,
    ProposedAction,
    Tool,
    TraceBatch,
)
from bos.common.v1 import (
    AgentError,
    Clarification,
    ClarifyingQuestion,
    Column,
    Row,
    Source,
    Table,
    TraceEvent,
    Usage,
    Value,
    ValueMap,
)
from bos.composer.v1 import ComposerOutput
from bos.gateway.v1 import RUN_STATUS_SUCCEEDED, ListAgentsRequest, RunEvent
from bos.planner.v1 import MakePlanResponse, Plan
from bos_chassis.values import MAX_DEPTH, make_table
from bos_gateway.core.result_limits import (
    MAX_CALL_TOKENS,
)
from bos_plans import MAX_VALUES
from bos_testkit.plans import step

INT64 = 2**63 - 1


async def read_by_all(harness: Harness, gateway: Client, events: list[RunEvent]) -> None:
    """The run has one end, and all readers can read all of it."""
    run_id = events[0].run_id
    log = await log_of(harness.dsn, "run_id = $1", run_id)  # as a later owner has to
    assert [e.HasField("run_finished") for e in log] == [False] * (len(log) - 1) + [True]
    run = await gateway.run(run_id)
    assert run.response.run_id == run_id
    watched = await gateway.watch(run_id)
    assert kinds(watched)[-1] == "run_finished"
    for message in (run, *watched):
        assert MessageToJson(message), "what HTTP clients read"


def hostile_usage(number: int) -> Usage:
    usage = Usage(
        input_tokens=number,
        output_tokens=number,
        cost_micros=number,
        unreported_tokens=number,
        cached_input_tokens=number,
        models=["m" * 1000] * 1000,
    )
    for name in ("model_calls", "api_calls", "abandoned_calls"):
        setattr(usage, name, max(-(2**31), min(number, 2**31 - 1)))
    usage.duration.seconds = number
    return usage


async def test_impossible_numbers_are_clamped_and_the_result_is_kept(harness: Harness) -> None:
    evil = await add_raw_agent(harness, RawAgent("evil", lambda _: success()))
    async with harness.gateway(max_run_tokens=10**12, max_day_tokens=10**13) as gateway:
        for number in (-(2**63), INT64):
            result = success(confidence=math.nan, usage=hostile_usage(number))
            result.sources.append(Source(relevance=math.inf, page=-3))
            result.latency.seconds = number
            result.table.CopyFrom(make_table(["n"], [[1], [2]]))
            result.table.row_count = number
            evil.make = lambda _, result=result: result
            plan = Plan(steps=[step("a", "evil"), step("b", "evil")])
            answer = MakePlanResponse(plan=plan, usage=hostile_usage(number))
            answer.decision.confidence = math.nan
            answer.intent.confidence = -math.inf
            answer.trace.add().create_time.seconds = number
            harness.planner.answer = answer
            events = await gateway.events(trace=True)
            await read_by_all(harness, gateway, events)
            check_numbers(events, number)
        assert gateway.metric("bos_runs_total", outcome="succeeded") == 2


def check_numbers(events: list[RunEvent], number: int) -> None:
    result, response = result_of(events, "a"), events[-1].run_finished.response
    assert (result.status, result.answer) == (AGENT_EXECUTION_STATUS_SUCCEEDED, "Fine.")
    assert (result.confidence, result.sources[0].relevance) == (0, 1)
    assert (result.sources[0].page, result.table.row_count) == (0, 2)
    assert result.usage.input_tokens == (0 if number < 0 else MAX_CALL_TOKENS)
    assert response.metadata.usage.input_tokens == (0 if number < 0 else 3 * MAX_CALL_TOKENS)
    assert response.metadata.planner_confidence == 0
    messages = [t.message for e in events for t in e.step_progress.events]
    assert any("usage.input_tokens" in text and "confidence" in text for text in messages)


def placed(value: Value, where: str) -> AgentResult:
    """A result that holds the value in one of the places where it can."""
    fields = ValueMap(fields={"k": value})
    match where:
        case "cell":
            row = Row(values=[value])
            return success(table=Table(columns=[Column(name="c")], rows=[row]))
        case "details":
            error = AgentError(type="X", message="x", details={"k": value})
            return success(status=AGENT_EXECUTION_STATUS_FAILED, error=error)
        case "performed":
            action = ProposedAction(arguments=fields)
            return success(performed_actions=[PerformedAction(action=action, result=fields)])
        case _:
            return success(**{where: fields})


PLACES = ["data", "partial_data", "cell", "details", "performed"]


async def test_deepest_values_are_read_and_deeper_ones_fail_their_step(harness: Harness) -> None:
    depth = MAX_DEPTH
    for where in PLACES:
        agent = RawAgent(where, lambda c, where=where: placed(nested(depth), where))
        agent.card.tools.append(Tool(name="look", side_effect=SIDE_EFFECT_CLASS_NONE))
        await add_raw_agent(harness, agent)
    harness.planner.steps = [step(f"s_{where}", where) for where in PLACES]
    async with harness.gateway() as gateway:
        deepest = await gateway.events()
        await read_by_all(harness, gateway, deepest)
        depth += 1
        deeper = await gateway.events()
        await read_by_all(harness, gateway, deeper)
    for where in PLACES:
        assert result_of(deepest, f"s_{where}").error.type in ("", "X"), where
        error = result_of(deeper, f"s_{where}").error
        assert error.type == "AgentProtocolError", where
        assert "nests lists and maps more than 24 deep" in error.message


async def test_invalid_duration_of_an_action_is_dropped(harness: Harness) -> None:
    def action(name: str, seconds: int) -> ProposedAction:
        made = ProposedAction(action_id=name, tool="look", digest=f"sha256:{name}")
        made.approval_timeout.seconds = seconds
        return made

    def proposing(context: Any) -> AgentResult:
        asks = AGENT_EXECUTION_STATUS_AWAITING_APPROVAL
        return success(status=asks, proposed_actions=[action("p", 60), action("q", 2**62)])

    def performing(context: Any) -> AgentResult:
        did = action("p", 60), action("q", -(2**63))
        return success(performed_actions=[PerformedAction(action=each) for each in did])

    agent = RawAgent("proposing", proposing)
    agent.card.tools.append(Tool(name="look"))
    await add_raw_agent(harness, agent)
    await add_raw_agent(harness, RawAgent("performing", performing))
    harness.planner.steps = [step("a", "performing"), step("b", "proposing", "x", "a")]
    async with harness.gateway(approval_timeout_s=1.0) as gateway:
        events = await gateway.events(trace=True)
        await read_by_all(harness, gateway, events)
    (asked,) = [e.approval_requested.approval for e in events if e.HasField("approval_requested")]
    did = [each.action for each in result_of(events, "a").performed_actions]
    for actions in (asked.actions, did):
        assert [a.action_id for a in actions] == ["p", "q"]
        assert actions[0].approval_timeout.seconds == 60
        assert not actions[1].HasField("approval_timeout")
    messages = [t.message for e in events for t in e.step_progress.events]
    assert sum("approval_timeout" in text for text in messages) == 2


async def test_nul_characters_deep_values_and_long_times_are_stored(harness: Harness) -> None:
    odd = ValueMap(fields={"a\0b": Value(string_value="c\0d")})

    async def tracing(_: Any) -> Any:
        deep = TraceEvent(message="deep", data={"k": nested(MAX_DEPTH + 1)})
        fine = TraceEvent(message="fine", data={"k": nested(MAX_DEPTH)})
        yield ExecuteResponse(trace=TraceBatch(events=[deep, fine]))
        yield ExecuteResponse(result=success(answer="x\0y", data=odd))

    await add_raw_agent(harness, RawAgent("odd", tracing))
    harness.planner.steps = [step("a", "odd"), step("b", "odd", "with @{outputs.a.answer}")]
    harness.composer.output = ComposerOutput(answer="x\0y")
    context = deep(MAX_DEPTH)
    context.fields["a\0b"].string_value = "c\0d"
    longest = Duration(seconds=315_576_000_000)
    async with harness.gateway() as gateway:
        events = await gateway.events(context=context, timeout=longest, trace=True)
        await read_by_all(harness, gateway, events)
    assert events[-1].run_finished.response.answer == "x\0y"
    traced = {t.message: len(t.data) for e in events for t in e.step_progress.events}
    assert (traced["deep"], traced["fine"]) == (0, 1)


async def test_too_many_values_fail_their_step_and_rows_are_truncated(harness: Harness) -> None:
    many = success(data=ValueMap(fields={"k": wide(MAX_VALUES + 1)}))
    row = Row(values=[Value(), Value()])
    columns = [Column(name="a"), Column(name="b")]
    tall = success(table=Table(columns=columns, rows=[row] * (MAX_VALUES // 2 + 1)))
    await harness.plan(RawAgent("many", lambda _: many), RawAgent("tall", lambda _: tall))
    async with harness.gateway() as gateway:
        events = await gateway.events()
        await read_by_all(harness, gateway, events)
    assert "holds more than 100000 values" in result_of(events, "a").error.message
    assert result_of(events, "b").table.truncated
    assert result_of(events, "b").table.row_count <= MAX_VALUES // 2


async def test_output_of_a_composer_is_bounded_as_well(harness: Harness) -> None:
    await harness.plan(RawAgent("good", lambda c: success()))
    output = ComposerOutput(answer="Here it is.", usage=hostile_usage(INT64))
    output.data.columns.add(name="c")
    output.data.rows.add(values=[nested(MAX_DEPTH + 1)])
    output.sources.add(relevance=math.nan, excerpt="x" * 3_000_000)
    output.trace.add(data={"k": nested(MAX_DEPTH + 1)})
    harness.composer.output = output
    async with harness.gateway(max_run_tokens=10**12) as gateway:
        events = await gateway.events(trace=True)
        await read_by_all(harness, gateway, events)
    response = events[-1].run_finished.response
    assert (response.answer, response.status) == ("Here it is.", RUN_STATUS_SUCCEEDED)
    assert not response.HasField("data")
    assert response.sources[0].relevance == 0
    assert response.metadata.usage.output_tokens == MAX_CALL_TOKENS


async def test_questions_of_many_steps_can_be_received(harness: Harness) -> None:
    asked = Clarification(questions=[ClarifyingQuestion(question="What? " * 1000)] * 100)
    asks = AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION
    await add_raw_agent(
        harness, RawAgent("asking", lambda c: success(status=asks, clarification=asked))
    )
    harness.planner.steps = [step(f"s{n}", "asking") for n in range(16)]
    async with harness.gateway() as gateway:
        events = await gateway.events()
        await read_by_all(harness, gateway, events)
    response = events[-1].run_finished.response
    assert response.ByteSize() < 1024 * 1024
    assert response.clarification.questions[0].question.startswith("What?")


def with_schema_of(depth: int) -> AgentCard:
    schema = struct_pb2.Struct(fields={"properties": deep(depth).fields["deep"]})
    return AgentCard(tools=[Tool(name="t", input_schema=schema)])


async def test_agents_with_invalid_cards_are_left_out(harness: Harness) -> None:
    longest, beyond = Duration(seconds=315_576_000_000), Duration(seconds=2**62)
    valid = {
        "schema": with_schema_of(MAX_DEPTH),
        "step": AgentCard(default_timeout=longest),
        "latency": AgentCard(latency_budget=longest),
    }
    invalid = {
        "nul": AgentCard(tools=[Tool(name="send\0")]),
        "upper": AgentCard(tools=[Tool(name="Send")]),
        "long": AgentCard(tools=[Tool(name="x" * 64)]),
        "empty": AgentCard(tools=[Tool(name="")]),
        "deep": with_schema_of(MAX_DEPTH + 1),
        "never": AgentCard(default_timeout=beyond),
        "late": AgentCard(latency_budget=beyond),
    }
    for name, card in {**valid, **invalid}.items():
        agent = RawAgent(name, lambda c: success())
        agent.card.MergeFrom(card)
        await add_raw_agent(harness, agent)
    harness.planner.steps = [step(name, name) for name in valid]
    async with harness.gateway() as gateway:
        events = await gateway.events()
        await read_by_all(harness, gateway, events)
        agents = await gateway.stub.ListAgents(ListAgentsRequest())
        assert MessageToJson(agents)
    assert {each.card.name for each in agents.agents if each.available} == set(valid)
    assert {card.name for card in harness.planner.requests[-1].cards} == set(valid)
