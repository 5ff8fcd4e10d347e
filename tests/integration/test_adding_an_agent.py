"""The agent that `bos new agent` writes answers through the public API once it is there."""

import importlib
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from pydantic import SecretStr

from bos.gateway.v1 import RunStatus
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value_map
from bos_client import BosClient
from bos_llm import Models
from bos_mcp_db.settings import DatabaseSettings
from bos_postgres import create_database
from bos_standalone.new_agent.command import agent_files
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings
from bos_testkit.packages import install_metadata
from bos_testkit.postgres import PostgresServer
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

from .harness import open_harness, plan_reply, planned

pytestmark = pytest.mark.asyncio(loop_scope="module")

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


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The agent's folder, which can be imported from.

    Its metadata, which only an installer finds, lie apart: see ``installed``.
    """
    folder = tmp_path_factory.mktemp("summary")
    for path, content in agent_files("summary", "", "", "executive brief").items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    install_metadata(folder / "pyproject.toml", folder / "installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder / "src")
        yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "bos_summary"]:
        del sys.modules[name]


@pytest.fixture
def installed(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's package is found by its entry point, as after ``make install``."""
    monkeypatch.syspath_prepend(written / "installed")


@asynccontextmanager
async def summary_service(model: ScriptedModel) -> AsyncIterator[str]:
    """The agent as a service of its own; yields its address."""
    service = importlib.import_module("bos_summary.agent")
    settings = service.SummarySettings
    telemetry = Telemetry.for_tests("summary")
    async with (
        Models(model_settings(model), telemetry) as models,
        service.serve(settings(server=ServerSettings(port=0)), telemetry, models=models) as server,
    ):
        yield server.address


@pytest_asyncio.fixture(loop_scope="module")
async def model() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel(REPLIES) as server:
        yield server


@pytest.mark.requirement("S-01", "S-09", "T-17")
async def test_target_puts_the_agent_on_the_gateways_list(
    written: Path,
    company: DatabaseSettings,
    store_url: str,
    clean_environment: None,
    model: ScriptedModel,
) -> None:
    async with (
        summary_service(model) as address,
        open_harness(company, store_url, replies=REPLIES, targets={"summary": address}) as harness,
    ):
        names = [info.card.name for info in await harness.client.agents() if info.available]
        assert names == ["computation", "sql", "summary"]

        outcome = await harness.ask(QUESTION)

    assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert list(outcome.response.metadata.agents) == ["sql", "summary"]
    assert from_value_map(outcome.results["brief"].data)["text"] == SAID
    assert outcome.response.answer == f"In short: {SAID}"
    assert outcome.tools("summary") == {"answer"}
    outcome.shows_no_internals()


@pytest.mark.requirement("S-11")
async def test_keywords_of_its_card_make_the_heuristic_choose_it(
    written: Path,
    company: DatabaseSettings,
    store_url: str,
    clean_environment: None,
    model: ScriptedModel,
) -> None:
    """The planner knows no agent by name."""
    async with (
        summary_service(model) as address,
        open_harness(company, store_url, targets={"summary": address}) as harness,
    ):
        plan = await harness.client.plan("Give me the key points in an executive brief")

    assert plan.plan.origin == "heuristic"
    assert list(plan.decision.chosen_agents) == ["summary"]


@pytest.mark.requirement("S-09")
@pytest.mark.usefixtures("installed")
async def test_its_entry_point_starts_it_in_standalone(
    company: DatabaseSettings,
    postgres_server: PostgresServer,
    clean_environment: None,
    model: ScriptedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The all-in-one too; with a model and a database that settings name, and no other change."""
    use_model_and_database(monkeypatch, model, company)
    store = await create_database(postgres_server.dsn(), "store_of_summary")
    settings = StandaloneSettings.load(data_dir=tmp_path, store_url=SecretStr(store))
    async with (
        serve_all(settings, Telemetry.for_tests("standalone")) as product,
        BosClient(product.target, api_key=product.api_key) as client,
    ):
        response = await client.ask(QUESTION, trace=True)

    assert response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert list(response.metadata.agents) == ["sql", "summary"]
    assert response.answer == f"In short: {SAID}"


def use_model_and_database(
    monkeypatch: pytest.MonkeyPatch, model: ScriptedModel, company: DatabaseSettings
) -> None:
    """The variables that the README asks users to set."""
    monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
    monkeypatch.setenv("BOS_MODEL", "any-name")
    monkeypatch.setenv("BOS_DATABASE_URL", company.url.get_secret_value())
    tables = ",".join(f"company.{table}" for table in company.allowed_tables)
    monkeypatch.setenv("BOS_DATABASE_ALLOWED_TABLES", tables)
