"""Card of the SQL agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_agentkit import agent_card

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bos.agent.v1 import AgentCard
    from bos_agentkit import AgentTool

# Substrings of questions that count for this agent.
KEYWORDS = (
    "table",
    "tables",
    "list",
    "show",
    "top",
    "per",
    "group",
    "average",
    "sum",
    "count",
    "trend",
    "breakdown",
    "report",
)


def sql_card(tools: Iterable[AgentTool]) -> AgentCard:
    """Card of the SQL agent with ``tools``."""
    return agent_card(
        "sql",
        "Answers questions about the data of a database by one read-only query.",
        capabilities=[
            "database lookup",
            "filtering, grouping, ranking, totals and averages",
            "listing tables and their meaning",
        ],
        typical_use_cases=[
            "Which five customers brought the most revenue last quarter?",
            "List all tables in the database",
        ],
        keywords=KEYWORDS,
        selection_group=2,
        tools=tools,
        output_fields={
            "rows": "the rows of the result as maps from column name to value",
            "row_count": "number of rows",
            "<column>": "its value, if there is one row",
            "sql": "",
            "used_tables": "",
            "assumptions": "what it took for granted",
            "execution_stats": "",
        },
        default_timeout_s=60.0,
        max_retries=2,
        latency_budget_s=8.0,
        # mcp_db hands the token on to the files service for tables of uploaded files.
        downstream_audiences=["mcp_db", "file_tables"],
        aliases=["sql_agent"],
        takes_verified_queries=True,
        version="0.1.0",
    )
