"""Canonical names of agents and tools."""

import pytest

from bos.agent.v1 import AgentCard, Tool
from bos.planner.v1 import Plan, Step
from bos_plans import (
    canonical_name,
    canonical_step,
    canonical_tool,
    shared_names,
    with_canonical_names,
)

CARDS = {
    "api_docs": AgentCard(name="api_docs", aliases=["api_docs_agent"]),
    "reading": AgentCard(
        name="reading",
        aliases=["reading_agent", "ResearchAgent", "FileSystemTool", "counting"],
        tools=[Tool(name="fetch_url", aliases=["ReadPageTool"]), Tool(name="search")],
    ),
    "counting": AgentCard(
        name="counting",
        aliases=["counting_agent"],
        tools=[Tool(name="count", aliases=["CountTool"]), Tool(name="search")],
    ),
}


@pytest.mark.requirement("A-08")
def test_agents_are_found_by_name_or_alias_alone() -> None:
    agents = {
        " Reading ": "reading",
        "ReadingAgent": "reading",
        "reading-agent": "reading",
        "RESEARCH_AGENT": "reading",
        "Research Agent": "reading",
        "API docs": "api_docs",
        "counting": "counting",  # the name of one agent, an alias of another
        "Research": None,
        "ResearchAgents": None,
        "fetch_url": None,
        "agent": None,
        "": None,
    }
    assert {written: canonical_name(written, CARDS) for written in agents} == agents


@pytest.mark.requirement("A-08", "C-19")
def test_tools_are_found_by_name_or_alias_and_other_names_stay() -> None:
    tools = {"FetchUrl": "fetch_url", "read_page_tool": "fetch_url", "ReadPage": "ReadPage", "": ""}
    assert {written: canonical_tool(written, CARDS["reading"]) for written in tools} == tools
    assert canonical_tool("FetchUrl", None) == "FetchUrl"


@pytest.mark.requirement("A-08", "C-19", "C-29")
def test_agent_and_tool_of_a_step_are_found_together() -> None:
    steps = {
        ("ResearchAgent", "ReadPageTool"): ("reading", "fetch_url"),
        ("Orchestrator", "ReadPageTool"): ("reading", "fetch_url"),
        ("", "count"): ("counting", "count"),
        ("Orchestrator", "FileSystemTool"): ("reading", ""),
        ("reading", "Reading"): ("reading", ""),
        ("CountTool", ""): ("counting", "count"),
        ("CountTool", "search"): ("counting", "search"),
        # Nothing, or several.
        ("Orchestrator", "search"): ("Orchestrator", "search"),
        ("search", ""): ("search", ""),
        ("Orchestrator", ""): ("Orchestrator", ""),
        ("Other", "CountTool"): ("Other", "CountTool"),
        ("", ""): ("", ""),
        ("counting", "ReadPageTool"): ("counting", "ReadPageTool"),
    }
    assert {written: canonical_step(*written, CARDS) for written in steps} == steps


def test_plans_hold_canonical_names() -> None:
    step = Step(step_id="a", agent="ResearchAgent", task="Read it.", tool_name="ReadPageTool")
    step.tools.extend(["ReadPageTool", "fetch_url", "Search", "unknown"])
    plan = Plan(steps=[step, Step(step_id="b", agent="absent")], origin="model")
    named = with_canonical_names(plan, CARDS)
    first, second = named.steps
    assert (first.agent, first.tool_name, first.task) == ("reading", "fetch_url", "Read it.")
    assert list(first.tools) == ["fetch_url", "search", "unknown"]
    assert second.agent == "absent"
    assert named.origin == "model"
    assert plan.steps[0].agent == "ResearchAgent"


def test_names_that_several_cards_claim_are_found() -> None:
    assert shared_names(CARDS.values()) == {"counting": ["counting", "reading"]}
    tool = Tool(name="look", aliases=["Research Agent"])
    more = AgentCard(name="more", tools=[tool])
    assert shared_names([CARDS["reading"], more]) == {"researchagent": ["more", "reading"]}
    assert shared_names([CARDS["api_docs"], more]) == {}
