"""Card of the text agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_agentkit import agent_card

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bos.agent.v1 import AgentCard
    from bos_agentkit import AgentTool

NAME = "text"

KEYWORDS = (
    "summar",
    "key points",
    "tl;dr",
    "translat",
    "rewrite",
    "reword",
    "paraphrase",
    "proofread",
    "condense",
    "in plain words",
    "in simple words",
)
"""Substrings of questions that speak for this agent."""

# What finds the texts comes first; alone it is a candidate only where nothing else fits better.
_SELECTION_GROUP = 0


def text_card(tools: Iterable[AgentTool]) -> AgentCard:
    """Card of this agent, as planner and gateway see it."""
    return agent_card(
        NAME,
        "Works on texts of earlier steps.",
        capabilities=(
            "summaries and key points",
            "translation into any language",
            "rewriting for another reader or tone",
            "comparison of texts",
            "passages copied from a text",
        ),
        typical_use_cases=(
            "Translate the answer into Hindi",
            "Summarise that section",
            "Which differences are between the two results? (after other steps)",
        ),
        keywords=KEYWORDS,
        selection_group=_SELECTION_GROUP,
        tools=tools,
        output_fields={
            "text": "the text that was made",
            "points": "list of texts, of key_points",
            "items": "list of texts, of extract",
        },
        default_timeout_s=120,
        max_retries=1,
        latency_budget_s=4,
        aliases=("summariser", "summarizer", "translator"),
        version="0.1.0",
    )
