"""The table of agents that Bos has."""

import tomllib
from pathlib import Path

import pytest

from bos_plans import KNOWN_AGENTS, canonical_name, shared_names

_AGENTS = Path(__file__).parents[3] / "services" / "agents"


@pytest.mark.requirement("A-08")
def test_every_agent_of_the_repository_is_known() -> None:
    projects = [tomllib.loads(each.read_text()) for each in _AGENTS.glob("*/pyproject.toml")]
    named = {
        name
        for each in projects
        for name in each["project"].get("entry-points", {}).get("bos.agents", {})
    }
    assert named
    assert named == set(KNOWN_AGENTS)


@pytest.mark.requirement("A-08")
def test_names_of_the_documents_denote_agents() -> None:
    names = {
        "sql": "sql",
        "rag_agent": "rag",
        "code_agent": "code",
        "mail_agent": "mail",
        "ResearchAgent": "web",
        "UtilityAgent": "computation",
        "planner": None,
        "fortune_teller": None,
    }
    assert {written: canonical_name(written, KNOWN_AGENTS) for written in names} == names


def test_no_two_agents_share_a_name() -> None:
    assert not shared_names(KNOWN_AGENTS.values())
