"""What holds for every demo question: agents, facts, citations, model calls in a row, tokens.

Replies are checked against the sample company in ``services/demo``; here a few of each shape
are asked of the whole product.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import asyncpg

from bos.agent.v1 import AgentExecutionStatus
from bos.common.v1 import SourceType
from bos.gateway.v1 import OrchestratorResponse, RunStatus
from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_demo.expectations import mentions
from bos_demo.questions import Question, RagStep, WebStep
from bos_standalone.service import Standalone, serve_all
from bos_standalone.settings import StandaloneSettings

Company: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
MOST_CALLS: Final = {
    "sql": 3,
    "computation": 2,
    "rag": 3,
    "web": 3,
    "api_docs": 2,
    "files": 1,
    "charts": 1,
    "mail": 3,
}
"""Model calls that one step of an agent may take, all of them in a row."""
MOST_TOKENS: Final = 25_000
_PLAN_AND_ANSWER: Final = 2


@asynccontextmanager
async def serving(
    data: Path,
    questions: Sequence[Question],
    *,
    agents: Mapping[str, str] | None = None,
    **settings: Any,
) -> AsyncIterator[Standalone]:
    """A standalone that offers these questions, with all agents or these alone."""
    loaded = StandaloneSettings.load(data_dir=data, **settings)
    more = {} if agents is None else {"agents": agents}
    async with serve_all(loaded, Telemetry.for_tests("standalone"), **more) as standalone:
        assert {each.question for each in questions} <= set(standalone.questions)
        yield standalone


def some_agents(*names: str) -> dict[str, str]:
    """Agents of the repository by name, with their entry points."""
    return {name: f"bos_{name}.service:serve" for name in names}


async def answer(product: Standalone, question: Question) -> OrchestratorResponse:
    async with BosClient(product.target, api_key=product.api_key) as bos, asyncio.timeout(180):
        return await bos.ask(question.question, context=product.context)


def reaching(questions: Sequence[Question]) -> list[Question]:
    """The first question of each shape: the agents, and which steps need which."""
    found: dict[tuple[object, ...], Question] = {}
    for each in questions:
        places = {step.id: place for place, step in enumerate(each.steps)}
        needs = tuple(tuple(places[i] for i in each.depends_on(step)) for step in each.steps)
        found.setdefault((each.intent, each.agents, needs), each)
    return [*found.values()]


def assert_answered(response: OrchestratorResponse, question: Question) -> None:
    """The run succeeded with the question's agents, citations, model calls and tokens."""
    assert response.status == RunStatus.RUN_STATUS_SUCCEEDED, response
    assert tuple(response.metadata.agents) == question.agents
    assert [each.agent_name for each in response.agent_results] == [
        step.agent for step in question.steps
    ]
    for result in response.agent_results:
        ended = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
        assert result.status == ended, result.error
    assert_cited(response, question)
    assert_spent(response, question)


def assert_states(response: OrchestratorResponse, facts: Sequence[Any]) -> None:
    assert facts
    assert [fact for fact in facts if not mentions(response.answer, fact)] == [], response.answer


def assert_cited(response: OrchestratorResponse, question: Question) -> None:
    """Exactly the documents and pages of the question are cited, and marked in the answer."""
    sources = response.sources
    documents = {s.title for s in sources if s.type == SourceType.SOURCE_TYPE_DOCUMENT}
    pages = {urlsplit(s.uri).path for s in sources if s.type == SourceType.SOURCE_TYPE_WEB}
    passages = [p for step in question.steps if isinstance(step, RagStep) for p in step.passages]
    searched = [p for step in question.steps if isinstance(step, WebStep) for p in step.pages]
    assert documents == {each.document for each in passages}
    assert pages == {each.path for each in searched}
    assert ("[1]" in response.answer) == bool(passages or searched), response.answer


def assert_spent(response: OrchestratorResponse, question: Question) -> None:
    """No step takes more model calls than its agent may, and the run not more tokens."""
    longest = {"": 0}
    for step, result in zip(question.steps, response.agent_results, strict=True):
        assert result.usage.model_calls <= MOST_CALLS[step.agent], step.id
        before = max(longest[each] for each in ("", *question.depends_on(step)))
        longest[step.id] = before + result.usage.model_calls
    in_a_row = _PLAN_AND_ANSWER + max(longest.values())
    assert in_a_row <= most_in_a_row(question)
    usage = response.metadata.usage
    # Of a step that waited for an approval, the result counts what came after it alone.
    most = _PLAN_AND_ANSWER + sum(MOST_CALLS[step.agent] for step in question.steps)
    assert in_a_row <= usage.model_calls <= most
    assert 0 < usage.input_tokens + usage.output_tokens <= MOST_TOKENS


def most_in_a_row(question: Question) -> int:
    """Model calls that may follow one another in the question's run."""
    longest = {"": 0}
    for step in question.steps:
        before = max(longest[each] for each in ("", *question.depends_on(step)))
        longest[step.id] = before + MOST_CALLS[step.agent]
    return _PLAN_AND_ANSWER + max(longest.values())
