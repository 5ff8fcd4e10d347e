"""Agent contract of the code agent, with a real sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentInput
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import to_value_map
from bos_code.service import serve
from bos_code.settings import CodeSettings
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
    telemetry, below = Telemetry.for_tests("code"), Telemetry.for_tests("sandbox")

    def programs() -> int:
        """Number of programs sent to the sandbox."""
        return int(
            sum(
                sample.value
                for metric in below.registry.collect()
                for sample in metric.samples
                if sample.name == "bos_sandbox_programs_total"
            )
        )

    async with (
        serve_sandbox(sandbox_settings(), below) as sandbox,
        ScriptedModel([PROPOSAL]) as model,
        Models(model_settings(model, max_attempts=1), telemetry) as models,
    ):
        yield Subject(
            name="code",
            example=EXAMPLE,
            model=model,
            serve=serving(serve, CodeSettings, telemetry, models, sandbox_target=sandbox.address),
            telemetry=telemetry,
            process=Process("bos_code", {"BOS_CODE_SANDBOX_TARGET": sandbox.address}),
            proposing=EXAMPLE,
            performed=programs,
        )


@every_rule
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
