"""Agent contract of the charts agent, with real drawing processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentInput
from bos_charts.service import serve
from bos_charts.settings import ChartsSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import to_value_map
from bos_llm import Models
from bos_testkit.agent_contract import Process, Rule, Subject, every_rule, serving
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.asyncio(loop_scope="module")

TASK = "Draw the revenue by region"
CHOICE = fixture(
    "choice",
    [TASK],
    schema="ChartChoice",
    json={"mark": "bar", "x": "region", "y": ["revenue"], "title": "Revenue by region"},
)
ROWS = {"rows": [{"region": "North", "revenue": 150}, {"region": "South", "revenue": 50}]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def subject() -> AsyncIterator[Subject]:
    telemetry = Telemetry.for_tests("charts")
    async with (
        ScriptedModel([CHOICE]) as model,
        Models(model_settings(model, max_attempts=1), telemetry) as models,
    ):
        yield Subject(
            name="charts",
            example=AgentInput(task=TASK, dependency_outputs={"sales": to_value_map(ROWS)}),
            model=model,
            serve=serving(serve, ChartsSettings, telemetry, models, render_timeout_s=60),
            telemetry=telemetry,
            process=Process("bos_charts"),
        )


@every_rule
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
