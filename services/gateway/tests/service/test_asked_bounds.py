"""Rows, columns and backend of a request: handed to agents, kept in tables, logged, inherited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest

from bos.common.v1 import Column, Row, Table, Value
from bos.gateway.v1 import RUN_STATUS_SUCCEEDED, AgentRequest
from bos_agentkit import succeeded
from bos_errors import InvalidArgument, from_rpc_error
from bos_gateway.core.clarification import ClarificationReply, with_inherited
from bos_gateway.core.result_limits import bound_table
from bos_testkit.agents import RecordingAgent
from bos_testkit.plans import step

if TYPE_CHECKING:
    from gateway_harness.harness import Harness

    from bos.agent.v1 import AgentResult
    from bos_agentkit import AgentTask

MOST = 2**31 - 1


def table(rows: int, columns: int) -> Table:
    return Table(
        columns=[Column(name=f"c{number}") for number in range(columns)],
        rows=[Row(values=[Value(int64_value=1)] * columns) for _ in range(rows)],
        row_count=rows,
    )


class Generous(RecordingAgent):
    """Returns a table of four rows and three columns, whatever it is asked for."""

    async def behave(self, task: AgentTask) -> AgentResult:
        return succeeded(task, answer="Here.", table=table(4, 3))


@pytest.mark.parametrize(
    ("asked", "rows", "columns", "cut"),
    [
        ({}, 4, 3, False),
        ({"max_rows": 4, "max_columns": 3}, 4, 3, False),
        ({"max_rows": 3}, 3, 3, True),
        ({"max_columns": 2}, 4, 2, True),
        ({"max_rows": 1, "max_columns": 1}, 1, 1, True),
        ({"max_rows": MOST, "max_columns": MOST}, 4, 3, False),
    ],
)
@pytest.mark.requirement("A-24")
async def test_tables_have_no_more_rows_and_columns_than_asked_for(
    harness: Harness, asked: dict[str, int], rows: int, columns: int, cut: bool
) -> None:
    agent = Generous("generous")
    await harness.add_agent(agent)
    harness.planner.steps = [step("a", "generous")]
    async with harness.gateway() as gateway:
        response = await gateway.ask(**asked)
    assert response.status == RUN_STATUS_SUCCEEDED
    for found in (response.data, response.agent_results[0].table):
        assert (len(found.rows), found.row_count, len(found.columns)) == (rows, rows, columns)
        assert {len(row.values) for row in found.rows} == {columns}
        assert found.truncated == cut
    (given,) = agent.inputs
    for name in ("max_rows", "max_columns"):
        assert given.HasField(name) == (name in asked)
        assert getattr(given, name) == asked.get(name, 0)


@pytest.mark.requirement("A-24")
async def test_backend_reaches_agents_as_it_was_written(harness: Harness) -> None:
    agent = RecordingAgent("echo")
    await harness.add_agent(agent)
    harness.planner.steps = [step("a", "echo")]
    async with harness.gateway() as gateway:
        await gateway.ask(backend="sales")
        await gateway.ask()
    assert [given.backend for given in agent.inputs] == ["sales", ""]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"max_rows": 0}, "request.max_rows"),
        ({"max_rows": -1}, "request.max_rows"),
        ({"max_columns": 0}, "request.max_columns"),
        ({"max_columns": -MOST}, "request.max_columns"),
        ({"backend": "x" * 129}, "request.backend"),
        ({"backend": "a\0b"}, "request.backend"),
    ],
)
@pytest.mark.requirement("A-24", "R-01")
async def test_impossible_bounds_are_refused_by_field(
    harness: Harness, asked: dict[str, Any], field: str
) -> None:
    async with harness.gateway() as gateway:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.ask(**asked)
    error = from_rpc_error(caught.value)
    assert isinstance(error, InvalidArgument)
    assert [each.field for each in error.violations] == [field]
    assert not harness.planner.requests


@pytest.mark.requirement("A-05", "A-24")
async def test_context_of_such_names_passes_untouched_and_bounds_nothing(
    harness: Harness,
) -> None:
    context = {"max_rows": "many", "max_cols": -1, "timeout": 1e308, "backend": ["a"], "debug": 1}
    agent = Generous("generous")
    await harness.add_agent(agent)
    harness.planner.steps = [step("a", "generous")]
    async with harness.gateway() as gateway:
        response = await gateway.ask(context=context)
    assert len(response.data.rows) == 4
    (given,) = agent.inputs
    assert {name: given.context[name] for name in context if name != "backend"} == {
        name: value for name, value in context.items() if name != "backend"
    }
    assert list(given.context["backend"]) == ["a"]
    assert not given.backend


def test_a_reply_takes_over_the_bounds_that_it_leaves_out() -> None:
    before = AgentRequest(max_rows=5, max_columns=6, backend="sales")
    reply = ClarificationReply(before, "Who?", ())
    whole = with_inherited(AgentRequest(question="x", max_rows=9), reply)
    assert (whole.max_rows, whole.max_columns, whole.backend) == (9, 6, "sales")
    unbounded = ClarificationReply(AgentRequest(), "Who?", ())
    none = with_inherited(AgentRequest(question="x"), unbounded)
    assert not none.HasField("max_rows")
    assert not none.HasField("max_columns")


def test_a_table_that_was_cut_before_still_says_so() -> None:
    cut = table(2, 2)
    cut.truncated = True
    bound_table(cut, AgentRequest(max_rows=2))
    assert cut.truncated
    empty = Table()
    bound_table(empty, AgentRequest(max_rows=1, max_columns=1))
    assert not empty.truncated
