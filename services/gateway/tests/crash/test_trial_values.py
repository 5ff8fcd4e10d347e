"""Trials: impossible numbers, depth, width and references from agents and users.

For any result of an agent, its run ends once, stays readable, and does not affect others.
"""

import asyncio
from pathlib import Path
from typing import Any

from gateway_harness.harness import Harness
from gateway_harness.trials import (
    add_raw,
    ended_once,
    fetch,
    plan_by_question,
    replica,
    succeeded,
)

from bos.agent.v1 import AGENT_EXECUTION_STATUS_SUCCEEDED, AgentResult
from bos.common.v1 import Value
from bos.gateway.v1 import RUN_STATUS_SUCCEEDED
from bos_testkit.plans import step

_REFERENCED = 250_000
_MOST_MEMORY_KIB = 1024 * 1024


def peak_memory_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


async def test_plan_with_huge_references_does_not_affect_others(
    harness: Harness,
) -> None:
    """60 texts of 250 KB are too large for one dispatch already; 2,400 would be 600 MB."""

    async def large(_: Any) -> AgentResult:
        return succeeded("x" * _REFERENCED)

    await add_raw(harness, "large", large)
    await add_raw(harness, "good")
    greedy = step("b", "good")
    reference = Value(string_value="@{outputs.a.answer}")
    greedy.sub_task_input["all"].list_value.values.extend([reference] * 2400)
    plan_by_question(harness, {"greedy": [step("a", "large"), greedy], "good": [step("a", "good")]})
    async with replica(harness) as (process, client, replica_id):
        greedy_run = asyncio.create_task(client.events("greedy?"))
        others = [await client.ask(f"good {n}?") for n in range(20)]
        await greedy_run
        assert {other.status for other in others} == {RUN_STATUS_SUCCEEDED}
        end = await ended_once(harness, "greedy?")
        # A plan of so many references is none, and no agent here has keywords to be found by.
        results = {each.agent_name: each.status for each in end.run_finished.response.agent_results}
        assert results.get("good") != AGENT_EXECUTION_STATUS_SUCCEEDED
        # It is one step that fails, and not the replica that loses its lease over it.
        owners = await fetch(harness, "SELECT DISTINCT epoch FROM run_events")
        assert [row["epoch"] for row in owners] == [1], replica_id
        assert peak_memory_kib(process.pid) < _MOST_MEMORY_KIB
