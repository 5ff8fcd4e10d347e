"""The model that a question chooses: out of those that are offered, for the whole of its run."""

import asyncio
from typing import Any

import grpc
import pytest
from gateway_harness.harness import Harness

from bos.agent.v1 import AgentResult
from bos.common.v1 import ClarifyingQuestion
from bos.gateway.v1 import (
    RUN_STATUS_CLARIFICATION_NEEDED,
    RUN_STATUS_SUCCEEDED,
    AgentRequest,
    GetRunRequest,
    ListAgentsRequest,
    ListRunsRequest,
    PlanQuestionRequest,
)
from bos_agentkit import AgentTask, failed, needs_clarification, succeeded
from bos_errors import AlreadyExists, BosError, ConfigurationError, InvalidArgument, from_rpc_error
from bos_gateway.settings import GatewaySettings
from bos_testkit.agents import RecordingAgent
from bos_testkit.deploy import DeployAgent
from bos_testkit.plans import step
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel
from bos_testkit.waiting import eventually

from .test_approvals import APPROVE, Following, agent, patient, respond
from .test_operator import bos, environment, examined

__all__ = ["agent"]

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
        """Do so."""
        await self.go_on.wait()
        if self.questions:
            self.questions -= 1
            return needs_clarification(task, [ClarifyingQuestion(question="Which?")])
        if self.failures:
            self.failures -= 1
            return failed(task, type="NotUnderstood", message="That was not understood.")
        return succeeded(task, answer="Here.")


async def held(harness: Harness) -> Held:
    found = Held("held")
    await harness.add_agent(found)
    harness.planner.steps = [step("a", "held")]
    return found


async def refused(call: Any) -> BosError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return from_rpc_error(raised.value)


def chosen(harness: Harness, given: Held) -> tuple[list[str], list[str], list[str]]:
    """The model of every request to planner, agent and composer."""
    return (
        [request.model for request in harness.planner.requests],
        [request.model for request in given.inputs],
        [request.model for request in harness.composer.requests],
    )


async def test_chosen_model_reaches_all_callers_of_models(
    harness: Harness,
) -> None:
    given = await held(harness)
    async with harness.gateway(models=OFFERED) as gateway:
        response = await gateway.ask(model="large", request_id="r")
        await gateway.ask()
        run = (await gateway.stub.GetRun(GetRunRequest(run_id=response.run_id))).run
        accepted = (await gateway.watch(response.run_id))[0].run_accepted
        listed = (await gateway.stub.ListRuns(ListRunsRequest())).runs
        conflict = await refused(gateway.ask(request_id="r", model="small"))
        assert chosen(harness, given) == (["large", ""],) * 3
        dry = AgentRequest(question="why", model="small")
        await gateway.stub.PlanQuestion(PlanQuestionRequest(request=dry))
    assert harness.planner.requests[-1].model == "small"
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
            listed = await gateway.stub.ListAgents(ListAgentsRequest())
            found = [(each.name, each.label) for each in listed.models]
            assert found == list(offered.items())
            plan = PlanQuestionRequest(request=AgentRequest(question="why", model=model))
            for call in (gateway.ask(model=model), gateway.stub.PlanQuestion(plan)):
                error = await refused(call)
                assert isinstance(error, InvalidArgument)
                (violation,) = error.violations
                assert violation.field == "request.model"
                assert advice in violation.description
    assert not harness.planner.requests


async def test_adopted_run_keeps_a_model_that_is_no_longer_offered(
    harness: Harness,
) -> None:
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


async def test_a_revised_plan_is_made_and_done_with_the_model(harness: Harness) -> None:
    given = await held(harness)
    given.failures = 1
    harness.planner.revisions = [[step("b", "held")]]
    async with harness.gateway(models=OFFERED) as gateway:
        response = await gateway.ask(model="large")
    assert response.metadata.revision == 1
    assert chosen(harness, given) == (["large"] * 2, ["large"] * 2, ["large"])


async def test_instructions_of_an_approval_use_the_chosen_model(
    harness: Harness, agent: DeployAgent
) -> None:
    async with patient(harness, models=OFFERED) as gateway:
        following = Following(gateway, model="large")
        first = await following.asked()
        await respond(gateway, first.approval_id, APPROVE, "deploy shop 1.3")
        second = await following.asked(2)
        await respond(gateway, second.approval_id, APPROVE)
        await following.end()
    assert [asked.model for asked in harness.planner.instructions] == ["large"]
    assert {task.model for task in agent.inputs} == {"large"}


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
        error = await refused(gateway.ask("this", continues_run_id=first.run_id, model="large"))
    assert [each.model for each in given.inputs] == ["large", "large", "small", ""]
    assert isinstance(error, InvalidArgument)


async def test_doctor_lists_offered_models_and_calls_them_on_request(
    harness: Harness,
) -> None:
    replies = [
        fixture("ok", ["Say: ok"], text="ok"),
        fixture("json", [], schema="ProbeAnswer", json={"reason": "It is.", "prime": True}),
    ]
    async with ScriptedModel(replies) as model:
        env = environment(harness, MODELS="large=Thorough, small")
        env |= {"OPENAI_BASE_URL": model.base_url, "BOS_MODEL": "scripted"}
        _, found = await examined(env)
        of_choice = [each for each in found["models"] if "may choose" in each["text"]]
        assert [each["level"] for each in of_choice] == ["ok", "ok"]
        _, found = await examined(
            env | {"BOS_MODEL_PRICES": '{"large": {"input": 1, "output": 2}}'}
        )
        (warned,) = [each for each in found["models"] if each["level"] == "warning"]
        assert "may choose small of compatible, which has no price" in warned["text"]
        assert "BOS_MODEL_PRICES" in warned["advice"]
        assert model.calls == 0
        result = await bos("doctor", "--model", env=env)
        assert "small of compatible, text: replied in" in result.stdout
        asked = [request.model for request in model.requests]
        assert {name: asked.count(name) for name in asked} == {
            "scripted": 3,
            "large": 3,
            "small": 3,
        }


def test_offered_models_are_written_as_names_and_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("STORE_URL", "postgresql://x/y"),
        ("PLANNER_TARGET", "p"),
        ("COMPOSER_TARGET", "c"),
        ("AGENT_TARGETS", "sql=s"),
    ):
        monkeypatch.setenv(f"BOS_GATEWAY_{name}", value)
    assert GatewaySettings.load().models == {}
    monkeypatch.setenv("BOS_GATEWAY_MODELS", "gpt-6-sol = Very thorough, qwen3:8b=, org/m@1 ,")
    assert list(GatewaySettings.load().models.items()) == [
        ("gpt-6-sol", "Very thorough"),
        ("qwen3:8b", "qwen3:8b"),
        ("org/m@1", "org/m@1"),
    ]
    many = ",".join(f"m{number}" for number in range(33))
    hidden = ("a\u202eb", "a=b\u202e")
    long = ("x" * 129, "a=" + "x" * 65)
    for wrong in ("=Thorough", "two words", "a, b, a=c", *long, *hidden, many):
        monkeypatch.setenv("BOS_GATEWAY_MODELS", wrong)
        with pytest.raises(ConfigurationError, match="BOS_GATEWAY_MODELS"):
            GatewaySettings.load()
