"""Asks every demo question of the assembled product and keeps each prompt its model gets.

The model is a scripted one outside the product, configured by environment as the provider openai:
the product takes the way it takes to a real one.
"""

import asyncio
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import pytest

from bos.gateway.v1 import RunStatus
from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_demo.company import DEFAULT_TODAY
from bos_demo.questions import Question, load_questions
from bos_demo.scripted.dialogue import dialogue_fixtures
from bos_demo.scripted.replies import demo_fixtures
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings
from bos_testkit.processes import PATIENT
from bos_testkit.runs import SeenRun
from bos_testkit.scripted_model.pytest_fixtures import SCRIPTED_KEY
from bos_testkit.scripted_model.server import RecordedRequest, ScriptedModel
from bos_testkit.waiting import eventually

Mode = Literal["schema_apart", "schema_in_prompt"]
"""Whether the form of a reply goes beside the prompt only, or in it as well."""
BOTH_WAYS: Final = "top-five-customers-share"
"""Of this question the golden files hold the prompts with the form of the reply in them as well."""
_SETTINGS = re.compile(r"BOS_|OPENAI_|AZURE_|OTEL_|.*_MODEL|.*_TEMPERATURE")
_PLAN, _ANSWER = "plan", "answer"
_LONGEST_S = 30.0
_PAUSE_S = 0.1


class Unattributed(AssertionError):
    """A model call of no demo question, or without a scripted reply."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question, its run, and the model calls that were made for it."""

    question: Question
    run: SeenRun
    plan: Sequence[RecordedRequest]
    steps: Mapping[str, Sequence[RecordedRequest]]
    """By step id, in plan order."""
    answer: Sequence[RecordedRequest]
    side: Sequence[RecordedRequest]
    """Background calls, such as the extraction of facts about the user."""

    @property
    def path(self) -> tuple[tuple[str, RecordedRequest], ...]:
        """Who calls, and what, in plan order; side calls last."""
        return (
            *(("planner", call) for call in self.plan),
            *((f"step {step}", call) for step, calls in self.steps.items() for call in calls),
            *(("composer", call) for call in self.answer),
            *(("beside", call) for call in self.side),
        )

    @property
    def calls_in_a_row(self) -> int:
        """Calls that wait for one another, as the plan has it: no clock is asked."""
        stages = (
            max((len(self.steps[step]) for step in stage.step_ids), default=0)
            for event in self.run.events
            if event.HasField("planned")
            for stage in event.planned.stages
        )
        return len(self.plan) + sum(stages) + len(self.answer)


def ask_both(folder: Callable[[], Path]) -> dict[Mode, list[Asked]]:
    """Every demo question without forms in the prompts, and with them one for each form."""
    apart = asyncio.run(ask_all("schema_apart", folder(), load_questions()))
    inside = asyncio.run(ask_all("schema_in_prompt", folder(), _with_every_form(apart)))
    return {"schema_apart": apart, "schema_in_prompt": inside}


def _with_every_form(asked: Sequence[Asked]) -> list[Question]:
    """Questions, the shown one first, whose calls take every form of a reply between them."""
    found, forms = [], set[str | None]()
    for each in sorted(asked, key=lambda each: each.question.id != BOTH_WAYS):
        own = {call.schema for _, call in each.path}
        if not own <= forms:
            found.append(each.question)
            forms |= own
    return found


async def ask_all(mode: Mode, folder: Path, questions: Sequence[Question]) -> list[Asked]:
    """Start the product in ``folder``, ask each question once, and end it.

    Raises:
        Unattributed: see there.
    """
    fixtures = [*demo_fixtures(DEFAULT_TODAY), *dialogue_fixtures(DEFAULT_TODAY)]
    async with ScriptedModel(fixtures, keep=10_000) as model:
        with _environment(model, mode, folder):
            runs = await _ask(questions, model, folder)
        return attributed(questions, runs, list(model.requests))


