"""Large results: whole for everybody in the log itself, and read in pages of bounded size."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest
from gateway_harness.harness import Harness, result_of

from bos.agent.v1 import AgentResult
from bos.gateway.v1 import GetRunRequest, RunEvent
from bos.runlog.v1 import LogEvent, StepFinished
from bos_agentkit import Agent, AgentTask, succeeded
from bos_errors import ConfigurationError
from bos_gateway.run_log.reader import PAGE_BYTES, PAGE_EVENTS, READER, Runs
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.service import migrate_store
from bos_postgres import connect, open_database
from bos_testkit.agents import EchoAgent, RecordingAgent
from bos_testkit.plans import step

ROWS = 7000
CELL = "x" * 250
MIB = 1024 * 1024
_RUN = """
INSERT INTO runs (run_id, user_id, request_id, request_digest, question, status)
VALUES ($1, 'ada', $1::uuid::text, '', 'why?', 2)
"""
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


async def plan_tables(harness: Harness, then: Agent) -> None:
    """A large table, and an agent that needs it."""
    harness.planner.steps = [step("a", "tables"), step("b", then.card.name, "", "a")]
    await harness.add_agent(TableAgent())
    await harness.add_agent(then)


def asked(events: Sequence[RunEvent]) -> list[tuple[int, bytes]]:
    """The stored events; of the text of an answer there is nothing once it is complete."""
    return [
        (event.sequence, event.SerializeToString(deterministic=True))
        for event in events
        if not event.HasField("answer_delta")
    ]


async def test_dependents_composer_and_clients_get_all_rows(harness: Harness) -> None:
    second = EchoAgent("second")
    await plan_tables(harness, second)
    async with harness.gateway() as gateway:
        events = await gateway.events()
        run = (await gateway.stub.GetRun(GetRunRequest(run_id=events[0].run_id))).run
        async with harness.gateway() as elsewhere:
            assert asked(await elsewhere.watch(events[0].run_id)) == asked(events)
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


async def stored_run(dsn: str, sizes: Sequence[int]) -> UUID:
    """A run whose events have these sizes."""
    run_id = uuid4()
    async with connect(dsn, schema=SCHEMA) as session:
        await session.execute(_RUN, run_id)
        for sequence, size in enumerate(sizes, 1):
            result = AgentResult(answer="x" * size)
            event = LogEvent(step_finished=StepFinished(step_id="a", result=result))
            await session.execute(_EVENT, run_id, sequence, event.SerializeToString())
    return run_id


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
    postgres_dsn: str, sizes: list[int], pages: list[int]
) -> None:
    await migrate_store(postgres_dsn)
    run_id = await stored_run(postgres_dsn, sizes)
    async with (
        open_database(postgres_dsn, schema=SCHEMA) as pool,
        open_database(postgres_dsn, schema=SCHEMA, role=READER) as readers,
    ):
        runs = Runs(pool, readers).of("ada")
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
