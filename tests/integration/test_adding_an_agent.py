"""The agent that `bos new agent` writes answers through the public API once it is there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bos.gateway.v1 import RunStatus
from bos_chassis.values import from_value_map
from bos_standalone.new_agent.command import agent_files
from bos_testkit.packages import install_metadata
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

from .conftest import OpenProduct
from .harness import no_internals, plan_reply, planned

QUESTION = "Summarise the list of tables"
SAID = "- The company keeps 19 tables."
REPLIES = [
    plan_reply(
        QUESTION,
        planned("tables", "sql", "List all tables in the database"),
        planned("brief", "summary", "Condense the list of tables", "tables"),
    ),
    fixture(
        "summary",
        ["### Context from other agents", "invoices"],
        schema="Reply",
        json={"text": SAID},
    ),
    fixture("answer", ["### Question", "Agent: summary"], text=f"In short: {SAID}"),
]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The agent's package is found by its entry point, as after ``make install``."""
    folder = tmp_path / "summary"
    for path, content in agent_files("summary", "", "", "executive brief").items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    install_metadata(folder / "pyproject.toml", folder / "installed")
    monkeypatch.syspath_prepend(folder / "src")
    monkeypatch.syspath_prepend(folder / "installed")
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "bos_summary"]:
        del sys.modules[name]


@pytest.mark.requirement("S-01", "S-09", "S-11", "T-17")
@pytest.mark.usefixtures("installed")
async def test_new_agent_is_listed_planned_and_answers(open_product: OpenProduct) -> None:
    async with ScriptedModel(REPLIES) as model, open_product(model) as product:
        bos = product.bos
        assert "summary" in [info.card.name for info in await bos.agents() if info.available]
        response = await bos.ask(QUESTION, trace=True)
        # The planner knows no agent by name: keywords of the card choose it where no model does.
        plan = await bos.plan("Give me the key points in an executive brief")

    assert response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert list(response.metadata.agents) == ["sql", "summary"]
    assert from_value_map(response.agent_results[1].data)["text"] == SAID
    assert response.answer == f"In short: {SAID}"
    no_internals(response)
    assert plan.plan.origin == "heuristic"
    assert "summary" in plan.decision.chosen_agents
