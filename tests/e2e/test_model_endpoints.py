"""The assembled product with a model of its owner's: what has to stand in `.env`, and what happens
with endpoints that are odd, broken or slow.

The endpoint is a scripted model outside the product. Nothing is set but what a test writes into
`.env`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bos.gateway.v1 import RunStatus
from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_demo.company import DEFAULT_TODAY
from bos_demo.expectations import expected_facts, mentions
from bos_demo.questions import Question, load_questions
from bos_demo.scripted.dialogue import dialogue_fixtures
from bos_demo.scripted.replies import demo_fixtures
from bos_llm.settings import DEFAULT_MODELS
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings
from bos_testkit.runs import SeenRun
from bos_testkit.scripted_model.quirks import THINKING_TEMPERATURE, THOUGHTS, Quirks
from bos_testkit.scripted_model.server import ScriptedModel
from bos_testkit.waiting import eventually

from .demo_checks import Company

pytestmark = pytest.mark.asyncio(loop_scope="module")

BY_ID = {question.id: question for question in load_questions()}
QUESTION = BY_ID["top-five-customers-share"]
STAGES = frozenset({"planned", "step_started", "revision_started", "answer_started"})
# libs/llm shows all oddities; each question is another, so that no two tests ask the same.
ODD: Mapping[str, tuple[str, dict[str, Any]]] = {
    "refuses the schema": (
        "best-selling-products",
        {"refuses": {"json_schema": "plain", "temperature": "plain"}},
    ),
    "thinks aloud": ("stock-value", {"thinks": "content"}),
    "calls a tool": ("payroll-per-department", {"calls_tool": True}),
    "does not stream": ("discontinued-stock", {"whole_for_stream": True}),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model(clean_environment: None) -> AsyncIterator[ScriptedModel]:
    fixtures = [*demo_fixtures(DEFAULT_TODAY), *dialogue_fixtures(DEFAULT_TODAY)]
    async with ScriptedModel(fixtures) as server:
        yield server


@dataclass(frozen=True)
class Product:
    """The running product, and the configured external model."""

    client: BosClient
    context: Mapping[str, str]
    model: ScriptedModel
    name: str
    """Which model it says it uses."""

    async def ask(self, question: Question) -> SeenRun:
        async with asyncio.timeout(60):
            stream = self.client.ask_stream(question.question, context=dict(self.context))
            return SeenRun([event async for event in stream])


@asynccontextmanager
async def started(folder: Path, model: ScriptedModel, env: str) -> AsyncIterator[Product]:
    """The product in a folder whose ``.env`` is ``env``, and an endpoint without quirks."""
    model.quirks = Quirks()
    model.requests.clear()
    (folder / ".env").write_text(env, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        settings = StandaloneSettings.load(
            data_dir=folder / "data", rest=False, demo_documents=False
        )
        async with (
            serve_all(settings, Telemetry.for_tests("standalone")) as product,
            BosClient(product.target, api_key=product.api_key) as client,
        ):
            yield Product(client, product.context, model, product.model)


@pytest.fixture
def folder(tmp_path: Path, started_before: Callable[[Path], Path]) -> Path:
    started_before(tmp_path / "data")
    return tmp_path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def of_an_address(
    tmp_path_factory: pytest.TempPathFactory,
    model: ScriptedModel,
    started_before: Callable[[Path], Path],
) -> AsyncIterator[Product]:
    """The product that knows of its model an address and a name."""
    env = f"OPENAI_BASE_URL={model.base_url}\nBOS_MODEL=harness-model\n"
    folder = tmp_path_factory.mktemp("address")
    started_before(folder / "data")
    async with started(folder, model, env) as product:
        yield product


async def assert_planned_and_answered(
    product: Product, question: Question, company: Company, run: SeenRun
) -> None:
    """The model planned, and what it worded is right, streamed and the answer."""
    assert run.response.status == RunStatus.RUN_STATUS_SUCCEEDED, run.response.error
    assert run.plan.origin == "model"
    assert [step.agent for step in run.plan.steps] == [step.agent for step in question.steps]
    facts = await expected_facts(company, question, DEFAULT_TODAY)
    assert facts
    missing = [fact for fact in facts if not mentions(run.response.answer, fact)]
    assert not missing, run.response.answer
    deltas = [event.answer_delta.text for event in run.events if event.HasField("answer_delta")]
    assert "".join(deltas).strip() == run.response.answer
    worded = [each for each in product.model.requests if each.fixture == f"{question.id}: answer"]
    assert worded
    assert worded[-1].stream


async def test_a_key_of_openai_is_enough(
    folder: Path, model: ScriptedModel, company: Company
) -> None:
    """Only where OpenAI is differs: here."""
    env = (
        "OPENAI_API_KEY=sk-of-today-0123456789\n"
        f"BOS_MODEL_PROVIDER=openai\nOPENAI_BASE_URL={model.base_url}\n"
    )
    async with started(folder, model, env) as product:
        # As its models of today do.
        model.quirks.refuses = {THINKING_TEMPERATURE: "openai", "max_tokens": "openai"}
        run = await product.ask(QUESTION)
        await assert_planned_and_answered(product, QUESTION, company, run)
        used = {request.model for request in model.requests}
        assert used == {DEFAULT_MODELS[""], DEFAULT_MODELS["sql"]}
        assert not [request.fixture for request in model.requests if request.status != 200]
        assert {request.key_end for request in model.requests} == {"6789"}
        for request in model.requests:
            assert ("response_format" in request.body) == (request.schema is not None)
            assert "### Reply" not in request.prompt


async def test_an_address_and_a_name_are_enough(of_an_address: Product, company: Company) -> None:
    run = await of_an_address.ask(QUESTION)
    await assert_planned_and_answered(of_an_address, QUESTION, company, run)
    requests = of_an_address.model.requests
    assert {request.model for request in requests} == {"harness-model"}
    assert of_an_address.name == "harness-model"
    for request in requests:
        assert ("### Reply" in request.prompt) == (request.schema is not None)


@pytest.mark.parametrize("kind", ODD)
async def test_an_odd_endpoint_answers_all_the_same(
    kind: str, of_an_address: Product, company: Company
) -> None:
    """What it refuses is learnt by the first calls of a question, of which there are two at once:
    the plan, and memory's beside it. The others are right at once.
    """
    question, quirks = BY_ID[ODD[kind][0]], ODD[kind][1]
    model = of_an_address.model
    model.quirks = Quirks(**quirks)
    model.requests.clear()
    try:
        run = await of_an_address.ask(question)
        await eventually(lambda: model.in_flight == 0)
    finally:
        model.quirks = Quirks()
    await assert_planned_and_answered(of_an_address, question, company, run)
    refused = Counter(request.schema for request in model.requests if request.status != 200)
    assert set(refused) <= {"PlannerReply", "PersonalFacts"}
    assert all(times <= len(quirks.get("refuses", ())) for times in refused.values())
    assert "<think>" not in run.response.answer
    assert THOUGHTS not in run.response.answer


async def test_failing_endpoint_is_asked_eight_times_at_most(of_an_address: Product) -> None:
    model = of_an_address.model
    model.quirks = Quirks(always=500)
    model.requests.clear()
    run = await of_an_address.ask(BY_ID["revenue-change"])
    assert run.kinds[-1] == "run_finished"
    await eventually(lambda: model.in_flight == 0)
    assert {request.status for request in model.requests} == {500}
    assert 1 <= len(model.requests) <= 8  # what memory asked beside the run included


async def test_an_endpoint_that_never_answers_is_asked_once_per_stage(
    folder: Path, model: ScriptedModel
) -> None:
    """A call that took too long is given up, also at the endpoint, and not made again."""
    env = (
        f"OPENAI_BASE_URL={model.base_url}\nBOS_MODEL=harness-model\nBOS_MODEL_TIMEOUT_S=1\n"
        "BOS_MODEL_STREAM_IDLE_TIMEOUT_S=1\n"
    )
    async with started(folder, model, env) as product:
        model.quirks.hangs = True
        given_up = model.abandoned
        run = await product.ask(QUESTION)
        assert run.kinds[-1] == "run_finished"
        assert run.plan.origin != "model"
        await eventually(lambda: model.in_flight == 0)
        assert "PlannerReply" in {request.schema for request in model.requests}
        # Planning, each step, each revision of the plan, the answer; and memory beside them.
        stages = [kind for kind in run.kinds if kind in STAGES]
        assert len(stages) >= 3
        assert len(model.requests) <= len(stages) + 1
        assert model.abandoned - given_up == len(model.requests)
    assert model.in_flight == 0
