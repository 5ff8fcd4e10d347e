"""Card of the web agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_agentkit import agent_card

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bos.agent.v1 import AgentCard
    from bos_agentkit import AgentTool

NAME = "web"

READING_KEYWORDS = ("http://", "https://", "web page", "webpage", "website", "url")
KEYWORDS = (
    *READING_KEYWORDS,
    "news",
    "online",
    "internet",
    "on the web",
    "search the web",
    "competitor",
    "benchmark",
    "market price",
    "price index",
    "publicly",
    "public figures",
    "press release",
)
"""Substrings of questions that speak for this agent."""

_SELECTION_GROUP = 1
_ANSWERED = {
    "found": "whether pages answer",
    "pages": "read pages: {url, title, text}",
    "sources": "cited: {source, url, excerpt}",
}


def web_card(tools: Iterable[AgentTool], *, searches: bool) -> AgentCard:
    """Card of this agent, as planner and gateway see it.

    Args:
        tools: Its tools.
        searches: Whether a search provider is configured; else it reads given pages alone.
    """
    if not searches:
        return agent_card(
            NAME,
            "Reads web pages whose address is given, and cites them; it cannot search.",
            capabilities=("reads public web pages by address", "answers with citations of pages"),
            typical_use_cases=("What does the page https://example.org/terms say about returns?",),
            keywords=READING_KEYWORDS,
            selection_group=_SELECTION_GROUP,
            tools=tools,
            output_fields=_ANSWERED,
            default_timeout_s=60,
            max_retries=1,
            latency_budget_s=8,
            aliases=("ResearchAgent",),
            version="0.1.0",
        )
    return agent_card(
        NAME,
        "Searches the public web and news, reads pages, and cites them.",
        capabilities=("basic, news or deep search", "web pages by address"),
        typical_use_cases=(
            "Find the latest news about our competitor",
            "Find the market price of cast iron online (before a computation)",
        ),
        keywords=KEYWORDS,
        selection_group=_SELECTION_GROUP,
        tools=tools,
        output_fields={
            **_ANSWERED,
            "search_results": "{title, url, snippet, score}",
            "tavily_answer": "of the search service",
        },
        default_timeout_s=90,
        max_retries=1,
        latency_budget_s=8,
        aliases=("ResearchAgent",),
        version="0.1.0",
    )
