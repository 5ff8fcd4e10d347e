"""Graph of a plan: dependencies, stages and order. Pure."""

from __future__ import annotations

from graphlib import TopologicalSorter

from bos.planner.v1 import Plan, Step
from bos_plans.references import references_of


def dependencies(step: Step) -> set[str]:
    """Steps that must have ended before ``step`` can start, soft and hard dependencies."""
    return {*step.depends_on, *references_of(step)}


def stages(plan: Plan) -> list[list[str]]:
    """Step ids in stages of steps that can run concurrently, each stage in planner order.

    Raises:
        ValueError: the plan is circular (``graphlib.CycleError``).
    """
    position = {step.step_id: index for index, step in enumerate(plan.steps)}
    sorter = _sorter(plan)
    sorter.prepare()
    found: list[list[str]] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=position.__getitem__)
        found.append(ready)
        sorter.done(*ready)
    return found


def execution_order(plan: Plan) -> list[str]:
    """Step ids in topological order, as close to planner order as dependencies allow.

    Raises:
        ValueError: the plan is circular.
    """
    sorter = _sorter(plan)
    sorter.prepare()
    waiting = {step.step_id: None for step in plan.steps}
    order: list[str] = []
    ready: set[str] = set()
    while sorter.is_active():
        ready.update(sorter.get_ready())
        chosen = next(step_id for step_id in waiting if step_id in ready)
        del waiting[chosen]
        order.append(chosen)
        sorter.done(chosen)
    return order


def _sorter(plan: Plan) -> TopologicalSorter[str]:
    ids = {step.step_id for step in plan.steps}
    return TopologicalSorter({s.step_id: dependencies(s) & ids for s in plan.steps})
