"""Memory for results: of one run, and of all runs of a process together."""

from pathlib import Path

from gateway_harness.harness import Harness, result_of
from gateway_harness.raw_agents import RawAgent, add_raw_agent, success
from gateway_harness.run_logs import accepted, event, planned

from bos.agent.v1 import AgentResult
from bos.common.v1 import Value, ValueMap
from bos.runlog.v1 import StepDispatched, StepFinished, SubTask
from bos_gateway.core.fold import apply, fold
from bos_gateway.core.result_limits import MAX_RESULT_BYTES
from bos_gateway.core.run_state import RunState
from bos_gateway.effects.memory_budget import MemoryBudget
from bos_testkit.plans import step


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


async def test_large_results_beyond_the_room_of_the_process_are_cut(
    harness: Harness, tmp_path: Path
) -> None:
    fields = {"a": Value(string_value="x" * 600_000), "b": Value(string_value="short")}
    await add_raw_agent(harness, RawAgent("large", lambda c: success(data=ValueMap(fields=fields))))
    harness.planner.steps = [step("a", "large"), step("b", "large")]
    async with harness.gateway(
        artefacts_url=tmp_path.as_uri(), max_held_result_bytes=1_000_000
    ) as gateway:
        events = await gateway.events()
    results = [result_of(events, name) for name in "ab"]
    assert sorted("a" in result.data.fields for result in results) == [False, True]
    assert min(result.ByteSize() for result in results) < MAX_RESULT_BYTES
    assert all(result.data.fields["b"].string_value == "short" for result in results)
