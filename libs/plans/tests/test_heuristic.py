"""Heuristic plans by keywords of the cards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bos.agent.v1 import AgentCard
from bos_plans.heuristic import apply_preferences, candidates, missing_context, score

pytestmark = pytest.mark.requirement("B-03", "B-04", "B-05", "B-06", "B-21")

SQL = ["table", "tables", "list", "show", "top", "per", "group", "average", "count", "trend"]
COMPUTATION = ["calculate", "difference", "ratio", "project", "compute", "what is", "percent"]
API_DOCS = ["api", "endpoint", "route", "http", "/api/", "get /", "post /", "status code"]


def card(name: str, group: int, keywords: list[str], requires: tuple[str, ...] = ()) -> AgentCard:
    return AgentCard(
        name=name,
        description=name,
        selection_group=group,
        keywords=keywords,
        required_context_keys=requires,
    )


THREE_CARDS = [
    card("api_docs", 1, API_DOCS),
    card("sql", 2, SQL),
    card("computation", 2, COMPUTATION),
]


def counted_by_hand(question: str) -> list[str]:
    """Reference implementation of the rule for these three agents."""
    text = question.lower()
    api_score = sum(keyword in text for keyword in API_DOCS)
    sql_score = sum(keyword in text for keyword in SQL)
    comp_score = sum(keyword in text for keyword in COMPUTATION)
    found = []
    if api_score >= max(sql_score, comp_score) and api_score > 0:
        found.append("api_docs")
    if sql_score >= comp_score and sql_score > 0:
        found.append("sql")
    if comp_score >= sql_score and comp_score > 0:
        found.append("computation")
    return found or ["sql"]


words = st.sampled_from([*SQL, *COMPUTATION, *API_DOCS, "Hello", "customers", "GET /", "Top"])


@given(st.lists(words, max_size=12).map(" ".join))
def test_selection_matches_the_reference_implementation(question: str) -> None:
    assert candidates(question, THREE_CARDS, fallback_agent="sql") == counted_by_hand(question)


@pytest.mark.requirement("T-10", "T-11")
def test_reference_questions_get_their_agents() -> None:
    expected = {
        "List all tables in the database": ["sql"],
        "List me all the API points available to you": ["api_docs", "sql"],
        "Calculate the difference": ["computation"],
        "Show the ratio": ["sql", "computation"],
        "Good morning": ["sql"],  # nothing matches
    }
    found = {asked: candidates(asked, THREE_CARDS, fallback_agent="sql") for asked in expected}
    assert found == expected


def test_score_counts_keywords_not_occurrences() -> None:
    assert score("TOP top tOp", THREE_CARDS[1]) == 1
    assert score("stop", THREE_CARDS[1]) == 1  # a substring is enough


def test_without_a_fallback_agent_nothing_is_proposed() -> None:
    assert candidates("Good morning", THREE_CARDS) == []
    assert candidates("Good morning", THREE_CARDS, fallback_agent="mail") == []


def test_an_agent_that_misses_required_context_comes_last() -> None:
    cards = [card("api_docs", 1, ["api"], ("api_base_url",)), card("sql", 2, ["list"])]
    assert candidates("list api", cards) == ["sql", "api_docs"]
    assert candidates("list api", cards, context_keys={"api_base_url"}) == ["api_docs", "sql"]
    assert missing_context(cards[0], {"other"}) == ["api_base_url"]


def test_preferred_agents_come_first_even_when_not_proposed() -> None:
    selection = apply_preferences(["sql", "computation"], prefer=["web", "computation"], disable=[])
    assert selection.agents == ("web", "computation", "sql")
    assert selection.guardrails == {"preferred_agents": ["web", "computation"]}


def test_disabled_agents_are_neither_candidates_nor_preferred() -> None:
    selection = apply_preferences(
        ["sql", "computation"], prefer=["sql", "sql"], disable=["sql"], unavailable=["mail"]
    )
    assert selection.agents == ("computation",)
    assert selection.guardrails == {
        "disabled_agents": ["sql"],
        "unavailable_agents": ["mail"],
    }
