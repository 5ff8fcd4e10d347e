"""The graph of a plan: validation, stages and order. Pure (SPEC B-19, C-07, C-08)."""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from bos_gateway.references import malformed_references, references_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bos.agent.v1 import AgentCard
    from bos.planner.v1 import Plan, Step

_STEP_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def dependencies(step: Step) -> set[str]:
    """Every step that must have ended before ``step`` can start, soft and hard (SPEC X-12)."""
    return {*step.depends_on, *references_of(step)}


def plan_problems(
    plan: Plan,
    cards: Mapping[str, AgentCard],
    *,
    max_steps: int,
    completed: Collection[str] = (),
) -> list[str]:
    """What makes ``plan`` unusable, in words for people; empty when it can be run.

    Args:
        plan: The plan as the planner made it.
        cards: The agents that exist, by canonical name.
        max_steps: Most steps the plan may have.
        completed: Steps of earlier revisions whose output may be referred to.
    """
    problems: list[str] = []
    if len(plan.steps) > max_steps:
        problems.append(f"The plan has {len(plan.steps)} steps; at most {max_steps} are allowed.")
    ids = [step.step_id for step in plan.steps]
    known = {*ids, *completed}
    for index, step in enumerate(plan.steps):
        problems += _step_problems(step, index, ids, known, cards)
    if not problems:
        try:
            stages(plan)
        except CycleError as error:
            problems.append(f"The plan is circular: {' -> '.join(error.args[1])}.")
    return problems


def stages(plan: Plan) -> list[list[str]]:
    """Step ids in groups that could start together, each in planner order (SPEC C-07).

    Raises:
        ValueError: the plan is circular (SPEC C-08); a ``graphlib.CycleError``, to be exact.
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
    """Step ids in planner order, moved back only as far as dependencies demand (SPEC C-11).

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


def _step_problems(
    step: Step,
    index: int,
    ids: list[str],
    known: set[str],
    cards: Mapping[str, AgentCard],
) -> list[str]:
    name = f'Step "{step.step_id}"' if step.step_id else f"Step number {index + 1}"
    problems = []
    if not _STEP_ID.fullmatch(step.step_id):
        problems.append(f"{name} needs an id of letters, digits, - or _ that begins with a letter.")
    elif step.step_id in ids[:index]:
        problems.append(f"{name} exists twice.")
    card = cards.get(step.agent)
    if card is None:
        problems.append(f'{name} names the unknown agent "{step.agent}".')
    else:
        tools = {tool.name for tool in card.tools}
        unknown = [t for t in (step.tool_name, *step.tools) if t and t not in tools]
        problems += [f'{name} names the tool "{t}", which {step.agent} has not.' for t in unknown]
    if not step.task.strip():
        problems.append(f"{name} has no task.")
    problems += [f"{name} has a malformed reference: {text}" for text in malformed_references(step)]
    needed = dependencies(step)
    if step.step_id in needed:
        problems.append(f"{name} depends on itself.")
    problems += [f'{name} depends on the unknown step "{s}".' for s in sorted(needed - known)]
    return problems
