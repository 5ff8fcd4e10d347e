"""Work key of a step, independent of its id, to detect repeated work. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bos.planner.v1 import Step


def work_of(step: Step) -> bytes:
    """Work key: equal for steps with the same agent, task, tool and planned input."""
    asked = Step(
        agent=step.agent,
        task=" ".join(step.task.split()),
        tool_name=step.tool_name,
        sub_task_input=step.sub_task_input,
    )
    return asked.SerializeToString(deterministic=True)


def repetitions(steps: Iterable[Step], others: Iterable[Step]) -> Mapping[str, str]:
    """Ids of those of ``steps`` that repeat the work of one of ``others``, with the id of that."""
    known = {work_of(other): other.step_id for other in others}
    if not known:
        return {}
    found = ((step.step_id, known.get(work_of(step))) for step in steps)
    return {step_id: other for step_id, other in found if other is not None}
