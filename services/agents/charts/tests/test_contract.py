"""Agent contract of the charts agent, with real drawing processes."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentInput
from bos_charts.service import serve
from bos_charts.settings import ChartsSettings
from bos_chassis.values import to_value_map
from bos_testkit.agent_contract import Rule, Subject, agent_subject, own_rules
from bos_testkit.scripted_model.replies import fixture

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
    example = AgentInput(task=TASK, dependency_outputs={"sales": to_value_map(ROWS)})
    async with agent_subject(
        "charts", serve, ChartsSettings, [CHOICE], example, render_timeout_s=60
    ) as subject:
        yield subject


@own_rules
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
