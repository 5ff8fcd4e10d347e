from __future__ import annotations

from bos.common.v1 import TraceEvent, TraceEventType
from bos_agentkit import TraceRecorder
from bos_agentkit.trace import MAX_BATCH
from bos_chassis.values import from_value


async def recorded(trace: TraceRecorder) -> list[TraceEvent]:
    trace.close()
    batches = [batch async for batch in trace.batches()]
    assert all(len(batch.events) <= MAX_BATCH + 1 for batch in batches)
    return [event for batch in batches for event in batch.events]


async def test_events_have_their_type_agent_and_time() -> None:
    """SPEC P-01, P-02."""
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


async def test_secrets_never_appear() -> None:
    """SPEC R-09."""
    trace = TraceRecorder("sql", secrets=["hunter2", "hunter2-long", "abc"])
    trace.tool("GET ?key=hunter2-long", headers={"auth": ["Bearer hunter2"]}, word="abc")
    (event,) = await recorded(trace)
    assert "hunter2" not in str(event)
    assert event.message == "GET ?key=[secret]"
    assert event.data["word"].string_value == "abc"  # too short to be a credential


async def test_a_detail_without_a_typed_form_costs_nothing_but_itself() -> None:
    trace = TraceRecorder("sql")
    trace.message("m", odd=object(), long="x" * 10_000, **{f"f{n}": n for n in range(50)})
    (event,) = await recorded(trace)
    assert event.data["odd"].string_value == "(object)"
    assert "bytes, not kept" in event.data["long"].string_value
    assert len(event.data) == 32


async def test_events_that_come_too_fast_are_counted_and_errors_are_kept() -> None:
    trace = TraceRecorder("sql")
    for number in range(1100):
        trace.message("m", n=number)
    trace.error("boom")
    events = await recorded(trace)
    assert len(events) == 1024 + 1
    assert (events[-2].message, events[-1].data["dropped"].int64_value) == ("boom", 77)


async def test_nothing_is_recorded_after_the_end() -> None:
    trace = TraceRecorder("sql")
    trace.close()
    trace.message("late")
    assert await recorded(trace) == []
