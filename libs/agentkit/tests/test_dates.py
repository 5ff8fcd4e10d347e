"""The current date of a request, in prompts and in programs."""

from datetime import UTC, date, datetime

import pytest
from google.protobuf import struct_pb2

from bos.agent.v1 import AgentInput
from bos_agentkit import AgentTask, format_dates
from bos_agentkit.programs.variables import task_variables


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
