"""Agent contract of the code agent, with a real sandbox."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentInput
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import to_value_map
from bos_code.service import serve
from bos_code.settings import CodeSettings
from bos_testkit.agent_contract import Rule, Subject, agent_subject, counted, own_rules
from bos_testkit.scripted_model.replies import fixture

from .conftest import sandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")

TASK = "Add up the revenue"
EXAMPLE = AgentInput(
    task=TASK,
    tools=["execute_code"],
    dependency_outputs={"monthly": to_value_map({"rows": [{"revenue": 120}, {"revenue": 80}]})},
)
PROPOSAL = fixture(
    "proposal",
    [TASK],
    schema="CodeProposal",
    json={
        "code": "result = sum(row['revenue'] for row in monthly['rows'])",
        "explanation": "Adds up.",
    },
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def subject() -> AsyncIterator[Subject]:
    telemetry = Telemetry.for_tests("sandbox")
    async with (
        sandbox(telemetry) as below,
        agent_subject(
            *("code", serve, CodeSettings, [PROPOSAL], EXAMPLE),
            sandbox_target=below.address,
            environment={"BOS_CODE_SANDBOX_TARGET": below.address},
            proposing=EXAMPLE,
            performed=lambda: counted(telemetry, "bos_sandbox_programs_total"),
        ) as subject,
    ):
        yield subject


@own_rules
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