async def _ask(questions: Sequence[Question], model: ScriptedModel, folder: Path) -> list[SeenRun]:
    settings = StandaloneSettings.load(data_dir=folder / "data", rest=False, demo_documents=False)
    telemetry = Telemetry.for_tests("standalone")
    runs: list[SeenRun] = []
    async with (
        serve_all(settings, telemetry) as product,
        BosClient(product.target, api_key=product.api_key) as client,
    ):
        # The planner lists the agents that are there: all of them, from the first question on.
        async with asyncio.timeout(_LONGEST_S):
            while not all(each.available for each in await client.agents()):  # noqa: ASYNC110
                await asyncio.sleep(_PAUSE_S)  # the gateway sends no event of it
        for number, question in enumerate(questions, 1):
            async with asyncio.timeout(_LONGEST_S):
                stream = client.ask_stream(question.question, context=dict(product.context))
                runs.append(SeenRun([event async for event in stream]))
            assert runs[-1].response.status == RunStatus.RUN_STATUS_SUCCEEDED, question.id
            # One after the other, side calls included: what one question leaves in the store, the
            # next one finds, always.
            await eventually(
                lambda number=number: _remembered(telemetry) >= number,  # type: ignore[misc]
                within_s=_LONGEST_S,
            )
        await eventually(lambda: model.in_flight == 0)
    return runs


def _remembered(telemetry: Telemetry) -> float:
    """Of how many questions memory knows facts and answer, whether or not it asked a model."""
    calls = dict.fromkeys(("ExtractFacts", "RecordTurn"), 0.0)
    for metric in telemetry.registry.collect():
        for sample in metric.samples:
            if sample.name == "bos_gateway_memory_calls_total":
                method = sample.labels["method"]
                calls[method] = calls.get(method, 0.0) + sample.value
    return min(calls["ExtractFacts"], calls["RecordTurn"])


def attributed(
    questions: Sequence[Question], runs: Sequence[SeenRun], calls: Sequence[RecordedRequest]
) -> list[Asked]:
    """The calls of each question by who made them.

    Raises:
        Unattributed: a call belongs to no question, or nothing was prepared for it.
    """
    plan: dict[str, list[RecordedRequest]] = {each.id: [] for each in questions}
    answer: dict[str, list[RecordedRequest]] = {each.id: [] for each in questions}
    side: dict[str, list[RecordedRequest]] = {each.id: [] for each in questions}
    steps: dict[str, dict[str, list[RecordedRequest]]] = {
        each.id: {step.id: [] for step in each.steps} for each in questions
    }
    for call in calls:
        whose, part = _place(questions, call)
        if part == _PLAN:
            plan[whose].append(call)
        elif part == _ANSWER:
            answer[whose].append(call)
        elif part in steps[whose]:
            steps[whose][part].append(call)
        else:
            side[whose].append(call)
    return [
        Asked(each, run, plan[each.id], steps[each.id], answer[each.id], side[each.id])
        for each, run in zip(questions, runs, strict=True)
    ]


def _place(questions: Sequence[Question], call: RecordedRequest) -> tuple[str, str]:
    """Id of the question that a call was made for, and its part: the fixture's name has both."""
    if call.fixture is None or call.status != 200:
        why = call.problem or "nothing was prepared for it"
        raise Unattributed(f"a call for {call.schema} has no reply, {why}:\n{call.prompt[-600:]}")
    head, _, tail = call.fixture.rpartition(": ")
    whose, _, step = head.partition("/")
    if any(each.id == whose for each in questions):
        return whose, step or tail
    for each in questions:
        if each.question in call.prompt:
            return each.id, ""
    raise Unattributed(f"the reply {call.fixture!r} is of no demo question")


@contextmanager
def _environment(model: ScriptedModel, mode: Mode, folder: Path) -> Iterator[None]:
    """The variables of a model of OpenAI, and none of the developer's."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if _SETTINGS.match(name)]:
            patch.delenv(name)
        patch.chdir(folder)  # where there is no .env
        for name, value in PATIENT.items():
            patch.setenv(name, value)
        patch.setenv("OPENAI_API_KEY", SCRIPTED_KEY)
        patch.setenv("OPENAI_BASE_URL", model.base_url)
        patch.setenv("BOS_MODEL_PROVIDER", "openai")
        patch.setenv("BOS_MODEL", "scripted")
        if mode == "schema_in_prompt":
            patch.setenv("BOS_MODEL_SCHEMA_IN_PROMPT", "always")
        yield
