"""Prefetch of the schema while the plan is being made."""

from typing import Any

import grpc
import pytest

from bos.agent.v1 import AgentServiceStub, DescribeRequest, PrepareRequest, TaskMetadata
from bos_chassis.telemetry import Telemetry
from bos_sql.agent import SqlAgent
from bos_sql.database.metadata import Overview
from bos_sql.database.prefetch import TTL_S, PrefetchedOverviews
from bos_sql.grounding.cache import MetadataIndexes
from bos_sql.settings import SqlSettings

from .conftest import FAILED, SUCCEEDED, Harness, StartHarness

RUN = {"user_id": "ada", "run_id": "run-1"}


def overview(name: str = "main") -> Overview:
    return Overview(name, "", "sqlite", "main", 1, 1, ())


class Database:
    """A database with one table; counts reads of its schema."""

    calls = 0

    async def call(self, tool: str, arguments: dict[str, Any], *, timeout_s: float) -> Any:
        assert tool == "mcp_db_schema"
        assert timeout_s > 0
        self.calls += 1
        table = {"name": "t", "kind": "table", "comment": "", "row_estimate": 1}
        described = {**table, "columns": [], "primary_key": [], "foreign_keys": []}
        return {
            "success": True,
            "database": "main",
            "description": "",
            "dialect": "sqlite",
            "default_schema": "main",
            "fingerprint": "f1",
            "limits": {"max_rows": 10, "max_columns": 10},
            "tables": [described if "tables" in arguments else table],
        }


async def prepare(harness: Harness, **run: str) -> None:
    async with grpc.aio.insecure_channel(harness.address) as channel:
        agent = AgentServiceStub(channel)
        assert (await agent.Describe(DescribeRequest())).card.prepares
        await agent.Prepare(PrepareRequest(metadata=run, question="What did we sell?"))


def schema_calls(done: Any) -> list[bool]:
    """Whether each read of the schema was a prefetch."""
    return [each.get("prepared", False) for each in done.events("mcp_db_schema")]


async def test_a_step_of_a_prepared_run_reads_no_schema(start: StartHarness) -> None:
    harness = await start()
    await prepare(harness, **RUN)

    own = await harness.ask(metadata=RUN)
    others = await harness.ask(metadata={**RUN, "user_id": "eve"})

    assert own.result.status == others.result.status == SUCCEEDED
    assert own.events("list_tables")[0]["prepared"] is True
    assert schema_calls(own) == [True]
    assert others.events("list_tables")[0]["prepared"] is False
    # The index is shared by all users, so only the overview is read again.
    assert schema_calls(others) == [False]


@pytest.mark.parametrize(("ttl_s", "readings"), [(60, 2), (0, 1)])
async def test_index_is_not_prefetched_without_a_cache(ttl_s: float, readings: int) -> None:
    settings = SqlSettings.load(mcp_url="http://127.0.0.1:1/mcp")
    database = Database()
    agent = SqlAgent(
        settings,
        database,  # type: ignore[arg-type]
        None,
        Telemetry.for_tests("sql"),
        MetadataIndexes(None, ttl_s=ttl_s),
    )

    await agent.prepare(TaskMetadata(**RUN), "What did we sell?")

    assert database.calls == readings


async def test_a_tool_that_is_not_allowed_is_not_prefetched(start: StartHarness) -> None:
    harness = await start()
    await prepare(harness, **RUN)

    done = await harness.ask(metadata=RUN, tools=["mcp_db_query"])

    assert done.result.status == FAILED
    assert done.result.error.type == "PermissionDenied"


def test_a_prefetched_overview_expires_or_is_replaced() -> None:
    now = [0.0]
    prefetched = PrefetchedOverviews(clock=lambda: now[0])
    prefetched.keep(("ada", "1"), overview("old"))
    prefetched.keep(("ada", "1"), overview("new"))

    now[0] = TTL_S - 1
    assert prefetched.get(("ada", "1")) == overview("new")
    assert prefetched.get(("ada", "2")) is None
    now[0] = TTL_S
    assert prefetched.get(("ada", "1")) is None


def test_at_most_256_overviews_are_cached() -> None:
    prefetched = PrefetchedOverviews()
    for number in range(257):
        prefetched.keep(("ada", str(number)), overview())

    assert prefetched.get(("ada", "0")) is None
    assert prefetched.get(("ada", "1")) is not None
    assert prefetched.get(("ada", "256")) is not None
