from __future__ import annotations

from typing import TYPE_CHECKING

from bos_agentkit import agent_card

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bos.agent.v1 import AgentCard
    from bos_agentkit import AgentTool

NAME = "computation"

KEYWORDS = (
    "calculate",
    "difference",
    "ratio",
    "project",
    "simulate",
    "compute",
    "forecast",
    "estimate",
    "compare",
    "what is",
    "percent",
)
"""Substrings of questions that count for this agent."""

# The group of sql: each of the two is a candidate only if the other's score is not higher.
_SELECTION_GROUP = 2


def computation_card(tools: Iterable[AgentTool]) -> AgentCard:
    """Card of the computation agent."""
    return agent_card(
        NAME,
        "Computes with numbers of the question or of earlier steps.",
        capabilities=(
            "exact arithmetic",
            "percentages and shares",
            "statistics over given rows",
            "trends, projections and simulation",
            "date arithmetic",
        ),
        typical_use_cases=(
            "What is 17% of 2,450?",
            "What share of the total do the top five customers have? (after a query)",
            "Forecast next month from monthly figures. (after a query)",
        ),
        keywords=KEYWORDS,
        selection_group=_SELECTION_GROUP,
        tools=tools,
        output_fields={
            "result": "number, text, list or map",
            "stdout": "",
            "code": "",
            "explanation": "",
        },
        default_timeout_s=60,
        max_retries=1,
        latency_budget_s=5,
        downstream_audiences=("sandbox",),
        aliases=("calculator", "utility_agent", "UtilityAgent"),
        version="0.1.0",
    )
