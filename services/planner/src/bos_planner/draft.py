"""Validated plan from a reply of the model, a template or the heuristic. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from bos.agent.v1 import AgentCard
from bos.planner.v1 import Intent, IntentRoute, Plan, PlannerDecision, Step
from bos_chassis.values import to_value
from bos_planner.reply import NamedValue, PlannedStep, PlannerReply, read_value
from bos_planner.reports import completed_report, has_capability
from bos_plans import (
    Selection,
    canonical_names,
    canonical_step,
    dependencies,
    heuristic_plan,
    independent_steps,
    plan_problems,
    references_of,
    repetitions,
    whole_question,
    with_implied_dependencies,
    work_of,
)

DATABASE_WORD = "database"
"""Capability of agents that query databases; the intent GENERAL_QA excludes them."""

_MAX_TEXT_CHARS = 1_000
_MAX_PROBLEMS = 10


class PlanInvalid(Exception):
    """A plan failed validation. The message is safe to show to users."""

    def __init__(self, problems: Sequence[str]) -> None:
        # Bounded: the names in it come from the model, in any number and length.
        super().__init__(" ".join(problems)[:_MAX_TEXT_CHARS])
        self.problems = tuple(problem[:_MAX_TEXT_CHARS] for problem in problems[:_MAX_PROBLEMS])


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan with its origin and rationale."""

    plan: Plan
    decision: PlannerDecision
    intent: IntentRoute


@dataclass(frozen=True, slots=True)
class Bounds:
    """Constraints on a plan: agents, step limit, completed and blocked steps."""

    cards: Mapping[str, AgentCard]
    """All agents that exist, by canonical name, in card order."""
    disabled: Collection[str]
    max_steps: int
    earlier: Mapping[str, Step] = field(default_factory=dict)
    """Steps of the plan that is being revised."""
    completed: Collection[str] = ()
    """Ids of steps that succeeded in earlier attempts; new steps can refer to them."""
    blocked: Collection[str] = ()
    """Ids of steps that were denied or may have acted: they are not planned again."""


def draft_from_reply(
    reply: PlannerReply, question: str, selection: Selection, bounds: Bounds, *, origin: str
) -> Draft:
    """The plan that ``reply`` describes; ``origin`` is "model" or "template".

    Names of agents are normalised. Steps of agents that the user disabled or that the intent
    excludes are removed, also from the ``depends_on`` of other steps. A reference to a removed step
    makes the plan invalid, as does a step of an unknown agent: leaving it out would silently drop
    part of the question.

    Raises:
        PlanInvalid: it failed validation; the caller falls back.
    """
    intent = cast("Intent", Intent.Value(f"INTENT_{reply.intent}"))
    needs_data = intent in (Intent.INTENT_DATA_QA, Intent.INTENT_ANALYTICS_REPORT)
    steps = _steps(reply.steps, question, bounds.cards)
    steps = _beside_blocked(_without_repetitions(steps, bounds), bounds)
    kept, removed = _permitted(steps, intent, bounds)
    # A revision leaves completed charts as they are.
    if intent == Intent.INTENT_ANALYTICS_REPORT and not bounds.earlier:
        kept = completed_report(
            kept,
            bounds.cards,
            queries=DATABASE_WORD,
            disabled=bounds.disabled,
            max_steps=bounds.max_steps,
        )
    plan = with_implied_dependencies(
        Plan(steps=kept, entities=_values(reply.entities), origin=origin)
    )
    _unmark_partial_answers(plan, bounds)
    problems = plan_problems(
        plan, bounds.cards, max_steps=bounds.max_steps, completed=bounds.completed
    )
    problems += _blocked_problems(plan, bounds)
    if not kept and needs_data and not bounds.earlier:
        problems.append("It has no steps, though the question needs data.")
    if problems:
        raise PlanInvalid(problems)
    guardrails = dict(selection.guardrails)
    if removed:
        guardrails["removed_steps"] = removed
    confidence = clamp(reply.confidence)
    decision = _decision(plan, reply.rationale, confidence, guardrails)
    route = IntentRoute(
        intent=intent,
        confidence=confidence,
        reason=decision.rationale,
        suggested_next_agent=next(iter(decision.chosen_agents), ""),
    )
    return Draft(plan, decision, route)


