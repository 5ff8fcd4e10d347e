"""Rows, columns and backend of a request: handed to agents, kept in tables, logged, inherited."""

import pytest
from gateway_harness.harness import Harness

from bos.agent.v1 import AgentResult
from bos.common.v1 import Column, Row, Table, Value
from bos.gateway.v1 import RUN_STATUS_SUCCEEDED, AgentRequest
from bos_agentkit import AgentTask, succeeded
from bos_gateway.core.clarification import ClarificationReply, with_inherited
from bos_gateway.core.result_limits import bound_table
from bos_testkit.agents import RecordingAgent
from bos_testkit.plans import step

MOST = 2**31 - 1


def table(rows: int, columns: int) -> Table:
    return Table(
        columns=[Column(name=f"c{number}") for number in range(columns)],
        rows=[Row(values=[Value(int64_value=1)] * columns) for _ in range(rows)],
        row_count=rows,
    )


class Generous(RecordingAgent):
    """Returns a table of four rows and three columns to any request."""

    async def behave(self, task: AgentTask) -> AgentResult:
        return succeeded(task, answer="Here.", table=table(4, 3))


@pytest.mark.parametrize(
    ("asked", "rows", "columns", "cut"),
    [
        ({}, 4, 3, False),
        ({"max_rows": 4, "max_columns": 3}, 4, 3, False),
        ({"max_rows": 3}, 3, 3, True),
        ({"max_columns": 2}, 4, 2, True),
    ],
)
def test_table_is_cut_to_asked_rows_and_columns(
    asked: dict[str, int], rows: int, columns: int, cut: bool
) -> None:
    found = table(4, 3)
    bound_table(found, AgentRequest(**asked))
    assert (len(found.rows), found.row_count, len(found.columns)) == (rows, rows, columns)
    assert {len(row.values) for row in found.rows} == {columns}
    assert found.truncated == cut


@pytest.mark.requirement("A-05", "A-24")
async def test_rows_columns_and_backend_of_a_request_reach_agents(harness: Harness) -> None:
    """Fields of the context that are called like them bound nothing."""
    context = {"max_rows": "many", "max_cols": -1, "timeout": 1e308, "backend": ["a"], "debug": 1}
    agent = Generous("generous")
    await harness.add_agent(agent)
    harness.planner.steps = [step("a", "generous")]
    async with harness.gateway() as gateway:
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
    assert {name: free.context[name] for name in context if name != "backend"} == {
        name: value for name, value in context.items() if name != "backend"
    }
    assert list(free.context["backend"]) == ["a"]


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
