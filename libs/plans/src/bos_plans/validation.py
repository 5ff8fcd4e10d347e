"""Validation of plans. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from graphlib import CycleError

from bos.agent.v1 import AgentCard
from bos.planner.v1 import Plan, Step
from bos_plans.bounds import OutOfBounds, extent, is_duration
from bos_plans.graph import dependencies, stages
from bos_plans.references import malformed_references, number_of_references, references_of

MAX_TASK_CHARS = 16_384
# A plan is one event of the run log; an event is at most 256 KiB.
MAX_PLAN_BYTES = 128 * 1024
MAX_REFERENCES = 256
"""References of one plan; each may resolve to a whole result."""
_MAX_PROBLEMS, _MAX_PROBLEM_CHARS = 32, 300
_STEP_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def plan_problems(
    plan: Plan,
    cards: Mapping[str, AgentCard],
    *,
    max_steps: int,
    completed: Collection[str] = (),
) -> list[str]:
    """Problems that make ``plan`` invalid, one sentence each; empty for a valid plan.

    Args:
        plan: With dependencies implied by references or without.
        cards: The available agents, by canonical name.
        max_steps: Most steps of a plan.
        completed: Completed steps of the plan that is being revised: references to them are
            valid, and their ids are reserved.
    """
    problems = _size_problems(plan, max_steps)
    if problems:
        return problems  # a plan may have any number of problems
    ids = [step.step_id for step in plan.steps]
    for position, step in enumerate(plan.steps):
        taken = {*ids[:position], *completed}
        problems += _identity_problems(step, position, taken)
        problems += _work_problems(step, cards)
        problems += _dependency_problems(step, known={*ids, *completed})
    if not problems:
        problems += _cycles(plan)
    return [problem[:_MAX_PROBLEM_CHARS] for problem in problems[:_MAX_PROBLEMS]]


def _size_problems(plan: Plan, max_steps: int) -> list[str]:
    """Size limits that the plan exceeds."""
    if len(plan.steps) > max_steps:
        return [f"It has {len(plan.steps)} steps; at most {max_steps} are allowed."]
    if plan.ByteSize() > MAX_PLAN_BYTES:
        return [f"It is larger than {MAX_PLAN_BYTES // 1024} KiB."]
    problems = []
    try:
        extent(plan.entities.values())
    except OutOfBounds as error:
        problems.append(f"One of its entities {error}.")
    for step in plan.steps:
        try:
            extent((*step.sub_task_input.values(), *step.entities.values()))
        except OutOfBounds as error:
            problems.append(f'The input of step "{step.step_id[:64]}" {error}.')
    if not problems and (count := sum(map(number_of_references, plan.steps))) > MAX_REFERENCES:
        problems.append(f"It has {count} references; at most {MAX_REFERENCES} are allowed.")
    return problems


def with_implied_dependencies(plan: Plan) -> Plan:
    """``plan`` with a dependency for every reference between its steps."""
    ids = {step.step_id for step in plan.steps}
    result = Plan()
    result.CopyFrom(plan)
    for step in result.steps:
        implied = sorted(references_of(step) & ids - {*step.depends_on})
        step.depends_on.extend(implied)
    return result


def _identity_problems(step: Step, position: int, taken: set[str]) -> Iterator[str]:
    if not _STEP_ID.fullmatch(step.step_id):
        yield (
            f"Step number {position + 1} needs an id of letters, digits, - or _ that begins with a "
            "letter."
        )
    elif step.step_id in taken:
        yield f'The id of step "{step.step_id}" is taken.'


def _work_problems(step: Step, cards: Mapping[str, AgentCard]) -> Iterator[str]:
    if not step.task.strip():
        yield f'Step "{step.step_id}" has no task.'
    if len(step.task) > MAX_TASK_CHARS:
        yield f'The task of step "{step.step_id}" exceeds {MAX_TASK_CHARS} characters.'
    if not is_duration(step.timeout):
        yield f'The timeout of step "{step.step_id}" is not a duration.'
    card = cards.get(step.agent)
    if card is None:
        yield f'Step "{step.step_id}" names the unknown agent "{step.agent}".'
        return
    tools = {tool.name for tool in card.tools}
    for tool in (step.tool_name, *step.tools):
        if tool and tool not in tools:
            yield f'Step "{step.step_id}" names the tool "{tool}", which {step.agent} has not.'


def _dependency_problems(step: Step, known: set[str]) -> Iterator[str]:
    for piece in malformed_references(step):
        yield f'Step "{step.step_id}" has a malformed reference: {piece}'
    for other in sorted(dependencies(step)):
        if other == step.step_id:
            yield f'Step "{step.step_id}" depends on itself.'
        elif other not in known:
            yield f'Step "{step.step_id}" depends on the unknown step "{other}".'


def _cycles(plan: Plan) -> Iterator[str]:
    try:
        stages(plan)
    except CycleError as error:
        yield f"It is circular: {' -> '.join(error.args[1])}."
