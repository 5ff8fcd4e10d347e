import pytest

from bos.common.v1 import TraceEvent, TraceEventType
from bos_agentkit import TraceRecorder
from bos_agentkit.trace import MAX_BATCH
from bos_chassis.values import from_value


async def recorded(trace: TraceRecorder) -> list[TraceEvent]:
    trace.close()
    batches = [batch async for batch in trace.batches()]
    assert all(len(batch.events) <= MAX_BATCH + 1 for batch in batches)
    return [event for batch in batches for event in batch.events]


@pytest.mark.requirement("P-01", "P-02")
async def test_events_have_their_type_agent_and_time() -> None:
    trace = TraceRecorder("sql")
    trace.decision("d", chosen=["a"])
    trace.tool("t")
    trace.message("m")
    trace.error("e", code=5)
    events = await recorded(trace)
    assert [TraceEventType.Name(event.type)[17:] for event in events] == [
        "DECISION",
        "TOOL",
        "MESSAGE",
        "ERROR",
    ]
    assert all(event.agent == "sql" and event.create_time.seconds > 0 for event in events)
    assert from_value(events[0].data["chosen"]) == ["a"]


@pytest.mark.security
@pytest.mark.requirement("R-09")
async def test_long_texts_are_dropped_and_not_truncated() -> None:
    trace = TraceRecorder("sql")
    trace.message("hunter2-" * 1024)
    trace.message("x" * 8190 + "hunter2")
    trace.message("m", long="x" * 8190 + "hunter2")
    fits, too_long, detail = await recorded(trace)
    assert fits.message == "hunter2-" * 1024
    assert too_long.message == "(8197 characters, not kept)"
    assert "hunt" not in str(detail)


async def test_a_detail_without_a_typed_form_does_not_affect_others() -> None:
    trace = TraceRecorder("sql")
    trace.message("m", odd=object(), long="x" * 10_000, **{f"f{n}": n for n in range(50)})
    (event,) = await recorded(trace)
    assert event.data["odd"].string_value == "(object)"
    assert "bytes, not kept" in event.data["long"].string_value
    assert len(event.data) == 32


@pytest.mark.requirement("P-09")
async def test_events_beyond_the_buffer_are_counted_and_errors_kept() -> None:
    trace = TraceRecorder("sql")
    for number in range(1100):
        trace.message("m", n=number)
    trace.error("boom")
    events = await recorded(trace)
    assert len(events) == 1024 + 1
    assert (events[-2].message, events[-1].data["dropped"].int64_value) == ("boom", 77)


async def test_nothing_is_recorded_after_close() -> None:
    trace = TraceRecorder("sql")
    trace.close()
    trace.message("late")
    assert await recorded(trace) == []
