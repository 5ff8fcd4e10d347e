"""Requests at the edge: what is accepted, refused, found, listed and planned."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest

from bos.agent.v1 import SideEffectClass
from bos.gateway.v1 import (
    RUN_STATUS_SUCCEEDED,
    AgentRequest,
    CancelRunRequest,
    GetRunRequest,
    ListAgentsRequest,
    ListRunsRequest,
    PlanQuestionRequest,
    RunStatus,
)
from bos.planner.v1 import Step
from bos_agentkit import agent_card, tool
from bos_chassis.auth.callers import generate_keypair
from bos_chassis.settings import AuthSettings
from bos_chassis.values import from_value
from bos_errors import (
    AlreadyExists,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
    from_rpc_error,
)
from bos_testkit.agents import EchoAgent, SlowAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

if TYPE_CHECKING:
    from gateway_harness.harness import Harness

_NONE = SideEffectClass.SIDE_EFFECT_CLASS_NONE


@tool(description="Counts.", side_effect=_NONE, aliases=("CountTool",))
async def count_words(text: str) -> int:
    return len(text.split())


@tool(description="Counts.", side_effect=_NONE, aliases=("LinesTool",))
async def count_lines(text: str) -> int:
    return len(text.splitlines())


async def test_same_request_id_is_the_same_run_and_another_body_is_refused(
    harness: Harness,
) -> None:
    async with harness.gateway() as gateway:
        first, second = await asyncio.gather(
            gateway.ask(request_id="r1"), gateway.ask(request_id="r1")
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.ask("Something else?", request_id="r1")
    assert first.run_id == second.run_id
    assert len(harness.planner.requests) == 1
    error = from_rpc_error(caught.value)
    assert isinstance(error, AlreadyExists)
    assert error.reason == "REQUEST_ID_REUSED"


@pytest.mark.parametrize(
    ("request_fields", "field"),
    [
        ({"question": ""}, "request.question"),
        ({"question": "   "}, "request.question"),
        ({"question": "x", "prefer_agents": ["nobody"]}, "request.prefer_agents"),
        ({"question": "x", "disable_agents": ["nobody"]}, "request.disable_agents"),
        ({"question": "x", "max_turns": 0}, "request.max_turns"),
        ({"question": "x", "context": {"blob": "x" * 70_000}}, "request.context"),
    ],
)
@pytest.mark.requirement("A-02", "R-01")
async def test_bad_request_names_the_field_and_the_fix(
    harness: Harness, request_fields: dict, field: str
) -> None:
    await harness.add_agent(EchoAgent("echo"))
    async with harness.gateway() as gateway:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.ask(**request_fields)
    error = from_rpc_error(caught.value)
    assert isinstance(error, InvalidArgument)
    assert [v.field for v in error.violations] == [field]
    assert not harness.planner.requests


@pytest.mark.requirement("A-03")
async def test_agent_names_are_normalised(harness: Harness) -> None:
    agent = EchoAgent("echo")
    agent.card.aliases.append("echo_agent")
    await harness.add_agent(agent)
    async with harness.gateway() as gateway:
        await gateway.ask(prefer_agents=["  ECHO_agent ", "", "echo"])
    assert list(harness.planner.requests[0].prefer_agents) == ["echo"]


@pytest.mark.parametrize(
    "written", ["UtilityAgent", "utility agent", "UTILITY-AGENT", "Echo agent"]
)
@pytest.mark.requirement("A-08")
async def test_worker_roles_and_other_aliases_name_agents_to_prefer_and_to_leave_out(
    harness: Harness, written: str
) -> None:
    agent = EchoAgent("echo")
    agent.card.aliases.extend(["utility_agent", "UtilityAgent"])
    await harness.add_agent(agent)
    await harness.add_agent(EchoAgent("other"))
    async with harness.gateway() as gateway:
        await gateway.ask(prefer_agents=[written])
        await gateway.ask(disable_agents=[written])
    preferring, disabling = harness.planner.requests
    assert list(preferring.prefer_agents) == ["echo"]
    assert list(disabling.disable_agents) == ["echo"]


@pytest.mark.requirement("A-08", "C-19", "C-29")
async def test_plan_with_aliases_is_stored_and_run_with_canonical_names(harness: Harness) -> None:
    tools = (count_words, count_lines)
    card = agent_card("echo", "Counts.", tools=tools, aliases=["UtilityAgent"])
    agent = EchoAgent("echo", card=card)
    agent.tools = tools
    harness.planner.steps = [
        Step(step_id="a", agent="Utility Agent", task="Count.", tool_name="CountTool"),
        Step(step_id="b", agent="Orchestrator", task="Count.", tool_name="lines_tool"),
    ]
    await harness.add_agent(agent)
    async with harness.gateway() as gateway:
        response = await gateway.ask()
        events = await gateway.watch(response.run_id)
    assert response.status == RUN_STATUS_SUCCEEDED
    assert sorted((each.agent_name, each.tool_name) for each in agent.inputs) == [
        ("echo", "count_lines"),
        ("echo", "count_words"),
    ]
    stored = str(events)
    for written in ("Utility Agent", "Orchestrator", "CountTool", "lines_tool"):
        assert written not in stored


@pytest.mark.requirement("A-08")
async def test_disabled_agent_is_not_run_under_an_alias(harness: Harness) -> None:
    agent = EchoAgent("echo")
    agent.card.aliases.append("UtilityAgent")
    await harness.add_agent(agent)
    await harness.add_agent(EchoAgent("other"))
    harness.planner.steps = [step("a", "UtilityAgent")]
    async with harness.gateway() as gateway:
        await gateway.ask(disable_agents=["utility_agent"])
    assert not agent.inputs


@pytest.mark.requirement("A-08")
async def test_names_that_two_cards_claim_are_logged_once(harness: Harness) -> None:
    for name in ("one", "two"):
        agent = EchoAgent(name)
        agent.card.aliases.append("Helper" if name == "one" else "helper")
        await harness.add_agent(agent)
    async with harness.gateway() as gateway:
        await gateway.ask()
        await gateway.ask()
        logged = [e for e in gateway.telemetry.logs if e["event"] == "agents share a name"]
    assert [(each["shared_name"], each["agents"]) for each in logged] == [
        ("helper", ["one", "two"])
    ]


@pytest.mark.requirement("A-08")
async def test_an_alias_of_two_agents_names_neither(harness: Harness) -> None:
    for name in ("one", "two"):
        agent = EchoAgent(name)
        agent.card.aliases.append("helper")
        await harness.add_agent(agent)
    async with harness.gateway() as gateway:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.ask(prefer_agents=["helper"])
    assert '"helper" is not an agent; the agents are one, two' in str(caught.value.details())


@pytest.mark.parametrize("field", ["prefer_agents", "disable_agents"])
@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("mail", "mail"),
        ("Mail_Agent", "mail"),
        ("ResearchAgent", "web"),
        ("CALCULATOR", "computation"),
    ],
)
@pytest.mark.requirement("A-03", "A-08")
async def test_known_agent_that_is_not_deployed_is_unavailable_and_no_error(
    harness: Harness, field: str, written: str, name: str
) -> None:
    await harness.add_agent(EchoAgent("echo"))
    harness.planner.steps = [step("a", "echo")]
    async with harness.gateway() as gateway:
        response = await gateway.ask(**{field: [written, "echo"] if field[0] == "p" else [written]})
    assert response.status == RUN_STATUS_SUCCEEDED
    assert from_value(response.planner.guardrails["unavailable_agents"]) == [name]


@pytest.mark.requirement("A-08")
async def test_alias_of_an_agent_that_is_here_comes_before_one_that_is_not(
    harness: Harness,
) -> None:
    agent = EchoAgent("echo")
    agent.card.aliases.append("calculator")
    await harness.add_agent(agent)
    async with harness.gateway() as gateway:
        response = await gateway.ask(prefer_agents=["calculator"])
    assert list(harness.planner.requests[0].prefer_agents) == ["echo"]
    assert "unavailable_agents" not in response.planner.guardrails


@pytest.mark.requirement("A-05", "A-06")
async def test_temporal_context_is_filled_in_and_secrets_are_taken_out(harness: Harness) -> None:
    context = {"current_date": "2026-06-15", "api_bearer_token": "very-secret", "shop": "north"}
    async with harness.gateway() as gateway:
        response = await gateway.ask(context=context)
        run = (await gateway.stub.GetRun(GetRunRequest(run_id=response.run_id))).run
        events = await gateway.watch(response.run_id)
    seen = dict(harness.planner.requests[0].context)
    assert seen["current_date_start_hour"] == "2026-06-15 00"
    assert seen["current_date_end_hour"] == "2026-06-15 23"
    assert seen["shop"] == "north"
    assert "very-secret" not in str(seen) + str(run) + str(events)


async def test_full_replica_refuses_with_a_time_to_retry(harness: Harness) -> None:
    slow = SlowAgent("slow")
    await harness.add_agent(slow)
    harness.planner.steps = [step("a", "slow")]
    async with harness.gateway(max_active_runs=1) as gateway:
        running = asyncio.create_task(gateway.ask())
        await eventually(lambda: len(slow.inputs) == 1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.ask()
        slow.release.set()
        await running
    error = from_rpc_error(caught.value)
    assert isinstance(error, ResourceExhausted)
    assert error.retry_after_s


async def test_runs_are_listed_newest_first_in_pages(harness: Harness) -> None:
    async with harness.gateway() as gateway:
        ids = [(await gateway.ask(f"Question {n}?")).run_id for n in range(3)]
        first = await gateway.stub.ListRuns(ListRunsRequest(page_size=2))
        second = await gateway.stub.ListRuns(
            ListRunsRequest(page_size=2, page_token=first.next_page_token)
        )
        none = await gateway.stub.ListRuns(ListRunsRequest(status=RunStatus.RUN_STATUS_FAILED))
    assert [r.run_id for r in (*first.runs, *second.runs)] == ids[::-1]
    assert not second.next_page_token
    assert not none.runs


@pytest.mark.parametrize("run_id", ["01890000-0000-7000-8000-000000000000", "nonsense"])
async def test_unknown_run_is_not_found(harness: Harness, run_id: str) -> None:
    async with harness.gateway() as gateway:
        for call in (
            gateway.stub.GetRun(GetRunRequest(run_id=run_id)),
            gateway.stub.CancelRun(CancelRunRequest(run_id=run_id)),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert isinstance(from_rpc_error(caught.value), NotFound)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.watch(run_id)
        assert isinstance(from_rpc_error(caught.value), NotFound)


async def test_agents_are_listed_with_their_cards_and_whether_they_answer(harness: Harness) -> None:
    await harness.add_agent(EchoAgent("echo"))
    harness.agent_targets["away"] = "127.0.0.1:1"
    async with harness.gateway() as gateway:
        agents = (await gateway.stub.ListAgents(ListAgentsRequest())).agents
    assert [(a.card.name, a.available) for a in agents] == [("away", False), ("echo", True)]
    assert agents[0].unavailable_reason


async def test_planning_only_runs_nothing(harness: Harness) -> None:
    echo = EchoAgent("echo")
    await harness.add_agent(echo)
    harness.planner.steps = [step("a", "echo"), step("b", "echo", "after", "a")]
    async with harness.gateway() as gateway:
        request = PlanQuestionRequest(request=AgentRequest(question="Plan this"))
        response = await gateway.stub.PlanQuestion(request)
    assert [list(stage.step_ids) for stage in response.stages] == [["a"], ["b"]]
    assert not echo.inputs


async def test_no_agent_ever_answered_is_unavailable_and_not_an_empty_plan(
    harness: Harness,
) -> None:
    harness.agent_targets["away"] = "127.0.0.1:1"
    async with harness.gateway() as gateway:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.ask()
    error = from_rpc_error(caught.value)
    assert isinstance(error, Unavailable)
    assert error.reason == "NO_AGENTS"
    assert not harness.planner.requests


async def test_every_internal_call_carries_a_token_for_its_audience(harness: Harness) -> None:
    private, public = generate_keypair()
    auth = AuthSettings.load(run_token_public_keys=public)
    await harness.add_agent(EchoAgent("echo"), auth=auth)
    harness.planner.steps = [step("a", "echo")]
    async with harness.gateway(run_token_private_key=private) as gateway:
        response = await gateway.ask()
    async with harness.gateway() as without_key:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await without_key.ask()
    assert response.status == RUN_STATUS_SUCCEEDED
    assert isinstance(from_rpc_error(caught.value), Unavailable)