def heuristic_draft(question: str, selection: Selection, bounds: Bounds, *, why: str) -> Draft:
    """Fallback plan without a model: one independent step per candidate agent, in order."""
    made = heuristic_plan(question, selection, max_steps=bounds.max_steps, why=why)
    return Draft(made.plan, made.decision, made.intent)


def same_work(plan: Plan, other: Plan) -> bool:
    """Whether two plans hold the same tasks for the same agents; step ids do not count."""
    return _work(plan) == _work(other)


def clamp(confidence: float) -> float:
    """``confidence`` limited to 0.0 to 1.0; 0.0 if it is not a number."""
    return 0.0 if math.isnan(confidence) else min(1.0, max(0.0, confidence))


def _steps(
    planned: Sequence[PlannedStep], question: str, cards: Mapping[str, AgentCard]
) -> list[Step]:
    """The steps with valid ids, in references to them as well.

    Names of agents alone become steps with the whole question as their task; unknown names are
    left out, which loses no part of the question.
    """
    if all(step.model_fields_set == {"agent"} for step in planned):
        named, _ = canonical_names((step.agent for step in planned), cards)
        return independent_steps(question, named)
    ids = [_step_id(step.step_id, number) for number, step in enumerate(planned, 1)]
    renamed = {
        step.step_id: new
        for step, new in zip(planned, ids, strict=True)
        if step.step_id and step.step_id != new
    }
    return [
        _step(step, step_id, renamed, question, cards)
        for step, step_id in zip(planned, ids, strict=True)
    ]


def _step_id(written: str, number: int) -> str:
    """``written``, or a generated id if it is missing or a bare number."""
    step_id = written.strip()
    return f"step_{step_id or number}" if not step_id or step_id.isdecimal() else step_id


def _step(
    planned: PlannedStep,
    step_id: str,
    renamed: Mapping[str, str],
    question: str,
    cards: Mapping[str, AgentCard],
) -> Step:
    agent, tool_name = canonical_step(planned.agent, planned.tool_name or "", cards)
    task = planned.task
    if "task" not in planned.model_fields_set:
        task = whole_question(question)
    inputs = {
        item.name: to_value(read_value(_renamed_in(item.value, renamed)))
        for item in planned.sub_task_input
    }
    return Step(
        step_id=step_id,
        agent=agent,
        task=_renamed_in(task, renamed),
        tool_name=tool_name,
        tools=_allowed_tools(cards.get(agent), tool_name),
        sub_task_input=inputs,
        depends_on=dict.fromkeys(renamed.get(other, other) for other in planned.depends_on),
        is_final_answer=planned.is_final_answer,
    )


def _renamed_in(text: str, renamed: Mapping[str, str]) -> str:
    """``text`` with references to the new ids of steps."""
    for old, new in renamed.items():
        text = text.replace(f"@{{outputs.{old}.", f"@{{outputs.{new}.")
    return text


def _allowed_tools(card: AgentCard | None, tool_name: str) -> list[str]:
    """Tools that the step may call: a protected tool only if the plan names it.

    Empty means every tool that needs no approval. For an agent with protected tools only, choosing
    the agent counts as naming them.
    """
    tools = card.tools if card is not None else ()
    if tools and not tool_name and all(tool.requires_approval for tool in tools):
        return [tool.name for tool in tools]
    if not any(tool.requires_approval and tool.name == tool_name for tool in tools):
        return []
    return [t.name for t in tools if not t.requires_approval or t.name == tool_name]


