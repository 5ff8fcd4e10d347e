"""Steps in one line."""

from __future__ import annotations

from typing import Any

from bos.planner.v1 import Step
from bos_chassis.values import to_value


def step(step_id: str, agent: str, task: str = "", *needs: str, **inputs: Any) -> Step:
    """A step of a plan; keyword arguments become its tool input."""
    return Step(
        step_id=step_id,
        agent=agent,
        task=task or f"do {step_id}",
        depends_on=needs,
        sub_task_input={name: to_value(value) for name, value in inputs.items()},
    )
