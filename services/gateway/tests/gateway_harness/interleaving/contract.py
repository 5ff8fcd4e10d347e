"""Whether the contract of runs holds for what two owners have done to one run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.gateway.v1 import RUN_STATUS_CANCELLED
from bos.runlog.v1 import LogEvent
from bos_errors import AgentErrorType
from bos_gateway.core.fold import fold
from gateway_harness.interleaving.parts import ONCE

if TYPE_CHECKING:
    from bos_gateway.core.run_state import RunState
    from gateway_harness.interleaving.owners import InterleavingHarness


async def check_contract(harness: InterleavingHarness) -> RunState:
    """The contract, as far as the stored rows show it."""
    rows = await harness.reader.fetch(
        "SELECT sequence, event_id, epoch, payload FROM run_events WHERE run_id = $1 "
        "ORDER BY sequence",
        harness.run_id,
    )
    row = await harness.reader.fetchrow("SELECT * FROM runs WHERE run_id = $1", harness.run_id)
    log = await harness.runs.log(harness.run_id)
    state = fold(str(harness.run_id), log)
    assert len(rows) == len(log)
    assert rows[-1]["sequence"] == len(rows), "a gap"
    assert len({each["event_id"] for each in rows}) == len(rows)
    epochs = [each["epoch"] for each in rows]
    assert epochs == sorted(epochs), "an earlier owner wrote behind a later one"
    assert epochs[-1] <= row["epoch"]
    assert row["status"] == state.status
    assert (row["finished_at"] is not None) == state.finished
    stored = {each["sequence"]: each["payload"] for each in rows}
    for sequence, payload in harness.seen.items():
        there = stored.get(sequence)
        known = there is not None and LogEvent.FromString(there).SerializeToString(
            deterministic=True
        )
        assert known == payload, f"event {sequence} was taken back"
    cancels = [each for each in log if each.HasField("cancel_requested")]
    assert len(cancels) <= 1
    if cancels and state.finished:
        assert state.status == RUN_STATUS_CANCELLED
    if harness.cancelled and not state.finished:
        assert await harness.reader.fetchval(
            "SELECT count(*) FROM run_inputs WHERE run_id = $1", harness.run_id
        )
    return state


def check_effects(harness: InterleavingHarness, state: RunState) -> None:
    """Of an ended run: the user was informed of all effects of an agent that may run only once."""
    for done in state.result_steps:
        if done.step.agent == ONCE and harness.executions[done.step.step_id]:
            error_type = done.result.error.type if done.result is not None else None
            # Its own result counts also if it was not shown before the step was sent again.
            finished = done.result is not None and not done.result.HasField("error")
            cut_off = state.status == RUN_STATUS_CANCELLED
            assert (
                finished
                or cut_off
                or error_type in {AgentErrorType.OUTCOME_UNKNOWN, AgentErrorType.DEADLINE_EXCEEDED}
            )
