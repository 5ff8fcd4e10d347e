from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from bos.agent.v1 import AgentCard, OutputField, Tool
from bos.planner.v1 import MakePlanRequest, MakePlanResponse, PlannerServiceStub
from bos_chassis.channels import Channels
from bos_chassis.telemetry import Telemetry
from bos_llm import Models
from bos_planner.service import serve
from bos_planner.settings import PlannerSettings
from bos_testkit.scripted_model.pytest_fixtures import ScriptedModelFactory, model_settings
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

TOP_CUSTOMERS = "Which five customers brought the most revenue, and what share is that?"
PLAN = {
    "rationale": "Query first, then the share.",
    "intent": "DATA_QA",
    "confidence": 0.92,
    "steps": [
        {"step_id": "top", "agent": "sql", "task": "Revenue of the top five customers."},
        {
            "step_id": "share",
            "agent": "computation",
            "task": "Their share of the total.",
            "sub_task_input": [{"name": "rows", "value": "@{outputs.top.table}"}],
            "is_final_answer": False,
        },
    ],
}
REVISED = {
    **PLAN,
    "steps": [
        {
            "step_id": "share_again",
            "agent": "computation",
            "task": "Their share, with plain arithmetic.",
            "sub_task_input": [{"name": "rows", "value": "@{outputs.top.table}"}],
        }
    ],
}
FIXTURES = (
    fixture("plan", ["most revenue"], schema="PlannerReply", json=PLAN),
    fixture(
        "revision", ["most revenue", "### Plan that failed"], schema="PlannerReply", json=REVISED
    ),
    fixture(
        "circle",
        ["go round"],
        schema="PlannerReply",
        json={
            **PLAN,
            "steps": [
                {"step_id": "a", "agent": "sql", "task": "x", "depends_on": ["b"]},
                {"step_id": "b", "agent": "sql", "task": "x", "depends_on": ["a"]},
            ],
        },
    ),
    # Each word must occur in the prompt.
    fixture(
        "enhance",
        ["Send the offer to Ada", "Send “Offer” to Ada", "with a bcc to me"],
        schema="Classification",
        json={"mode": "enhance"},
    ),
    fixture(
        "override",
        ["Send the offer to Ada", "Send “Offer” to Ada", "write to Eve instead"],
        schema="Classification",
        json={"mode": "override"},
    ),
    fixture(
        "weather",
        ["weather"],
        schema="PlannerReply",
        json={"intent": "OUT_OF_SCOPE", "rationale": "Not ours.", "confidence": 0.8},
    ),
)

CARDS = (
    AgentCard(
        name="api_docs",
        description="Calls documented APIs.",
        selection_group=1,
        keywords=["api", "endpoint"],
        required_context_keys=["api_base_url"],
    ),
    AgentCard(
        name="sql",
        description="Answers questions about the database.",
        capabilities=["database"],
        typical_use_cases=["Top customers by revenue"],
        selection_group=2,
        keywords=["list", "show", "top", "most"],
        tools=[Tool(name="mcp_db_query", description="Runs one SELECT")],
        output_fields=[OutputField(name="total", description="sum of the value column")],
    ),
    AgentCard(
        name="computation",
        description="Calculates.",
        selection_group=2,
        keywords=["calculate", "what is", "share"],
    ),
)


def request(question: str = TOP_CUSTOMERS, **fields: Any) -> MakePlanRequest:
    return MakePlanRequest(
        **{"question": question, "cards": CARDS, "fallback_agent": "sql", **fields}
    )


@dataclass
class Rig:
    """A running planner, its scripted model, and a client."""

    model: ScriptedModel
    stub: PlannerServiceStub
    telemetry: Telemetry

    async def plan(self, question: str = TOP_CUSTOMERS, **fields: Any) -> MakePlanResponse:
        return await self.stub.MakePlan(request(question, **fields), timeout=10)

    async def plan_within(self, timeout_s: float) -> MakePlanResponse:
        return await self.stub.MakePlan(request(), timeout=timeout_s)


@pytest.fixture
async def start(scripted_model: ScriptedModelFactory) -> AsyncIterator[Any]:
    """``await start(**planner settings)``; ``models=False`` runs without a model."""
    async with AsyncExitStack() as stack:

        async def no_wait(seconds: float) -> None:
            return None

        async def starter(
            *, models: bool = True, model_options: dict[str, Any] | None = None, **settings: Any
        ) -> Rig:
            telemetry = Telemetry.for_tests("planner")
            model = await scripted_model(*FIXTURES)
            options = model_settings(model, **(model_options or {}))
            shared = await stack.enter_async_context(Models(options, telemetry, sleep=no_wait))
            server = await stack.enter_async_context(
                serve(
                    PlannerSettings.load(**settings), telemetry, models=shared if models else None
                )
            )
            channels = await stack.enter_async_context(Channels(telemetry))
            return Rig(model, PlannerServiceStub(channels.get(server.address)), telemetry)

        yield starter


@pytest.fixture
async def rig(start: Any) -> Rig:
    rig: Rig = await start()
    return rig
