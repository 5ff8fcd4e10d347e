"""Card of the charts agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_agentkit import agent_card

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bos.agent.v1 import AgentCard
    from bos_agentkit import AgentTool

NAME = "charts"

KEYWORDS = (
    "chart",
    "graph",
    "plot",
    "diagram",
    "histogram",
    "scatter",
    "visualise",
    "visualize",
    "draw",
)
"""Substrings of questions that count for this agent."""

# Before the group of sql and computation: a question for a chart is also one for its data.
_SELECTION_GROUP = 1


def charts_card(tools: Iterable[AgentTool]) -> AgentCard:
    """Card of the charts agent."""
    return agent_card(
        NAME,
        "Draws charts of aggregated rows of earlier steps: @{outputs.STEP.rows}.",
        capabilities=(
            "bar, line, area, pie and scatter charts, histograms",
            "pictures as PNG and SVG, specifications as Vega-Lite",
            "amounts, percentages and dates in the deployment's format",
        ),
        typical_use_cases=(
            "Draw revenue per month as a line chart (after a query)",
            "The top ten customers as bars",
            "Plot the distribution of order values. (after a query)",
        ),
        keywords=KEYWORDS,
        selection_group=_SELECTION_GROUP,
        tools=tools,
        output_fields={
            "mark": "bar, line, area, point, arc or histogram",
            "title": "",
            "rows": "the rows that were drawn",
            "notes": "what was aggregated, filled or left out",
            "files": "names of pictures and specification",
        },
        default_timeout_s=60,
        max_retries=1,
        latency_budget_s=4,
        aliases=("chart_agent", "chart", "chart_builder"),
        version="0.1.0",
    )
