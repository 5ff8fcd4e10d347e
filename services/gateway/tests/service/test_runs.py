"""Runs from question to answer, through real gRPC, a real log and real agents."""

import asyncio

import pytest
from gateway_harness.harness import Harness, kinds, result_of
from gateway_harness.raw_agents import RawAgent, success
from gateway_harness.streamed import answer_text, logged

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_SUCCEEDED,
)
from bos.common.v1 import TRACE_EVENT_TYPE_ERROR, Chart
from bos.gateway.v1 import (
    RUN_STATUS_CANCELLED,
    RUN_STATUS_FAILED,
    RUN_STATUS_PARTIALLY_SUCCEEDED,
    RUN_STATUS_SUCCEEDED,
    OrchestratorResponse,
)
from bos_agentkit import AgentFailure, agent_card
from bos_chassis.values import from_value
from bos_errors import (
    Unavailable,
)
from bos_testkit.agents import EchoAgent, FailingAgent, SlowAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually


@pytest.mark.requirement("C-01", "K-08", "C-02")
async def test_question_leads_to_plan_steps_answer_and_end_in_order(harness: Harness) -> None:
    await harness.add_agent(EchoAgent("echo"))
    harness.planner.steps = [step("first", "echo")]
    async with harness.gateway() as gateway:
        events = await gateway.events("What is new?", trace=True)
    assert [k for k in kinds(events) if k != "step_progress"] == [
        "run_accepted",
        "planned",
        "step_started",
        "step_finished",
        "answer_started",
        "answer_delta",
        "run_finished",
    ]
    response = events[-1].run_finished.response
    assert response.status == RUN_STATUS_SUCCEEDED
    assert response.answer == "It is done."
    assert list(response.metadata.agents) == ["echo"]
    assert response.metadata.planner_confidence == pytest.approx(0.9)
    assert answer_text(events) == "It is done."
    sequences = [event.sequence for event in logged(events)]
    assert sequences == sorted(set(sequences))


@pytest.mark.requirement("C-09", "C-11", "C-14", "C-15", "C-16", "C-17", "C-18")
async def test_steps_get_what_they_depend_on_and_others_do_not_wait(harness: Harness) -> None:
    slow, sink = SlowAgent("slow"), EchoAgent("sink")
    source = EchoAgent("source", data={"big": 9007199254740993, "name": "Asha"})
    for agent in (slow, source, FailingAgent("broken"), sink):
        await harness.add_agent(agent)
    values = {"number": "@{outputs.a.big}", "text": "n=@{outputs.a.big}"}
    harness.planner.steps = [
        step("s", "slow"),
        step("a", "source"),
        step("f", "broken"),
        step("typed", "sink", "greet @{outputs.a.name}", **values),
        step("soft", "sink", "go on", "f"),
        step("unresolved", "sink", "use @{outputs.a.missing}"),
    ]
    async with harness.gateway() as gateway:
        asked = asyncio.create_task(gateway.ask())
        await eventually(lambda: len(sink.inputs) == 2 and len(slow.inputs) == 1)
        slow.release.set()
        response = await asked
    given = {each.task: each for each in sink.inputs}
    typed, soft = given["greet Asha"], given["go on"]
    assert from_value(typed.sub_task_input["number"]) == 9007199254740993
    assert from_value(typed.sub_task_input["text"]) == "n=9007199254740993"
    assert typed.dependency_outputs["a"].fields["name"].string_value == "Asha"
    assert "reason" in soft.dependency_outputs["f"].fields
    results = response.agent_results
    names = ["slow", "source", "broken", "sink", "sink", "sink"]
    assert [result.agent_name for result in results] == names
    assert results[-1].error.type == "ReferenceUnresolved"
    assert response.status == RUN_STATUS_PARTIALLY_SUCCEEDED


@pytest.mark.requirement("C-03")
async def test_plan_without_steps_goes_straight_to_the_answer(harness: Harness) -> None:
    async with harness.gateway() as gateway:
        response = await gateway.ask()
    assert response.status == RUN_STATUS_SUCCEEDED
    assert not response.agent_results


