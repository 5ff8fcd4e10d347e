"""What "today" is in a request: the deployment's calendar, and the client's time zone."""

from datetime import UTC, datetime

import pytest
from google.protobuf.struct_pb2 import Struct

from bos.agent.v1 import AgentCard
from bos.gateway.v1 import AgentRequest
from bos_errors import InvalidArgument
from bos_gateway.admission.normalise import attach_temporal_context, normalise
from bos_gateway.request_calendar import Calendar

pytestmark = pytest.mark.requirement("A-06")

NOW = datetime(2026, 6, 15, 20, 30, tzinfo=UTC)
INDIA = Calendar("Asia/Kolkata", "sunday", 4)


def context(calendar: Calendar, **given: str) -> dict[str, object]:
    struct = Struct()
    struct.update(given)
    attach_temporal_context(struct, NOW, calendar)
    return dict(struct)


def test_today_is_that_of_the_time_zone_of_the_request_or_else_of_the_deployment() -> None:
    usual = context(Calendar())
    assert usual["current_date"] == "2026-06-15"
    assert not {"time_zone", "first_day_of_week", "fiscal_year_first_month"} & usual.keys()
    here = context(INDIA)
    assert (here["current_date"], here["current_date_end_hour"]) == ("2026-06-16", "2026-06-16 23")
    assert (here["first_day_of_week"], here["fiscal_year_first_month"]) == ("sunday", "4")
    assert here["current_datetime_utc"] == "2026-06-15T20:30:00+00:00"
    there = context(INDIA, time_zone="America/New_York")
    assert (there["current_date"], there["time_zone"]) == ("2026-06-15", "America/New_York")
    assert context(INDIA, current_date="2026-01-01")["current_date"] == "2026-01-01"


def test_calendar_of_a_request_is_written_as_prompts_read_it_or_refused_by_name() -> None:
    rows = (
        # key, as sent: as kept, empty if refused
        ("time_zone", "Asia/Kolkata", "Asia/Kolkata"),
        *(("time_zone", odd, "") for odd in ("Mars/Olympus", "../etc/passwd", "", 5)),
        ("first_day_of_week", "Sunday", "sunday"),
        ("first_day_of_week", " saturday ", "saturday"),
        *(("first_day_of_week", odd, "") for odd in ("odin", "", 7, None)),
        ("fiscal_year_first_month", 4, "4"),
        ("fiscal_year_first_month", 1, "1"),
        ("fiscal_year_first_month", " 04 ", "4"),
        ("fiscal_year_first_month", "12", "12"),
        *(
            ("fiscal_year_first_month", odd, "")
            for odd in (0, 13, 4.5, -1, True, None, "0", "13", "April", "", "1" * 5000, [4])
        ),
    )
    found = []
    for key, sent, _ in rows:
        request = AgentRequest(question="Why?")
        request.context.update({key: sent})
        try:
            kept = normalise(request, [AgentCard(name="one")], max_context_bytes=65536)
            found.append((key, sent, kept.context[key]))
        except InvalidArgument as refused:
            named = f"request.context.{key}: must be " in str(refused)
            found.append((key, sent, "" if named else str(refused)))
    assert found == list(rows)
