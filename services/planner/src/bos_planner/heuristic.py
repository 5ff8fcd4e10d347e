"""Which agents a question's words speak for. Pure: cards in, names out.

No agent is known by name here; keywords and groups come from the cards. An agent is a candidate
when its score is positive and not below that of any agent of its own or a later selection group.
With ``api_docs`` in group 1 and ``sql`` and ``computation`` together in group 2, in this order,
``api_docs`` wins ties, and ``sql`` and ``computation`` are both candidates when they tie.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bos.agent.v1 import AgentCard


@dataclass(frozen=True, slots=True)
class Selection:
    """Agents in the order in which they are proposed, and what constrained the choice."""

    agents: tuple[str, ...]
    guardrails: Mapping[str, Any] = field(default_factory=dict)
    """Applied constraints by name, such as ``disabled_agents``."""


def score(question: str, card: AgentCard) -> int:
    """How many of the card's keywords occur in the lower-cased question."""
    text = question.lower()
    return sum(keyword in text for keyword in {*card.keywords} if keyword)


def candidates(
    question: str,
    cards: Sequence[AgentCard],
    *,
    fallback_agent: str = "",
    context_keys: Collection[str] = (),
) -> list[str]:
    """Agents that the question's words speak for, in heuristic order.

    Args:
        question: As the user wrote it.
        cards: The agents that exist; their order breaks ties within a group.
        fallback_agent: Stands in when no keyword matches; empty or unknown for none.
        context_keys: Keys that the request's context has. Agents that miss one they require come
            last: what they could do is done last, if at all.
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
    """Context keys that the agent cannot work without and that are not there."""
    return [key for key in card.required_context_keys if key not in context_keys]


def apply_preferences(
    proposed: Sequence[str],
    *,
    prefer: Sequence[str],
    disable: Sequence[str],
    unavailable: Sequence[str] = (),
) -> Selection:
    """Preferred agents first, then the proposed ones, none of them disabled.

    Args:
        proposed: Candidates in heuristic order.
        prefer: Canonical names; added even when they were not proposed.
        disable: Canonical names; they win over preferences.
        unavailable: Names that were asked for and that nobody answers to. They constrain nothing,
            but the guardrails say so.
    """
    agents = dict.fromkeys(name for name in (*prefer, *proposed) if name not in disable)
    constraints = {
        "disabled_agents": list(dict.fromkeys(disable)),
        "preferred_agents": [name for name in dict.fromkeys(prefer) if name not in disable],
        "unavailable_agents": list(unavailable),
    }
    return Selection(tuple(agents), {name: value for name, value in constraints.items() if value})