@pytest.mark.requirement("B-19", "Q-04")
async def test_invalid_plan_is_never_run_and_keywords_plan_instead(harness: Harness) -> None:
    echo, other = _speaking_for("echo", "new"), _speaking_for("other", "old")
    await harness.plan(echo, other)
    async with harness.gateway() as gateway:
        for words, steps in {
            "circular": [step("a", "echo", "x", "b"), step("b", "echo", "x", "a")],
            "unknown agent": [step("a", "unknown")],
        }.items():
            harness.planner.steps = steps
            echo.inputs.clear()
            events = await gateway.events("What is new?", trace=True)
            response = events[-1].run_finished.response
            assert response.status == RUN_STATUS_SUCCEEDED
            (planned,) = [event.planned for event in events if event.HasField("planned")]
            assert planned.plan.origin == "heuristic"
            assert [given.task for given in echo.inputs] == ["What is new?"]
            assert not other.inputs
            assert words in _planner_errors(response)


def _speaking_for(name: str, keyword: str) -> EchoAgent:
    return EchoAgent(name, card=agent_card(name, name, capabilities=[name], keywords=[keyword]))


def _planner_errors(response: OrchestratorResponse) -> str:
    return " ".join(e.message for e in response.trace if e.type == TRACE_EVENT_TYPE_ERROR)


@pytest.mark.requirement("Q-04")
async def test_unreachable_planner_leads_to_the_heuristic_plan(harness: Harness) -> None:
    await harness.plan(_speaking_for("echo", "new"), _speaking_for("other", "old"))
    harness.planner.error = Unavailable("The planner is resting.")
    async with harness.gateway() as gateway:
        response = await gateway.ask("What is new?", trace=True)
        barred = await gateway.ask("What is new?", disable_agents=["echo"])
        wished = await gateway.ask("What is new?", prefer_agents=["other"])
        dry = await gateway.plan("What is new?")
    assert response.status == RUN_STATUS_SUCCEEDED
    assert [result.agent_name for result in response.agent_results] == ["echo"]
    assert "The planner is resting." in _planner_errors(response)
    assert not barred.agent_results
    assert [result.agent_name for result in wished.agent_results] == ["other", "echo"]
    assert [step.agent for step in dry.plan.steps] == ["echo"]
    assert "The planner is resting." in dry.decision.rationale


@pytest.mark.requirement("K-14", "K-16")
async def test_broken_composer_leaves_answer_and_charts_of_agents(harness: Harness) -> None:
    result = success(answer="Drawn.", charts=[Chart(title="Sales")], followups=["And the costs?"])
    await harness.plan(RawAgent("drawer", lambda _: result))
    harness.composer.error = Unavailable("The composer is resting.")
    async with harness.gateway() as gateway:
        response = await gateway.ask()
    assert response.status == RUN_STATUS_PARTIALLY_SUCCEEDED
    assert response.answer == "Drawn."
    assert [chart.title for chart in response.charts] == ["Sales"]
    assert list(response.followups) == ["And the costs?"]


@pytest.mark.requirement("Q-08")
async def test_broken_composer_without_results_fails_the_run(harness: Harness) -> None:
    harness.composer.error = Unavailable("The composer is resting.")
    async with harness.gateway() as gateway:
        response = await gateway.ask()
    assert response.status == RUN_STATUS_FAILED
    assert response.error.type == "ComposingFailed"


@pytest.mark.requirement("C-32")
async def test_retryable_failure_is_tried_again_under_the_same_key(harness: Harness) -> None:
    error = AgentFailure("HttpError", "The other side is busy.", retryable=True)
    failing = FailingAgent("broken", error=error, times=1)
    failing.card.max_retries = 2
    await harness.plan(failing)
    async with harness.gateway() as gateway:
        events = await gateway.events()
    assert result_of(events, "a").status == AGENT_EXECUTION_STATUS_SUCCEEDED
    assert {i.metadata.step_key for i in failing.inputs} == {f"{events[0].run_id}/0/a"}
    assert [i.metadata.attempt for i in failing.inputs] == [1, 2]


async def test_cancelled_run_ends_and_stops_its_agent(harness: Harness) -> None:
    slow = await harness.plan(SlowAgent("slow"))
    async with harness.gateway() as gateway:
        call = gateway.stream()
        events = []
        async for message in call:
            events.append(message.event)
            if message.event.HasField("step_started"):
                await slow.started.wait()
                await gateway.cancel(message.event.run_id, "enough")
        await asyncio.wait_for(slow.cancelled.wait(), 60)
    assert events[-1].run_finished.response.status == RUN_STATUS_CANCELLED
    assert "enough" in events[-1].run_finished.response.answer
