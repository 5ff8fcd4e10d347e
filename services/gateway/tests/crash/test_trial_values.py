"""Trials: impossible numbers, depth, width and references from agents and users.

For any result of an agent, its run ends once, stays readable, and does not affect others.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from gateway_harness.trials import (
    add_raw,
    code_of,
    ended_once,
    fetch,
    log_of,
    plan_by_question,
    readable,
    replica,
    served,
    succeeded,
)
from google.protobuf import struct_pb2
from google.protobuf.message import DecodeError

from bos.agent.v1 import AGENT_EXECUTION_STATUS_SUCCEEDED
from bos.common.v1 import Value, ValueList
from bos.gateway.v1 import RUN_STATUS_SUCCEEDED, AgentRequest, AskStreamRequest
from bos.memory.v1 import (
    ExtractFactsResponse,
    MemoryTurnServiceServicer,
    OpenTurnResponse,
    RecordTurnResponse,
    add_MemoryTurnServiceServicer_to_server,
)
from bos_testkit.plans import step

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway_harness.harness import Harness

    from bos.agent.v1 import AgentInput, AgentResult

INT64_MAX = 2**63 - 1
DAY_TOKENS = 10**9
_REFERENCED = 250_000
_MOST_MEMORY_KIB = 1024 * 1024


def of_usage(**usage: int) -> Callable[[], AgentResult]:
    def make() -> AgentResult:
        result = succeeded()
        for name, value in usage.items():
            setattr(result.usage, name, value)
        return result

    return make


def of_confidence(value: float) -> Callable[[], AgentResult]:
    def make() -> AgentResult:
        result = succeeded()
        result.confidence = value
        return result

    return make


def of_duration(seconds: int) -> Callable[[], AgentResult]:
    def make() -> AgentResult:
        result = succeeded()
        result.usage.duration.seconds = seconds
        return result

    return make


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(of_usage(input_tokens=100, output_tokens=5), id="sound"),
        pytest.param(of_usage(input_tokens=-5), id="negative tokens"),
        pytest.param(of_usage(model_calls=-1, api_calls=-1), id="negative calls"),
        pytest.param(of_usage(cost_micros=-(10**15)), id="negative cost"),
        pytest.param(of_usage(input_tokens=INT64_MAX, output_tokens=INT64_MAX), id="huge tokens"),
        pytest.param(of_usage(model_calls=2**31 - 1, abandoned_calls=2**31 - 1), id="huge calls"),
        pytest.param(of_usage(unreported_tokens=-INT64_MAX), id="most negative"),
        pytest.param(of_confidence(float("nan")), id="no number"),
        pytest.param(of_confidence(float("-inf")), id="infinite"),
        pytest.param(of_duration(-1), id="negative time"),
        pytest.param(of_duration(2**62), id="time no clock can tell"),
    ],
)
async def test_run_ends_once_with_absurd_numbers_from_its_agents(
    harness: Harness, make: Callable[[], AgentResult]
) -> None:
    async def evil(_: AgentInput, __: Any) -> AgentResult:
        return make()

    await add_raw(harness, "evil", evil)
    await add_raw(harness, "good")
    # Two at once, so that sums overflow that each alone would not.
    plan_by_question(
        harness, {"evil": [step("a", "evil"), step("b", "evil")], "good": [step("a", "good")]}
    )
    async with replica(harness) as (_, client, _):
        events = await client.events("evil?")
        assert events[-1].HasField("run_finished")
        end = await ended_once(harness, "evil?")
        usage = end.run_finished.response.metadata.usage
        assert min(usage.input_tokens, usage.output_tokens, usage.model_calls) >= 0
        run = await readable(client, events[0].run_id)
        assert run.status == end.run_finished.response.status
        assert (await client.ask("good?")).status == RUN_STATUS_SUCCEEDED
    assert len(await log_of(harness, "evil?")) == events[-1].sequence


async def test_absurd_usage_of_two_runs_does_not_exhaust_the_day(harness: Harness) -> None:
    both = asyncio.Barrier(2)

    async def evil(_: AgentInput, __: Any) -> AgentResult:
        await both.wait()
        return of_usage(input_tokens=2**62, output_tokens=2**62, unreported_tokens=2**62)()

    await add_raw(harness, "evil", evil)
    await add_raw(harness, "good")
    plan_by_question(harness, {"evil": [step("a", "evil")], "good": [step("a", "good")]})
    async with replica(harness, max_run_tokens=100_000, max_day_tokens=DAY_TOKENS) as (
        _,
        client,
        _,
    ):
        await asyncio.gather(*(client.ask(f"evil {n}?", max_tokens=100_000) for n in range(2)))
        for n in range(2):
            await ended_once(harness, f"evil {n}?")
        assert (await client.ask("good?")).status == RUN_STATUS_SUCCEEDED
        # A run can be claimed to have cost more than it was given, but not any amount more.
        (row,) = await fetch(harness, "SELECT coalesce(max(tokens), 0) AS tokens FROM token_days")
    assert 0 <= row["tokens"] < DAY_TOKENS


def nested_struct(depth: int) -> struct_pb2.Struct:
    value = struct_pb2.Value(string_value="x")
    for _ in range(depth):
        value = struct_pb2.Value(list_value=struct_pb2.ListValue(values=[value]))
    return struct_pb2.Struct(fields={"k": value})


def nested_value(depth: int) -> Value:
    value = Value(string_value="x")
    for _ in range(depth):
        value = Value(list_value=ValueList(values=[value]))
    return value


def deepest_context() -> int:
    """All that protobuf itself carries as far as the door."""
    for depth in range(30, 100):
        try:
            request = AskStreamRequest(request=AgentRequest(context=nested_struct(depth)))
            AskStreamRequest.FromString(request.SerializeToString())
        except DecodeError:
            return depth - 1
    raise AssertionError("protobuf has no limit any more")


async def test_question_that_is_accepted_can_be_read_however_deep_its_context(
    harness: Harness,
) -> None:
    await add_raw(harness, "good")
    harness.planner.steps = [step("a", "good")]
    refused = []
    async with replica(harness) as (_, client, _):
        deepest = deepest_context()
        for depth in range(1, deepest + 1):
            call = client.events(f"depth {depth}?", context=nested_struct(depth))
            code = await code_of(call)
            if code is not grpc.StatusCode.OK:
                refused.append((depth, code))
                continue
            end = await ended_once(harness, f"depth {depth}?")
            assert end.run_finished.response.status == RUN_STATUS_SUCCEEDED
            run_id = (await fetch(harness, "SELECT run_id FROM runs ORDER BY created_at DESC"))[0]
            await readable(client, str(run_id["run_id"]))
        runs = await fetch(harness, "SELECT question FROM runs")
    # Anybody's ordinary context passes; what is too deep is refused at the door, for good.
    first = refused[0][0]
    assert 10 < first <= deepest
    assert [depth for depth, _ in refused] == list(range(first, deepest + 1))
    assert {code for _, code in refused} == {grpc.StatusCode.INVALID_ARGUMENT}
    assert len(runs) == first - 1


@pytest.mark.parametrize("depth", [5, 20, 31, 45, 46, 47, 48, 49])
async def test_run_can_be_read_however_deep_its_agents_result(harness: Harness, depth: int) -> None:
    async def deep(_: AgentInput, __: Any) -> AgentResult:
        result = succeeded("deep")
        result.data.fields["k"].CopyFrom(nested_value(depth))
        return result

    await add_raw(harness, "deep", deep)
    await add_raw(harness, "good")
    harness.planner.steps = [step("a", "deep"), step("b", "good", "", "a")]
    async with replica(harness) as (_, client, _):
        events = await client.events("deep?")
        end = await ended_once(harness, "deep?")
        await readable(client, events[0].run_id)
    if depth <= 20:
        assert end.run_finished.response.status == RUN_STATUS_SUCCEEDED


class MemoryDouble(MemoryTurnServiceServicer):
    """Stores nothing of any turn."""

    async def OpenTurn(self, request: Any, context: Any) -> OpenTurnResponse:
        return OpenTurnResponse()

    async def RecordTurn(self, request: Any, context: Any) -> RecordTurnResponse:
        return RecordTurnResponse()

    async def ExtractFacts(self, request: Any, context: Any) -> ExtractFactsResponse:
        return ExtractFactsResponse()


async def test_conversation_goes_on_after_a_question_that_was_too_deep(harness: Harness) -> None:
    memory = await served(
        harness,
        MemoryDouble(),
        add_MemoryTurnServiceServicer_to_server,
        "bos.memory.v1.MemoryTurnService",
    )
    await add_raw(harness, "good")
    harness.planner.steps = [step("a", "good")]
    async with replica(harness, memory_target=memory) as (_, client, _):
        await client.ask("first?", conversation_id="c1")
        for depth in range(25, deepest_context() + 1):
            deep = client.ask(f"depth {depth}?", conversation_id="c1", context=nested_struct(depth))
            assert await code_of(deep) in {
                grpc.StatusCode.OK,
                grpc.StatusCode.INVALID_ARGUMENT,
            }
        for n in range(3):
            answer = await client.ask(f"next {n}?", conversation_id="c1")
            assert answer.status == RUN_STATUS_SUCCEEDED


def wide_data() -> AgentResult:
    result = succeeded("wide")
    for n in range(200_000):
        result.data.fields[f"k{n}"].int64_value = n
    return result


def long_text() -> AgentResult:
    return succeeded("x" * 6_000_000)


def many_rows() -> AgentResult:
    result = succeeded("rows")
    result.table.columns.add(name="c")
    for n in range(150_000):
        result.table.rows.add().values.add().int64_value = n
    return result


def odd_text() -> AgentResult:
    result = succeeded("nul \0 and \ufffe")
    result.data.fields["\0"].string_value = "\0"
    return result


@pytest.mark.parametrize("make", [wide_data, long_text, many_rows, odd_text])
async def test_run_ends_and_can_be_read_however_wide_its_agents_result(
    harness: Harness, make: Callable[[], AgentResult]
) -> None:
    async def evil(_: AgentInput, __: Any) -> AgentResult:
        return make()

    await add_raw(harness, "evil", evil)
    harness.planner.steps = [step("a", "evil")]
    async with replica(harness) as (_, client, _):
        events = await client.events("wide?")
        await ended_once(harness, "wide?")
        await readable(client, events[0].run_id)


def peak_memory_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


@pytest.mark.parametrize("references", [60, 250, 2400])
async def test_plan_with_gigabytes_of_references_does_not_affect_others(
    harness: Harness, references: int
) -> None:
    """60 of 250 KB are too large for one dispatch already; 2,400 would be 600 MB."""

    async def large(_: AgentInput, __: Any) -> AgentResult:
        return succeeded("x" * _REFERENCED)

    await add_raw(harness, "large", large)
    await add_raw(harness, "good")
    greedy = step("b", "good")
    reference = Value(string_value="@{outputs.a.answer}")
    greedy.sub_task_input["all"].list_value.values.extend([reference] * references)
    plan_by_question(harness, {"greedy": [step("a", "large"), greedy], "good": [step("a", "good")]})
    async with replica(harness) as (process, client, replica_id):
        greedy_run = asyncio.create_task(client.events("greedy?"))
        others = [await client.ask(f"good {n}?") for n in range(20)]
        await greedy_run
        assert {other.status for other in others} == {RUN_STATUS_SUCCEEDED}
        end = await ended_once(harness, "greedy?")
        # A plan of so many references is none, and no agent here has keywords to be found by.
        results = {each.agent_name: each.status for each in end.run_finished.response.agent_results}
        assert results.get("good") != AGENT_EXECUTION_STATUS_SUCCEEDED
        # It is one step that fails, and not the replica that loses its lease over it.
        owners = await fetch(harness, "SELECT DISTINCT epoch FROM run_events")
        assert [row["epoch"] for row in owners] == [1], replica_id
        assert peak_memory_kib(process.pid) < _MOST_MEMORY_KIB
