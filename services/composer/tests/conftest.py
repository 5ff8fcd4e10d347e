from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from bos.agent.v1 import AgentExecutionStatus, AgentResult
from bos.common.v1 import AgentError, Source, SourceType
from bos.composer.v1 import ComposeRequest, ComposerOutput, ComposerServiceStub
from bos.planner.v1 import PlannerDecision
from bos_chassis.channels import Channels
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import make_table, to_value_map
from bos_composer.service import serve
from bos_composer.settings import ComposerSettings
from bos_llm import Models
from bos_testkit.scripted_model.pytest_fixtures import ScriptedModelFactory, model_settings
from bos_testkit.scripted_model.replies import Fixture, fixture
from bos_testkit.scripted_model.server import ScriptedModel

QUESTION = "Which five customers brought the most revenue?"
WRITTEN = "The top customer brought Rs.1,75,206.00, the next one Rs.99,000.50 [1]."
CITING = (
    "Deliveries are due within five days [1]. Later ones are late [99]. The penalty is two percent "
    "[0][-1]. Nothing else is said of it [1,99], and `days[99]` is code [[7]]."
)
FIXTURES = (
    fixture("answer", ["most revenue"], text=WRITTEN),
    fixture(
        "captured",
        ["what share"],
        capture={"share": r"share_percent=([0-9.]+)"},
        text="The share is ${share} percent, see [7].",
    ),
    fixture("citing", ["how late"], text=CITING),
    fixture("only numbers", ["numbers only"], text="[7] [8]"),
    fixture("page", ["web page"], text="<html><body>502</body></html>"),
    fixture("long", ["at length"], text="words " * 1000),
    fixture("echo", ["echo at once"], text="### Agent results\n<untrusted>\nAgent: sql"),
    fixture(
        "late echo", ["echo later"], text=f"{WRITTEN} {WRITTEN}\n### Agent results\nAgent: sql"
    ),
)


def result(agent: str = "sql", **fields: Any) -> AgentResult:
    """Make a result; ``status`` by its short name, ``rows`` and ``data`` as Python values."""
    status = fields.pop("status", "succeeded")
    columns, rows = fields.pop("columns", None), fields.pop("rows", ())
    data = fields.pop("data", None)
    error = fields.pop("error", None)
    return AgentResult(
        agent_id=fields.pop("agent_id", f"{agent}-1"),
        agent_name=agent,
        status=AgentExecutionStatus.Value(f"AGENT_EXECUTION_STATUS_{status.upper()}"),
        table=None if columns is None else make_table(columns, rows),
        data=None if data is None else to_value_map(data),
        error=None if error is None else AgentError(type=error[0], message=error[1]),
        **fields,
    )


def top_customers(**fields: Any) -> AgentResult:
    rows = [["Acme", Decimal("175206.00")], ["Globex", Decimal("99000.5")]]
    made = result(answer="Acme leads.", columns=["customer", "total_revenue"], rows=rows, **fields)
    made.table.columns[1].unit = "INR"
    return made


def document(title: str, *, reference: str = "", excerpt: str = "") -> Source:
    return Source(
        type=SourceType.SOURCE_TYPE_DOCUMENT, title=title, reference=reference, excerpt=excerpt
    )


def request(*results: AgentResult, **fields: Any) -> ComposeRequest:
    return ComposeRequest(
        **{
            "question": QUESTION,
            "decision": PlannerDecision(rationale="Query first."),
            "results": results,
            **fields,
        }
    )


@dataclass
class Rig:
    """A running composer, its scripted model, and a client."""

    model: ScriptedModel
    stub: ComposerServiceStub
    telemetry: Telemetry

    async def compose(self, wanted: ComposeRequest) -> tuple[list[str], ComposerOutput]:
        """The deltas, and the one output that must come last."""
        deltas, outputs = [], []
        async for response in self.stub.Compose(wanted, timeout=10):
            if response.WhichOneof("payload") == "delta":
                assert not outputs, "nothing comes after the output"
                deltas.append(response.delta)
            else:
                outputs.append(response.output)
        (output,) = outputs
        return deltas, output


@pytest.fixture
async def start(scripted_model: ScriptedModelFactory) -> AsyncIterator[Callable[..., Any]]:
    """``await start(*fixtures, **composer settings)``; ``models=False`` runs without a model."""
    async with AsyncExitStack() as stack:

        async def no_wait(seconds: float) -> None:
            return None

        async def starter(*more: Fixture, models: bool = True, **settings: Any) -> Rig:
            telemetry = Telemetry.for_tests("composer")
            model = await scripted_model(*FIXTURES, *more)
            shared = await stack.enter_async_context(
                Models(model_settings(model), telemetry, sleep=no_wait)
            )
            server = await stack.enter_async_context(
                serve(
                    ComposerSettings.load(**settings), telemetry, models=shared if models else None
                )
            )
            channels = await stack.enter_async_context(Channels(telemetry))
            return Rig(model, ComposerServiceStub(channels.get(server.address)), telemetry)

        yield starter


@pytest.fixture
async def rig(start: Callable[..., Any]) -> Rig:
    rig: Rig = await start()
    return rig
