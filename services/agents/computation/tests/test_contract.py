"""Agent contract of the computation agent, with a real sandbox."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentInput
from bos_chassis.values import to_value_map
from bos_computation.service import serve
from bos_computation.settings import ComputationSettings
from bos_testkit.agent_contract import Rule, Subject, agent_subject, own_rules
from bos_testkit.scripted_model.replies import fixture

from .conftest import sandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")

TASK = "What share of the total does the top customer have?"
PLAN = fixture(
    "plan",
    [TASK],
    schema="ComputationPlan",
    json={
        "code": "result = customers['rows'][0]['revenue'] / 200",
        "explanation": "It computes.",
        "inputs": [],
    },
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def subject() -> AsyncIterator[Subject]:
    rows = {"rows": [{"revenue": 150}, {"revenue": 50}]}
    example = AgentInput(task=TASK, dependency_outputs={"customers": to_value_map(rows)})
    async with (
        sandbox(timeout_s=60) as below,
        agent_subject(
            *("computation", serve, ComputationSettings, [PLAN], example),
            sandbox_target=below.address,
            environment={"BOS_COMPUTATION_SANDBOX_TARGET": below.address},
        ) as subject,
    ):
        yield subject


@own_rules
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
