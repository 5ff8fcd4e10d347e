"""What others send is kept within bounds: answers, their pieces, and traces of steps."""

from datetime import UTC, datetime
from typing import Any

import pytest
from gateway_harness.harness import Harness, result_of

from bos.agent.v1 import AgentResult
from bos.common.v1 import TraceEventType
from bos.composer.v1 import ComposerOutput
from bos.gateway.v1 import RUN_STATUS_SUCCEEDED
from bos_agentkit import AgentTask
from bos_gateway.core.result_limits import (
    MAX_ANSWER_BYTES,
    MAX_TRACE_BYTES,
    MAX_TRACE_EVENTS,
    fit_output,
)
from bos_gateway.effects import compose
from bos_testkit.agents import EchoAgent, RecordingAgent
from bos_testkit.plans import step

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)


class Chatty(RecordingAgent):
    """Traces a given number of messages of a given size."""

    def __init__(self, name: str, count: int, chars: int) -> None:
        super().__init__(name)
        self._said = ["x" * chars] * count

    async def behave(self, task: AgentTask) -> AgentResult:
        for text in self._said:
            task.trace.message("said", text=text)
        return await super().behave(task)


def streamed(events: list[Any]) -> list[str]:
    return [event.answer_delta.text for event in events if event.HasField("answer_delta")]


async def test_answer_beyond_the_stream_limit_is_stored_whole(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compose, "MAX_STREAMED_BYTES", 12)
    await harness.add_agent(EchoAgent())
    harness.planner.steps = [step("a", "echo")]
    harness.composer.deltas = ["one ", "two ", "three"]
    async with harness.gateway() as gateway:
        events = await gateway.events()
    assert "".join(streamed(events)) == "".join(harness.composer.deltas[:2])
    response = events[-1].run_finished.response
    assert response.answer == "one two three"
    assert response.status == RUN_STATUS_SUCCEEDED


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


async def test_trace_of_a_step_is_kept_within_bounds(harness: Harness) -> None:
    counts = {"many": MAX_TRACE_EVENTS + 100, "large": 400}
    await harness.add_agent(Chatty("many", counts["many"], 10))
    await harness.add_agent(Chatty("large", counts["large"], 4000))
    harness.planner.steps = [step(name, name) for name in counts]
    async with harness.gateway() as gateway:
        events = await gateway.events(trace=True)
    for name, count in counts.items():
        progress = [e.step_progress for e in events if e.step_progress.step_id == name]
        kept = [each for batch in progress for each in batch.events]
        assert 0 < len(kept) <= MAX_TRACE_EVENTS
        assert sum(event.ByteSize() for event in kept) <= MAX_TRACE_BYTES
        assert all(event.type == TraceEventType.TRACE_EVENT_TYPE_MESSAGE for event in kept)
        assert len(kept) < count
        assert result_of(events, name).answer
