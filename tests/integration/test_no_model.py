"""Without any model: what needs none works, and what needs one says what to set."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from pydantic import SecretStr

from bos.gateway.v1 import RunStatus
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value_map
from bos_client import BosClient
from bos_mcp_db.settings import DatabaseSettings
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings

from .harness import no_internals, rows

pytestmark = pytest.mark.asyncio(loop_scope="module")

VARIABLES = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "BOS_MODEL")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(
    company: DatabaseSettings,
    store_url: str,
    clean_environment: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[BosClient]:
    """The all-in-one on a database of one's own: nothing scripted answers there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BOS_DATABASE_URL", company.url.get_secret_value())
        patch.setenv(
            "BOS_DATABASE_ALLOWED_TABLES",
            ",".join(f"company.{table}" for table in company.allowed_tables),
        )
        settings = StandaloneSettings.load(
            data_dir=tmp_path_factory.mktemp("data"), store_url=SecretStr(store_url)
        )
        async with (
            serve_all(settings, Telemetry.for_tests("standalone")) as product,
            BosClient(product.target, api_key=product.api_key) as client,
        ):
            yield client


@pytest.mark.requirement("T-10")
async def test_the_tables_are_listed_without_a_model(
    client: BosClient, company: DatabaseSettings
) -> None:
    response = await client.ask("List all tables in the database", trace=True)

    assert response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert list(response.planner.chosen_agents) == ["sql"]
    assert [row[0].removeprefix("company.") for row in rows(response.data)] == sorted(
        company.allowed_tables
    )
    assert "invoices" in response.answer
    assert response.metadata.usage.model_calls == 0


@pytest.mark.parametrize(
    ("question", "result"),
    [("What is 12.5 * (3 + 4)?", "87.5"), ("What is 17% of 2,450?", "416.5")],
)
async def test_arithmetic_needs_no_model(client: BosClient, question: str, result: str) -> None:
    response = await client.ask(question, trace=True)

    assert response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert list(response.planner.chosen_agents) == ["computation"]
    (computed,) = response.agent_results
    assert str(from_value_map(computed.data)["result"]) == result
    assert result in response.answer
    assert response.metadata.usage.model_calls == 0


@pytest.mark.parametrize(
    ("question", "agent"),
    [
        ("Show the five customers with the highest credit limit", "sql"),
        ("Forecast and estimate the growth of the next ten years", "computation"),
    ],
)
async def test_what_needs_a_model_says_what_to_set(
    client: BosClient, question: str, agent: str
) -> None:
    response = await client.ask(question, trace=True)

    assert response.status == RunStatus.RUN_STATUS_FAILED
    assert [result.agent_name for result in response.agent_results] == [agent]
    assert response.error.type == "ConfigurationError"
    for variable in VARIABLES:
        assert variable in response.answer
    no_internals(response)


async def test_planning_without_a_model_is_not_called_an_error(client: BosClient) -> None:
    plan = await client.plan("List all tables in the database")

    assert plan.plan.origin == "heuristic"
    assert plan.decision.confidence == pytest.approx(0.4)
    assert "No model is configured." in plan.decision.rationale
