from __future__ import annotations

import pytest

from bos_agentkit import AgentServiceSettings
from bos_chassis.errors import ConfigurationError
from bos_standalone import agents
from bos_standalone.agents import AGENTS, agent_factory


@pytest.mark.parametrize("name", AGENTS)
def test_every_line_of_the_table_leads_to_an_agent(name: str) -> None:
    factory = agent_factory(name)
    assert issubclass(factory.settings, AgentServiceSettings)
    settings = factory.settings_with(
        mcp_url="http://127.0.0.1:1/mcp", sandbox_target="127.0.0.1:1", not_a_setting=1
    )
    assert settings.server.host == "127.0.0.1"


@pytest.mark.parametrize(
    "line",
    [
        "bos_nowhere.service:serve",
        "bos_sql.service:absent",
        "bos_sql.service",
        "bos_planner.service:serve",
    ],
)
def test_a_wrong_line_is_named_with_what_it_should_be(
    monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr(agents, "AGENTS", {"odd": line})
    with pytest.raises(ConfigurationError, match="odd"):
        agent_factory("odd")
