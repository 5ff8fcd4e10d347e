"""What is handed on is bounded: rows, traces, answers, large results, and pages of the log."""

from pathlib import Path
from typing import Any

import pytest
from gateway_harness.harness import Harness, result_of
from gateway_harness.ownership_rows import insert_run
from gateway_harness.raw_agents import RawAgent, add_raw_agent, success
from gateway_harness.streamed import logged

from bos.agent.v1 import AgentResult
from bos.common.v1 import TraceEventType, Value, ValueMap
from bos.gateway.v1 import RUN_STATUS_SUCCEEDED
from bos.runlog.v1 import LogEvent, StepFinished
from bos_agentkit import AgentTask, succeeded
from bos_errors import ConfigurationError
from bos_gateway.core.result_limits import MAX_RESULT_BYTES, MAX_TRACE_BYTES, MAX_TRACE_EVENTS
from bos_gateway.effects import compose
from bos_gateway.run_log.reader import PAGE_BYTES, PAGE_EVENTS, READER, Runs
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import open_database
from bos_testkit.agents import EchoAgent, RecordingAgent
from bos_testkit.plans import step

CELL = "x" * 250


ROWS = 7000
MIB = 1024 * 1024

_EVENT = """
INSERT INTO run_events
    (run_id, sequence, event_id, epoch, kind, schema_version, payload, created_at)
VALUES ($1, $2, gen_random_uuid(), 1, 'step_finished', 1, $3, now())
"""


class TableAgent(RecordingAgent):
    """Succeeds with a table of nearly 2 MiB."""

    def __init__(self, name: str = "tables", rows: int = ROWS) -> None:
        super().__init__(name)
        self.rows = rows

    async def behave(self, task: AgentTask) -> AgentResult:
        result = succeeded(task, answer="a table")
        result.table.columns.add(name="n")
        result.table.columns.add(name="text")
        for number in range(self.rows):
            row = result.table.rows.add()
            row.values.add(int64_value=number)
            row.values.add(string_value=CELL)
        result.table.row_count = self.rows
        return result


class Chatty(RecordingAgent):
    """Traces a given number of messages of a given size."""

    def __init__(self, name: str, count: int, chars: int) -> None:
        super().__init__(name)
        self._said = ["x" * chars] * count

    async def behave(self, task: AgentTask) -> AgentResult:
        for text in self._said:
            task.trace.message("said", text=text)
        return await super().behave(task)


@pytest.mark.requirement("A-05", "A-24", "N-07")
async def test_bounds_backend_and_key_profile_reach_agents(harness: Harness) -> None:
    """Fields of the context that are called like them change nothing."""
    context = {"max_rows": "many", "max_cols": -1, "timeout": 1e308, "backend": ["a"], "debug": 1}
    context |= {"api_keys_config_ref": "of another user"}
    agent, other = TableAgent("tables", rows=4), EchoAgent("other")
    await harness.plan(agent, other)
    async with harness.gateway(key_profiles={"tables": "research", "*": "common"}) as gateway:
        response = await gateway.ask(max_rows=1, max_columns=1, backend="sales")
        unbounded = await gateway.ask(context=context)
    assert response.status == RUN_STATUS_SUCCEEDED
    for found in (response.data, response.agent_results[0].table):
        assert (len(found.rows), len(found.columns), found.truncated) == (1, 1, True)
    assert len(unbounded.data.rows) == 4
    given, free = agent.inputs
    assert (given.max_rows, given.max_columns, given.backend) == (1, 1, "sales")
    assert not free.HasField("max_rows")
    assert not free.HasField("max_columns")
    assert not free.backend
    assert {name: free.context[name] for name in ("max_rows", "max_cols", "timeout", "debug")} == {
        name: context[name] for name in ("max_rows", "max_cols", "timeout", "debug")
    }
    profiles = [each.inputs[-1].api_keys_config_ref for each in (agent, other)]
    assert profiles == ["research", "common"]


async def test_answer_beyond_the_stream_limit_is_stored_whole(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compose, "MAX_STREAMED_BYTES", 12)
    harness.composer.deltas = ["one ", "two ", "three"]
    async with harness.gateway() as gateway:
        events = await gateway.events()
    streamed = [e.answer_delta.text for e in events if e.HasField("answer_delta")]
    assert "".join(streamed) == "one two "
    response = events[-1].run_finished.response
    assert response.answer == "one two three"
    assert response.status == RUN_STATUS_SUCCEEDED


