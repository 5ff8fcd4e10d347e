"""Programs: variables, dates, and tables of results."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import struct_pb2

from bos.agent.v1 import AgentInput
from bos_agentkit import AgentTask, format_dates
from bos_agentkit.programs.result_tables import result_table
from bos_agentkit.programs.variables import describe, mentioned_values, task_variables
from bos_chassis.values import table_rows, to_value, to_value_map

NOW = datetime(2025, 10, 1, 12, tzinfo=UTC)


def test_rows_become_a_table_in_their_column_order() -> None:
    table = result_table([{"b": 1, "a": Decimal("2.5")}, {"a": None, "c": "x"}])
    assert table_rows(table) == [
        {"b": 1, "a": Decimal("2.5"), "c": None},
        {"b": None, "a": None, "c": "x"},
    ]
    assert table.row_count == 2


def test_a_long_table_is_truncated_and_marked() -> None:
    exact = result_table([{"n": n} for n in range(200)])
    longer = result_table([{"n": n} for n in range(201)])
    assert (exact.row_count, exact.truncated) == (200, False)
    assert (longer.row_count, longer.truncated) == (200, True)


@pytest.mark.parametrize("result", [None, [], [{"a": 1}, 2], [{}]])
def test_other_results_are_no_table(result: Any) -> None:
    assert result_table(result) is None


def task(**fields: Any) -> AgentTask:
    return AgentTask(AgentInput(task="t", **fields), agent="echo")


@pytest.mark.requirement("F-09")
def test_variables_have_valid_and_unique_names() -> None:
    one = task(
        sub_task_input={
            name: to_value(1) for name in ("quarters", "top customers", "2024", "class", "sum", "é")
        },
        dependency_outputs={
            "quarters": to_value_map({"rows": []}),
            "step-1": to_value_map({"rows": []}),
            "result": to_value_map({}),
        },
    )
    names = [variable.name for variable in task_variables(one, lambda: NOW)]
    assert names == [
        "value_2024",
        "class_data",
        "quarters",
        "sum_data",
        "top_customers",
        "value",
        "quarters_data",
        "result_data",
        "step_1",
        "today",
    ]
    assert all(name.isidentifier() for name in names)


def test_a_program_gets_only_the_variables_it_mentions() -> None:
    given = task(sub_task_input={"rows": to_value([1]), "more": to_value([2])})
    variables = task_variables(given, lambda: NOW)
    assert mentioned_values(variables, "sum(rows)  # rows_more") == {
        "rows": [1],
        "today": NOW.date(),
    }


def test_variables_are_described_with_type_and_short_preview() -> None:
    rows = [{"name": "Arbor", "revenue": Decimal("175206.00")}] * 500
    text = describe(task_variables(task(sub_task_input={"rows": to_value(rows)}), lambda: NOW))
    first = text.splitlines()[0]
    assert first.startswith(
        "- rows: list of 500 dicts with keys name (str), revenue (Decimal) (input of the task), "
        'begins [{"name": "Arbor", "revenue": "175206.00"}'
    )
    assert len(first) < 700


def test_nested_rows_are_described() -> None:
    given = task(dependency_outputs={"top": to_value_map({"rows": [{"n": Decimal(1)}]})})
    assert describe(task_variables(given, lambda: NOW)).startswith(
        "- top: dict with keys rows (list of 1 dicts with keys n (Decimal)) (output of step top)"
    )


@pytest.mark.parametrize(
    ("written", "clock", "today"),
    [
        (" 2026-06-15 ", "2026-06-20T12:00:00+00:00", date(2026, 6, 15)),
        ("2026-06-15T23:30:00-05:00", "2026-06-20T12:00:00+00:00", date(2026, 6, 15)),
        ("0001-01-01T00:00:00+23:59", "2026-06-20T12:00:00+00:00", date(1, 1, 1)),
        ("soon", "2026-06-15T23:30:00-05:00", date(2026, 6, 16)),
        ("soon", "later", date(2026, 7, 1)),
    ],
)
def test_prompts_and_programs_have_the_same_today(written: str, clock: str, today: date) -> None:
    context = struct_pb2.Struct()
    context.update({"current_date": written, "current_datetime_utc": clock})
    variables = task_variables(
        AgentTask(AgentInput(context=context)), lambda: datetime(2026, 7, 1, tzinfo=UTC)
    )
    lines = format_dates(context.fields, periods=False).splitlines()
    assert [one.value for one in variables if one.name == "today"] == [today]
    # The agent's own clock does not count.
    assert lines == ([f"today: {today.isoformat()} ({today:%A})"] if clock != "later" else [])


def test_input_named_today_is_the_variable() -> None:
    task = AgentTask(AgentInput(sub_task_input={"today": to_value(date(2023, 1, 1))}))
    variables = task_variables(task, lambda: datetime(2026, 7, 1, tzinfo=UTC))
    assert [one.value for one in variables if one.name == "today"] == [date(2023, 1, 1)]
