"""What others send is kept within bounds: answers, their pieces, and traces of steps."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from gateway_harness.harness import result_of

from bos.common.v1 import TraceEventType
from bos.composer.v1 import ComposerOutput
from bos.gateway.v1 import RUN_STATUS_SUCCEEDED
from bos_gateway.core.result_limits import (
    MAX_ANSWER_BYTES,
    MAX_TRACE_BYTES,
    MAX_TRACE_EVENTS,
    fit_output,
)
from bos_gateway.effects import compose
from bos_testkit.agents import EchoAgent, RecordingAgent
from bos_testkit.plans import step

if TYPE_CHECKING:
    from gateway_harness.harness import Harness

    from bos.agent.v1 import AgentResult
    from bos_agentkit import AgentTask

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)


class Chatty(RecordingAgent):
    """Traces a given number of messages of a given size."""

    def __init__(self, count: int, chars: int) -> None:
        super().__init__("chatty")
        self._said = ["x" * chars] * count

    async def behave(self, task: AgentTask) -> AgentResult:
        for text in self._said:
            task.trace.message("said", text=text)
        return await super().behave(task)


def streamed(events: list[Any]) -> list[str]:
    return [event.answer_delta.text for event in events if event.HasField("answer_delta")]


@pytest.mark.parametrize(("bound", "passed"), [(13, 3), (12, 2)])
async def test_pieces_of_an_answer_beyond_a_size_are_not_streamed_and_not_lost(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, bound: int, passed: int
) -> None:
    monkeypatch.setattr(compose, "MAX_STREAMED_BYTES", bound)
    await harness.add_agent(EchoAgent())
    harness.planner.steps = [step("a", "echo")]
    harness.composer.deltas = ["one ", "two ", "three"]
    async with harness.gateway() as gateway:
        events = await gateway.events()
    assert "".join(streamed(events)) == "".join(harness.composer.deltas[:passed])
    response = events[-1].run_finished.response
    assert response.answer == "one two three"
    assert response.status == RUN_STATUS_SUCCEEDED


async def test_answer_beyond_its_size_is_streamed_only_in_part_and_cut(harness: Harness) -> None:
    await harness.add_agent(EchoAgent())
    harness.planner.steps = [step("a", "echo")]
    piece = "x" * 200_000
    harness.composer.deltas = [piece] * 8
    async with harness.gateway() as gateway:
        events = await gateway.events()
    assert len("".join(streamed(events))) == len(piece) * 5 <= compose.MAX_STREAMED_BYTES
    answer = events[-1].run_finished.response.answer
    assert len(answer.encode()) < MAX_ANSWER_BYTES + 100
    assert answer.endswith("(The answer was longer and is cut off here.)")


@pytest.mark.parametrize(("extra", "cut"), [(0, False), (1, True)])
def test_answer_is_cut_only_when_it_is_too_long(extra: int, cut: bool) -> None:
    text = "x" * (MAX_ANSWER_BYTES + extra)
    output = ComposerOutput(answer=text)
    fit_output(output, NOW)
    assert (output.answer != text) is cut


def test_answer_is_not_cut_inside_a_character() -> None:
    output = ComposerOutput(answer="क" * MAX_ANSWER_BYTES)
    fit_output(output, NOW)
    assert set(output.answer.partition("\n")[0]) == {"क"}


@pytest.mark.parametrize(
    ("count", "chars"), [(MAX_TRACE_EVENTS + 100, 10), (400, 4000)], ids=["many", "large"]
)
async def test_trace_of_a_step_is_kept_within_bounds(
    harness: Harness, count: int, chars: int
) -> None:
    await harness.add_agent(Chatty(count, chars))
    harness.planner.steps = [step("a", "chatty")]
    async with harness.gateway() as gateway:
        events = await gateway.events(trace=True)
    kept = [each for event in events for each in event.step_progress.events]
    assert 0 < len(kept) <= MAX_TRACE_EVENTS
    assert sum(event.ByteSize() for event in kept) <= MAX_TRACE_BYTES
    assert all(event.type == TraceEventType.TRACE_EVENT_TYPE_MESSAGE for event in kept)
    assert len(kept) < count
    assert result_of(events, "a").answer
