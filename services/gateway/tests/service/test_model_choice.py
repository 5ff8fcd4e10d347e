"""The model that a question chooses: out of those that are offered, for the whole of its run."""

import asyncio

import pytest
from gateway_harness.answering import refusal
from gateway_harness.harness import Harness

from bos.agent.v1 import AgentResult
from bos.common.v1 import ClarifyingQuestion
from bos.gateway.v1 import (
    RUN_STATUS_CLARIFICATION_NEEDED,
    RUN_STATUS_SUCCEEDED,
    ListAgentsRequest,
    ListRunsRequest,
)
from bos_agentkit import AgentTask, failed, needs_clarification, succeeded
from bos_errors import AlreadyExists, InvalidArgument
from bos_testkit.agents import RecordingAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.requirement("A-24")

OFFERED = {"large": "Thorough", "small": "small"}


class Held(RecordingAgent):
    """Succeeds once it may; fails or asks back first, as set."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.failures = self.questions = 0
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def behave(self, task: AgentTask) -> AgentResult:

        await self.go_on.wait()
        if self.questions:
            self.questions -= 1
            return needs_clarification(task, [ClarifyingQuestion(question="Which?")])
        if self.failures:
            self.failures -= 1
            return failed(task, type="NotUnderstood", message="That was not understood.")
        return succeeded(task, answer="Here.")


async def held(harness: Harness) -> Held:
    return await harness.plan(Held("held"))


def chosen(harness: Harness, given: Held) -> tuple[list[str], list[str], list[str]]:
    """The model of every request to planner, agent and composer."""
    return (
        [request.model for request in harness.planner.requests],
        [request.model for request in given.inputs],
        [request.model for request in harness.composer.requests],
    )


async def test_chosen_model_reaches_all_callers_of_models(harness: Harness) -> None:
    given = await held(harness)
    async with harness.gateway(models=OFFERED) as gateway:
        response = await gateway.ask(model="large", request_id="r")
        await gateway.ask()
        run = await gateway.run(response.run_id)
        accepted = (await gateway.watch(response.run_id))[0].run_accepted
        listed = (await gateway.call(ListRunsRequest())).runs
        conflict = await refusal(gateway.ask(request_id="r", model="small"))
        assert chosen(harness, given) == (["large", ""],) * 3
        await gateway.plan(model="small")
        assert harness.planner.requests[-1].model == "small"
        given.failures = 1
        harness.planner.revisions = [[step("b", "held")]]
        revised = await gateway.ask(model="large")
    assert revised.metadata.revision == 1
    assert [each[-2:] for each in chosen(harness, given)[:2]] == [["large"] * 2] * 2
    assert response.status == RUN_STATUS_SUCCEEDED
    assert run.model == accepted.model == "large"
    assert [each.model for each in listed] == ["", ""]
    assert isinstance(conflict, AlreadyExists)


async def test_other_models_are_refused_and_offered_ones_are_listed(harness: Harness) -> None:
    await held(harness)
    for offered, model, advice in (
        (OFFERED, "huge", '"huge" is not offered; leave it out, or choose one of large, small'),
        ({}, "large", "no models are offered; leave it out"),
    ):
        async with harness.gateway(models=offered) as gateway:
            listed = await gateway.call(ListAgentsRequest())
            found = [(each.name, each.label) for each in listed.models]
            assert found == list(offered.items())
            for call in (gateway.ask(model=model), gateway.plan(model=model)):
                error = await refusal(call)
                assert isinstance(error, InvalidArgument)
                (violation,) = error.violations
                assert violation.field == "request.model"
                assert advice in violation.description
    assert not harness.planner.requests


async def test_adopted_run_keeps_a_model_that_is_no_longer_offered(harness: Harness) -> None:
    given = await held(harness)
    async with harness.gateway() as second:
        async with harness.gateway(models=OFFERED) as first:
            given.go_on.clear()
            run_id = (await first.stream(model="large").read()).event.run_id
            await eventually(lambda: len(given.inputs) == 1)
        given.go_on.set()
        events = await second.watch(run_id)
    assert events[-1].run_finished.response.status == RUN_STATUS_SUCCEEDED
    planned, worked, composed = chosen(harness, given)
    assert (planned, composed) == (["large"], ["large"])
    assert worked == ["large"] * 2


async def test_reply_keeps_model_unless_it_names_one_or_it_is_gone(harness: Harness) -> None:
    given = await held(harness)
    given.questions = 1
    async with harness.gateway(models=OFFERED) as gateway:
        first = await gateway.ask(model="large")
        assert first.status == RUN_STATUS_CLARIFICATION_NEEDED
        await gateway.ask("this", continues_run_id=first.run_id)
        await gateway.ask("this", continues_run_id=first.run_id, model="small")
    async with harness.gateway(models={"small": "small"}) as gateway:
        await gateway.ask("this", continues_run_id=first.run_id)
        error = await refusal(gateway.ask("this", continues_run_id=first.run_id, model="large"))
    assert [each.model for each in given.inputs] == ["large", "large", "small", ""]
    assert isinstance(error, InvalidArgument)
