"""Agent contract of the computation agent, with a real sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentInput
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import to_value_map
from bos_computation.service import serve
from bos_computation.settings import ComputationSettings
from bos_llm import Models
from bos_sandbox.service import serve as serve_sandbox
from bos_testkit.agent_contract import Process, Rule, Subject, every_rule, serving
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

from .conftest import sandbox_settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

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
    telemetry = Telemetry.for_tests("computation")
    rows = {"rows": [{"revenue": 150}, {"revenue": 50}]}
    async with (
        serve_sandbox(sandbox_settings(timeout_s=60), Telemetry.for_tests("sandbox")) as sandbox,
        ScriptedModel([PLAN]) as model,
        Models(model_settings(model, max_attempts=1), telemetry) as models,
    ):
        target = sandbox.address
        yield Subject(
            name="computation",
            example=AgentInput(task=TASK, dependency_outputs={"customers": to_value_map(rows)}),
            model=model,
            serve=serving(serve, ComputationSettings, telemetry, models, sandbox_target=target),
            telemetry=telemetry,
            process=Process("bos_computation", {"BOS_COMPUTATION_SANDBOX_TARGET": target}),
        )


@every_rule
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