def _values(named: Sequence[NamedValue]) -> dict[str, Any]:
    return {item.name: to_value(read_value(item.value)) for item in named}


def _without_repetitions(steps: Sequence[Step], bounds: Bounds) -> list[Step]:
    """Remove completed steps that a revised plan repeats verbatim: they stay completed."""

    def repeated(step: Step) -> bool:
        before = bounds.earlier.get(step.step_id)
        return (
            step.step_id in bounds.completed
            and before is not None
            and work_of(step) == work_of(before)
        )

    return [step for step in steps if not repeated(step)]


def _beside_blocked(steps: Sequence[Step], bounds: Bounds) -> list[Step]:
    """The steps with blocked ones removed from ``depends_on``, as these have no output."""
    for step in steps:
        wanted = [other for other in step.depends_on if other not in bounds.blocked]
        del step.depends_on[:]
        step.depends_on.extend(wanted)
    return list(steps)


def _blocked_problems(plan: Plan, bounds: Bounds) -> Iterator[str]:
    """Problems of a plan that repeats blocked steps."""
    blocked = [bounds.earlier[step_id] for step_id in bounds.blocked if step_id in bounds.earlier]
    for step_id, other in repetitions(plan.steps, blocked).items():
        yield f'Step "{step_id}" repeats the work of "{other}", which must not be done.'
    for step in plan.steps:
        if step.step_id in bounds.blocked:
            yield f'The id of step "{step.step_id}" is taken.'


def _permitted(
    steps: Sequence[Step], intent: Intent, bounds: Bounds
) -> tuple[list[Step], list[str]]:
    def ruled_out(step: Step) -> bool:
        card = bounds.cards.get(step.agent)
        return (
            step.agent in bounds.disabled
            or intent == Intent.INTENT_OUT_OF_SCOPE
            or (intent == Intent.INTENT_GENERAL_QA and has_capability(card, DATABASE_WORD))
        )

    kept = [step for step in steps if not ruled_out(step)]
    removed = {step.step_id for step in steps} - {step.step_id for step in kept}
    for step in kept:
        lost = sorted(references_of(step) & removed)
        if lost:
            raise PlanInvalid(
                [f'Step "{step.step_id}" refers to "{lost[0]}", whose agent may not be used.']
            )
        remaining = [other for other in step.depends_on if other not in removed]
        del step.depends_on[:]
        step.depends_on.extend(remaining)
    return kept, sorted(removed)


def _unmark_partial_answers(plan: Plan, bounds: Bounds) -> None:
    """Unmark final answers that do not depend on every step, whose results would be left out.

    Results of earlier attempts count as well.
    """
    done = [step for step_id, step in bounds.earlier.items() if step_id in bounds.completed]
    needs = {step.step_id: dependencies(step) for step in (*done, *plan.steps)}
    known = {*needs, *bounds.completed}
    for step in plan.steps:
        if not step.is_final_answer:
            continue
        reached, open_ids = {step.step_id}, [step.step_id]
        while open_ids:
            new = needs.get(open_ids.pop(), set()) - reached
            reached |= new
            open_ids += new
        step.is_final_answer = known <= reached


def _decision(
    plan: Plan, rationale: str, confidence: float, guardrails: Mapping[str, Any]
) -> PlannerDecision:
    """Planner decision: the agents of the plan, in the order of its steps."""
    return PlannerDecision(
        rationale=rationale[:_MAX_TEXT_CHARS],
        chosen_agents=dict.fromkeys(step.agent for step in plan.steps),
        confidence=confidence,
        guardrails={name: to_value(value) for name, value in guardrails.items()},
    )


def _work(plan: Plan) -> list[tuple[bytes, set[int | str]]]:
    position: dict[str, int | str] = {step.step_id: n for n, step in enumerate(plan.steps)}
    return [
        (work_of(step), {position.get(other, other) for other in step.depends_on})
        for step in plan.steps
    ]
