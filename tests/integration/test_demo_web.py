"""Questions over the demo's public site: real search, pages and robots.txt; scripted model."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
import pytest_asyncio

from bos.agent.v1 import (
    AgentExecutionStatus,
    AgentInput,
    AgentResult,
    AgentServiceStub,
    ExecuteRequest,
    TaskMetadata,
)
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value_map, to_value
from bos_demo.company import DEFAULT_TODAY
from bos_demo.expectations import mentions
from bos_demo.questions import REFERENCE, Question, WebStep, load_questions
from bos_demo.scripted.replies import demo_fixtures
from bos_demo.website.service import serve_website
from bos_llm import Models
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.server import ScriptedModel
from bos_web import service as web
from bos_web.settings import WebSettings

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

QUESTIONS = load_questions("web")
SUCCEEDED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
FAILED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_FAILED


class Agent:
    """The agent before the demo's site."""

    def __init__(self, stub: Any, site: str) -> None:
        self._stub = stub
        self.site = site

    async def do(self, task: str, **more: Any) -> AgentResult:
        request = AgentInput(agent_id="s", agent_name="web", task=task, **more)
        results = [
            message.result
            async for message in self._stub.Execute(ExecuteRequest(input=request), timeout=60)
            if message.HasField("result")
        ]
        return results[-1]

    async def read(self, path: str, **more: Any) -> AgentResult:
        url = to_value(self.site + path)
        return await self.do("Read it", sub_task_input={"url": url}, **more)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def agent(clean_environment: None) -> AsyncIterator[Agent]:
    telemetry = Telemetry.for_tests("web")
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        site = await enter(serve_website(DEFAULT_TODAY))
        scripted = await enter(ScriptedModel(demo_fixtures(DEFAULT_TODAY)))
        models = await enter(Models(model_settings(scripted, max_attempts=1), telemetry))
        settings = WebSettings.load(
            server=ServerSettings(reflection=False, grace_s=1),
            auth=AuthSettings.load(),
            search_provider="tavily",
            search_url=site.search_url,
            search_key=site.search_key,
            search_networks=site.networks,
            site_origins={site.site: site.networks},
            host_interval_s=0,
            page_timeout_s=60,
        )
        server = await enter(web.serve(settings, telemetry, models=models))
        channel = await enter(grpc.aio.insecure_channel(server.address))
        yield Agent(AgentServiceStub(channel), site.site)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.id)
@pytest.mark.requirement("H-01", "H-02", "H-05", "H-09")
async def test_steps_cite_the_pages_whose_words_carry_the_statement(
    question: Question, agent: Agent
) -> None:
    outputs: dict[str, dict[str, Any]] = {}
    answers = []
    for step in question.steps:
        if not isinstance(step, WebStep):
            continue
        inputs = {}
        for name, value in step.inputs.items():
            reference = REFERENCE.fullmatch(value)
            assert reference
            inputs[name] = to_value(outputs[reference[1]][reference[2]])
        result = await agent.do(
            step.task,
            tool_name=step.tool,
            sub_task_input=inputs,
            tainted=bool(inputs),
            metadata=TaskMetadata(run_id=question.id),
        )
        assert result.status == SUCCEEDED, result.error
        assert result.answer == step.answer
        outputs[step.id] = from_value_map(result.data)
        answers.append(result.answer)
        for cited, source in zip(step.pages, result.sources, strict=True):
            assert source.uri == agent.site + cited.path
            assert source.excerpt == cited.quote
    if all(isinstance(step, WebStep) for step in question.steps):
        said = " ".join(answers)
        assert [fact for fact in question.facts if not mentions(said, fact)] == []


async def test_page_for_members_is_not_read(agent: Agent) -> None:
    result = await agent.read("/members/price-forecast")
    assert (result.status, result.error.type) == (FAILED, "RobotsDisallow")


async def test_slow_page_ends_in_time(agent: Agent) -> None:
    assert (await agent.read("/archive/almanac")).error.type == "PageTimedOut"


async def test_page_that_needs_scripts_is_said_to(agent: Agent) -> None:
    result = await agent.read("/competitors/comparison")
    assert "240" not in result.answer


async def test_orders_of_a_page_are_quoted_at_most_and_lead_nowhere(agent: Agent) -> None:
    result = await agent.read("/blog/seals")
    assert result.status == SUCCEEDED
    assert result.tainted
    assert "collector.example" not in str(result)
    assert "delete the files" not in str(result)
