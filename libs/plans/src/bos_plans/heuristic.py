"""Heuristic plans by keywords, without a model. Pure.

No agent is known by name here; keywords and groups come from the cards. An agent is a candidate
when its score is positive and not below that of any agent of its own or a later selection group.
The planner falls back to it when it has no model or its model fails, the gateway when the planner
is unavailable or its plan is invalid.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bos.agent.v1 import AgentCard
from bos.planner.v1 import (
    IntentRoute,
    MakePlanRequest,
    MakePlanResponse,
    Plan,
    PlannerDecision,
    Step,
)
from bos_chassis.values import to_value
from bos_plans.names import canonical_names
from bos_plans.references import without_references
from bos_plans.validation import MAX_TASK_CHARS

HEURISTIC = "heuristic"
"""``Plan.origin`` of heuristic plans."""
HEURISTIC_CONFIDENCE = 0.4

_MAX_TEXT_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class Selection:
    """Selected agents in order, and the constraints applied."""

    agents: tuple[str, ...]
    guardrails: Mapping[str, Any] = field(default_factory=dict)
    """Applied constraints by name, such as ``disabled_agents``."""
    disabled: tuple[str, ...] = ()
    """Canonical names that the user has disabled."""


def score(question: str, card: AgentCard) -> int:
    """Number of the card's keywords in the lower-cased question."""
    text = question.lower()
    return sum(keyword in text for keyword in {*card.keywords} if keyword)


def candidates(
    question: str,
    cards: Sequence[AgentCard],
    *,
    fallback_agent: str = "",
    context_keys: Collection[str] = (),
) -> list[str]:
    """Agents whose keywords match the question, in heuristic order.

    Args:
        question: As the user wrote it.
        cards: The registered agents; their order breaks ties within a group.
        fallback_agent: Used when no keyword matches; empty or unknown for none.
        context_keys: Keys of the request's context. Agents that miss a required one come last.
    """
    scores = [score(question, card) for card in cards]
    chosen = [
        card
        for card, own in zip(cards, scores, strict=True)
        if own > 0
        and all(
            own >= other
            for rival, other in zip(cards, scores, strict=True)
            if rival.selection_group >= card.selection_group
        )
    ]
    if not chosen:
        chosen = [card for card in cards if card.name == fallback_agent]
    chosen.sort(key=lambda card: (bool(missing_context(card, context_keys)), card.selection_group))
    return [card.name for card in chosen]


def missing_context(card: AgentCard, context_keys: Collection[str]) -> list[str]:
    """Required context keys of the agent that the request lacks."""
    return [key for key in card.required_context_keys if key not in context_keys]


def apply_preferences(
    proposed: Sequence[str],
    *,
    prefer: Sequence[str],
    disable: Sequence[str],
    unavailable: Sequence[str] = (),
) -> Selection:
    """Preferred agents, then proposed ones, without disabled ones.

    Args:
        proposed: Candidates in heuristic order.
        prefer: Canonical names; added even when they were not proposed.
        disable: Canonical names; they take precedence over preferences.
        unavailable: Requested names that match no agent; ignored, but listed in the
            guardrails.
    """
    agents = dict.fromkeys(name for name in (*prefer, *proposed) if name not in disable)
    constraints = {
        "disabled_agents": list(dict.fromkeys(disable)),
        "preferred_agents": [name for name in dict.fromkeys(prefer) if name not in disable],
        "unavailable_agents": list(unavailable),
    }
    guardrails = {name: value for name, value in constraints.items() if value}
    return Selection(tuple(agents), guardrails, tuple(dict.fromkeys(disable)))


def select(request: MakePlanRequest) -> Selection:
    """Select agents for a request by keywords of question and replies, then by preferences."""
    cards = {card.name: card for card in request.cards}
    prefer, unknown = canonical_names(request.prefer_agents, cards)
    disable, absent = canonical_names(request.disable_agents, cards)
    proposed = candidates(
        "\n".join([request.question, *(turn.reply for turn in request.clarifications)]),
        request.cards,
        fallback_agent=request.fallback_agent,
        context_keys=request.context.fields,
    )
    return apply_preferences(
        proposed, prefer=prefer, disable=disable, unavailable=[*unknown, *absent]
    )


def heuristic_plan(
    question: str, selection: Selection, *, max_steps: int, why: str
) -> MakePlanResponse:
    """Plan with one independent step per selected agent, in order; empty if none is selected.

    Args:
        question: As the user wrote it; each step's task is the whole question.
        selection: The selected agents.
        max_steps: Most steps; further agents are left out.
        why: Reason for the heuristic plan, a sentence for users; added to the rationale.
    """
    agents = selection.agents[:max_steps]
    chosen = f"The question's keywords and preferences speak for {', '.join(agents)}."
    rationale = f"{chosen if agents else 'No available agent fits the question.'} {why}".strip()
    return MakePlanResponse(
        plan=Plan(steps=independent_steps(question, agents), origin=HEURISTIC),
        decision=PlannerDecision(
            rationale=rationale[:_MAX_TEXT_CHARS],
            chosen_agents=agents,
            confidence=HEURISTIC_CONFIDENCE,
            guardrails={name: to_value(value) for name, value in selection.guardrails.items()},
        ),
        intent=IntentRoute(suggested_next_agent=next(iter(agents), "")),
    )


def independent_steps(question: str, agents: Sequence[str]) -> list[Step]:
    """One step per agent with the whole question as its task; ids are the agents' names."""
    task = whole_question(question)
    return [Step(step_id=agent, agent=agent, task=task) for agent in agents]


def whole_question(question: str) -> str:
    """Question as a task, in which nothing is taken for a reference."""
    return without_references(question)[:MAX_TASK_CHARS]
