"""Card of the document agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_agentkit import agent_card

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bos.agent.v1 import AgentCard
    from bos_agentkit import AgentTool

NAME = "rag"

KEYWORDS = (
    "document",
    "contract",
    "agreement",
    "clause",
    "policy",
    "policies",
    "manual",
    "handbook",
    "minutes",
    "meeting notes",
    "price list",
    "terms",
    "according to",
    "pdf",
    "uploaded",
)
"""Substrings of questions that speak for this agent."""

_SELECTION_GROUP = 1


def rag_card(tools: Iterable[AgentTool]) -> AgentCard:
    """Card of this agent, as planner and gateway see it."""
    return agent_card(
        NAME,
        "Answers from documents that the user uploaded, and cites passages.",
        capabilities=(
            "search in contracts, policies, manuals, price lists and notes",
            "answers with citations of document, page and section",
            "filters by kind, topic, section and date of documents",
        ),
        typical_use_cases=(
            "What notice period does the contract with the carrier set?",
            "According to the travel policy, who approves flights?",
            "Which penalty applies to late deliveries? (before a query that counts them)",
        ),
        keywords=KEYWORDS,
        selection_group=_SELECTION_GROUP,
        tools=tools,
        output_fields={
            "found": "whether the documents hold an answer",
            "chunks": "list of {chunk_id, score, text, metadata}",
            "sources": "list of {type, source, page, section}",
            "query": "what was searched for",
        },
        default_timeout_s=60,
        max_retries=1,
        latency_budget_s=6,
        downstream_audiences=("documents",),
        aliases=("rag_agent", "documents_agent"),
        version="0.1.0",
    )
