from __future__ import annotations

from typing import TYPE_CHECKING

from bos_agentkit import agent_card

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bos.agent.v1 import AgentCard
    from bos_agentkit import AgentTool

NAME = "code"

# Keywords match anywhere in a question, so bare "code" or "script" would select this agent for
# questions about postcodes and subscriptions.
KEYWORDS = (
    "python",
    "pandas",
    "numpy",
    "matplotlib",
    "run code",
    "write code",
    "run a script",
    "write a script",
    "histogram",
    "scatter plot",
    "box plot",
    "line plot",
    " plot ",
)

# The first group: it is a candidate only where no agent has a higher score, and displaces no
# other candidate.
_SELECTION_GROUP = 0


def code_card(tools: Iterable[AgentTool]) -> AgentCard:
    """Card of the code agent."""
    return agent_card(
        NAME,
        "Runs a Python program (numpy, pandas, matplotlib) that it wrote, once approved.",
        capabilities=(
            "figures as image files",
            "files such as CSV for download",
            "regression, clustering, simulation over rows of earlier steps",
        ),
        typical_use_cases=(
            "Cluster these customers with numpy (after a query)",
            "Pivot these rows with pandas, as CSV",
        ),
        keywords=KEYWORDS,
        selection_group=_SELECTION_GROUP,
        tools=tools,
        output_fields={
            "code": "",
            "stdout": "",
            "stderr": "",
            "exit_code": "",
            "result": "number, text, list or map",
            "files": "names of its files",
            "explanation": "",
        },
        default_timeout_s=60,
        max_retries=1,
        latency_budget_s=10,
        downstream_audiences=("sandbox",),
        aliases=("python",),
        version="0.1.0",
    )
