"""Agent contract of the SQL agent, with a real mcp_db."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentInput
from bos_chassis.telemetry import Telemetry
from bos_llm import Models
from bos_sql.service import serve
from bos_sql.settings import SqlSettings
from bos_testkit.agent_contract import Process, Rule, Subject, every_rule, serving
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.server import ScriptedModel

from .conftest import TASK, fixtures, served_database, sqlite_database

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def subject(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Subject]:
    telemetry = Telemetry.for_tests("sql")
    url = sqlite_database(tmp_path_factory.mktemp("company"))
    async with (
        served_database(url, Telemetry.for_tests("mcp_db")) as mcp_db,
        ScriptedModel(fixtures()) as model,
        Models(model_settings(model, max_attempts=1), telemetry) as models,
    ):
        yield Subject(
            name="sql",
            example=AgentInput(task=TASK),
            model=model,
            serve=serving(serve, SqlSettings, telemetry, models, mcp_url=mcp_db.url),
            telemetry=telemetry,
            process=Process("bos_sql", {"BOS_SQL_MCP_URL": mcp_db.url}, forked=True),
        )


@pytest.mark.requirement("C-30", "C-34")
@every_rule
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
