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


def test_unknown_time_zone_is_refused_by_name() -> None:
    for zone in ("Mars/Olympus", "../etc/passwd", "", 5):
        request = AgentRequest(question="Why?")
        request.context.update({"time_zone": zone})
        with pytest.raises(InvalidArgument, match=r"request\.context\.time_zone"):
            normalise(request, [AgentCard(name="one")], max_context_bytes=65536)
