"""Agent contract of the text agent."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentInput
from bos_chassis.values import to_value_map
from bos_testkit.agent_contract import Rule, Subject, agent_subject, every_rule
from bos_testkit.scripted_model.replies import fixture
from bos_text.service import serve
from bos_text.settings import TextSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

TASK = "Summarise what the contract says about delays"
SUMMARY = fixture("summary", [TASK], schema="Worded", json={"text": "Delays cost a penalty."})
FOUND = {"answer": "A delay costs a penalty of one percent a week."}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def subject() -> AsyncIterator[Subject]:
    example = AgentInput(task=TASK, dependency_outputs={"found": to_value_map(FOUND)})
    async with agent_subject("text", serve, TextSettings, [SUMMARY], example) as subject:
        yield subject


@every_rule
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