async def test_trace_of_a_step_is_kept_within_bounds(harness: Harness) -> None:
    counts = {"many": MAX_TRACE_EVENTS + 100, "large": 400}
    await harness.add_agent(Chatty("many", counts["many"], 10))
    await harness.add_agent(Chatty("large", counts["large"], 4000))
    harness.planner.steps = [step(name, name) for name in counts]
    async with harness.gateway() as gateway:
        events = await gateway.events(trace=True)
    for name, count in counts.items():
        progress = [e.step_progress for e in events if e.step_progress.step_id == name]
        kept = [each for batch in progress for each in batch.events]
        assert 0 < len(kept) <= MAX_TRACE_EVENTS
        assert sum(event.ByteSize() for event in kept) <= MAX_TRACE_BYTES
        assert all(event.type == TraceEventType.TRACE_EVENT_TYPE_MESSAGE for event in kept)
        assert len(kept) < count
        assert result_of(events, name).answer


async def test_dependents_composer_and_clients_get_all_rows(harness: Harness) -> None:
    second = EchoAgent("second")
    await harness.add_agent(TableAgent())
    await harness.add_agent(second)
    harness.planner.steps = [step("a", "tables"), step("b", "second", "", "a")]
    async with harness.gateway() as gateway:
        events = await gateway.events()
        run = await gateway.run(events[0].run_id)
        async with harness.gateway() as elsewhere:
            assert await elsewhere.watch(events[0].run_id) == logged(events)
    handed = second.inputs[0].dependency_outputs["a"].fields["rows"].list_value.values
    assert len(handed) == ROWS
    assert handed[-1].map_value.fields["text"].string_value == CELL
    assert len(harness.composer.requests[0].results[0].table.rows) == ROWS
    assert len(result_of(events, "a").table.rows) == ROWS
    assert len(run.response.data.rows) == ROWS


@pytest.mark.parametrize("limit", ["per result", "per run"])
async def test_what_is_too_large_is_cut_and_the_trace_says_so(harness: Harness, limit: str) -> None:
    await harness.add_agent(TableAgent(rows=4000))
    harness.planner.steps = [step("a", "tables"), step("b", "tables", "", "a")]
    settings: dict[str, Any] = {
        "per result": {"max_result_bytes": 500_000},
        "per run": {"max_run_result_bytes": 1_200_000},
    }[limit]
    async with harness.gateway(**settings) as gateway:
        events = await gateway.events(trace=True)
    first, second = result_of(events, "a"), result_of(events, "b")
    assert first.table.truncated is (limit == "per result")
    assert second.table.truncated
    assert second.ByteSize() <= (500_000 if limit == "per result" else 262_144)
    messages = [t.message for e in events for t in e.step_progress.events if "was cut" in t.message]
    assert len(messages) == (2 if limit == "per result" else 1)


async def test_large_results_beyond_the_room_of_the_process_are_cut(
    harness: Harness, tmp_path: Path
) -> None:
    fields = {"a": Value(string_value="x" * 600_000), "b": Value(string_value="short")}
    await add_raw_agent(harness, RawAgent("large", lambda c: success(data=ValueMap(fields=fields))))
    harness.planner.steps = [step("a", "large"), step("b", "large")]
    async with harness.gateway(
        artefacts_url=tmp_path.as_uri(), max_held_result_bytes=1_000_000
    ) as gateway:
        events = await gateway.events()
    results = [result_of(events, name) for name in "ab"]
    assert sorted("a" in result.data.fields for result in results) == [False, True]
    assert min(result.ByteSize() for result in results) < MAX_RESULT_BYTES
    assert all(result.data.fields["b"].string_value == "short" for result in results)


@pytest.mark.parametrize(
    ("sizes", "pages"),
    [
        ([2 * MIB] * 5, [2, 2, 1]),
        ([PAGE_BYTES + MIB, 10, PAGE_BYTES + MIB, 10], [1, 2, 1]),
        ([10] * (PAGE_EVENTS + 1), [PAGE_EVENTS, 1]),
    ],
    ids=["large", "larger than a page", "many"],
)
async def test_a_page_of_a_log_is_bounded_by_events_and_by_bytes(
    store: str, pool: Any, sizes: list[int], pages: list[int]
) -> None:
    run_id = await insert_run(pool, None)
    await pool.execute("DELETE FROM run_events")
    for sequence, size in enumerate(sizes, 1):
        result = AgentResult(answer="x" * size)
        event = LogEvent(step_finished=StepFinished(step_id="a", result=result))
        await pool.execute(_EVENT, run_id, sequence, event.SerializeToString())
    async with open_database(store, schema=SCHEMA, role=READER) as readers:
        runs = Runs(pool, readers).of("u")
        found: list[list[int]] = []
        while page := await runs.events(run_id, found[-1][-1] if found else 0):
            found.append([sequence for sequence, _ in page])
        assert [len(page) for page in found] == pages
        assert [n for page in found for n in page] == list(range(1, len(sizes) + 1))
        assert len(await runs.log(run_id)) == len(sizes)


async def test_a_url_of_no_store_is_refused_at_the_start(harness: Harness) -> None:
    with pytest.raises(ConfigurationError, match="file:///folder"):
        async with harness.gateway(artefacts_url="/folder"):
            pass
