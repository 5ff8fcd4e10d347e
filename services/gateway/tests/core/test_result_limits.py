"""What others send is kept within bounds: numbers, shapes, sizes, tables, and held results."""

from datetime import UTC, timedelta

import pytest
from gateway_harness.raw_agents import success
from gateway_harness.run_logs import START, accepted, event, planned

from bos.agent.v1 import AGENT_EXECUTION_STATUS_FAILED, AgentResult, PerformedAction
from bos.common.v1 import (
    AgentError,
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
from bos.gateway.v1 import AgentRequest
from bos.runlog.v1 import StepDispatched, StepFinished, SubTask
from bos_chassis.values import make_table
from bos_gateway.core.fold import apply, fold
from bos_gateway.core.result_limits import (
    MAX_ANSWER_BYTES,
    MAX_CALL_TOKENS,
    MAX_RESULT_BYTES,
    bound_table,
    clamp_result,
    fit,
    fit_output,
    result_problem,
    sound_trace,
)
from bos_gateway.core.run_state import RunState
from bos_gateway.effects.memory_budget import MemoryBudget
from bos_testkit.plans import step

HUGE = ValueMap(fields={"k": Value(string_value="x" * 3_000_000)})


def table(rows: int, columns: int) -> Table:
    return Table(
        columns=[Column(name=f"c{number}") for number in range(columns)],
        rows=[Row(values=[Value(int64_value=1)] * columns) for _ in range(rows)],
        row_count=rows,
    )


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


def test_a_table_that_was_cut_before_still_says_so() -> None:
    cut = table(2, 2)
    cut.truncated = True
    bound_table(cut, AgentRequest(max_rows=2))
    assert cut.truncated
    empty = Table()
    bound_table(empty, AgentRequest(max_rows=1, max_columns=1))
    assert not empty.truncated


@pytest.mark.parametrize(("extra", "cut"), [(0, False), (1, True)])
def test_answer_is_cut_only_when_it_is_too_long(extra: int, cut: bool) -> None:
    text = "x" * (MAX_ANSWER_BYTES + extra)
    output = ComposerOutput(answer=text)
    fit_output(output, START)
    assert (output.answer != text) is cut


def test_answer_is_not_cut_inside_a_character() -> None:
    output = ComposerOutput(answer="क" * MAX_ANSWER_BYTES)
    fit_output(output, START)
    assert set(output.answer.partition("\n")[0]) == {"क"}


def test_numbers_that_can_be_are_left_alone() -> None:
    usage = Usage(input_tokens=MAX_CALL_TOKENS, models=["m"], cost_micros=5)
    usage.duration.FromSeconds(10)
    result = success(usage=usage, confidence=1.0, sources=[Source(page=3, relevance=0.5)])
    before = AgentResult.FromString(result.SerializeToString())
    assert clamp_result(result) == []
    assert result == before


@pytest.mark.parametrize(
    ("columns", "fields", "problem"),
    [
        (10_000, 10_000, None),
        (10_001, 1, "its table has more than 10000 columns"),
        (1, 10_001, "its data have more than 10000 fields"),
    ],
)
def test_columns_and_fields_of_a_result_are_bounded(
    columns: int, fields: int, problem: str | None
) -> None:
    result = success(data=ValueMap(fields={str(n): Value() for n in range(fields)}))
    for number in range(columns):
        result.table.columns.add(name=str(number))
    assert result_problem(result) == problem


def test_result_of_any_shape_fits() -> None:
    many = [str(n) for n in range(10_000)]
    for shape, result in {
        "answer": success(answer="x" * 3_000_000),
        "error": success(
            status=AGENT_EXECUTION_STATUS_FAILED, error=AgentError(message="x" * 3_000_000)
        ),
        "source": success(sources=[Source(excerpt="x" * 3_000_000)]),
        "highlights": success(highlights=["x" * 300] * 10_000),
        "key": success(data=ValueMap(fields={"x" * 3_000_000: Value()})),
        "keys": success(data=ValueMap(fields={n + "x" * 300: Value() for n in many})),
        "fields": success(data=ValueMap(fields={n: Value(string_value="x" * 90) for n in many})),
        "task": success(task_description="x" * 3_000_000, answer="y" * 100_000),
        "performed": success(performed_actions=[PerformedAction(result=HUGE)]),
    }.items():
        (fitting,) = fit([result], MAX_RESULT_BYTES)
        assert fitting.ByteSize() <= MAX_RESULT_BYTES, shape
        assert fitting.status == result.status, shape
        assert len(fitting.performed_actions) == len(result.performed_actions), shape


def test_tables_are_truncated_before_texts_and_actions() -> None:
    table = make_table(["n"], [["x" * 100] for _ in range(1500)])
    did = [PerformedAction(result=ValueMap(fields={"k": Value(string_value="y" * 10_000)}))] * 10
    result = success(answer="x" * 200_000, table=table, performed_actions=did)
    (fitting,) = fit([result], 310_000)
    assert fitting.table.truncated
    assert (fitting.answer, list(fitting.performed_actions)) == (result.answer, did)


def test_table_that_no_row_is_left_of_goes_and_a_cut_one_says_so() -> None:
    wide_row = success(table=make_table(["c"], [["x" * 3_000_000]]))
    many_rows = success(table=make_table(["c"], [["x" * 100] for _ in range(30_000)]))
    gone, cut = (fit([result], MAX_RESULT_BYTES)[0] for result in (wide_row, many_rows))
    assert not gone.HasField("table")
    assert cut.table.truncated
    assert cut.table.row_count == len(cut.table.rows) > 0


def test_trace_event_without_a_usable_time_gets_one() -> None:
    now = START
    good, odd, none = TraceEvent(), TraceEvent(), TraceEvent()
    good.create_time.FromDatetime(now - timedelta(hours=1))
    odd.create_time.seconds = 10**15
    sound_trace(events := [good, odd, none], now)
    times = [event.create_time.ToDatetime(tzinfo=UTC) for event in events]
    assert times == [now - timedelta(hours=1), now, now]


def test_room_is_shared_and_comes_back_with_the_state() -> None:
    room, one, two = MemoryBudget(100), RunState("one"), RunState("two")
    assert room.take(one, 60)
    assert not room.take(two, 41)
    assert room.take(two, 40)
    del one
    assert room.held == 40
    assert room.take(two, 60)


def test_what_a_run_held_before_it_came_here_counts() -> None:
    room, adopted = MemoryBudget(100), RunState("adopted", held_bytes=90)
    assert room.take(adopted, known=adopted.held_bytes)
    other = RunState("other")
    assert room.take(other, 10)
    assert not room.take(other, 1)


def test_result_under_way_is_counted_once_it_is_in_state_as_well() -> None:
    room, state = MemoryBudget(100), RunState("r")
    assert room.take(state, 30)
    assert room.take(state, 30)  # both are on their way into the log
    state.held_bytes = 60
    room.take(state, known=state.held_bytes)
    assert room.held == 60


def test_state_knows_what_it_holds() -> None:
    sub_task, result = SubTask(task="x" * 1000), AgentResult(answer="y" * 500)
    sent = event(step_dispatched=StepDispatched(step_id="a", sub_task=sub_task, attempt=1))
    state = fold("r", [accepted(), planned(step("a", "echo")), sent, sent])
    assert state.held_bytes == sub_task.ByteSize()  # another attempt sends the same
    apply(state, event(step_finished=StepFinished(step_id="a", result=result)))
    assert state.held_bytes == sub_task.ByteSize() + result.ByteSize()
