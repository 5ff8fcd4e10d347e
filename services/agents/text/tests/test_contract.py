"""Agent contract of the text agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentInput
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import to_value_map
from bos_llm import Models
from bos_testkit.agent_contract import Process, Rule, Subject, every_rule, serving
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel
from bos_text.service import serve
from bos_text.settings import TextSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.asyncio(loop_scope="module")

TASK = "Summarise what the contract says about delays"
SUMMARY = fixture("summary", [TASK], schema="Worded", json={"text": "Delays cost a penalty."})
FOUND = {"answer": "A delay costs a penalty of one percent a week."}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def subject() -> AsyncIterator[Subject]:
    telemetry = Telemetry.for_tests("text")
    async with (
        ScriptedModel([SUMMARY]) as model,
        Models(model_settings(model, max_attempts=1), telemetry) as models,
    ):
        yield Subject(
            name="text",
            example=AgentInput(task=TASK, dependency_outputs={"found": to_value_map(FOUND)}),
            model=model,
            serve=serving(serve, TextSettings, telemetry, models),
            telemetry=telemetry,
            process=Process("bos_text"),
        )


@every_rule
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
