"""Requests at the edge: what is accepted, refused, found, listed and planned."""

import math
from typing import Any

import pytest
from gateway_harness.answering import refusal
from gateway_harness.harness import Harness
from gateway_harness.raw_agents import deep
from google.protobuf import struct_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct

from bos.agent.v1 import SideEffectClass
from bos.gateway.v1 import (
    RUN_STATUS_SUCCEEDED,
    ListAgentsRequest,
    ListRunsRequest,
    RunStatus,
)
from bos.planner.v1 import Step
from bos_agentkit import agent_card, tool
from bos_chassis.auth.callers import generate_keypair
from bos_chassis.settings import AuthSettings
from bos_chassis.values import MAX_DEPTH, from_value
from bos_errors import (
    InvalidArgument,
    Unavailable,
)
from bos_testkit.agents import EchoAgent
from bos_testkit.plans import step

_NONE = SideEffectClass.SIDE_EFFECT_CLASS_NONE


@tool(description="Counts.", side_effect=_NONE, aliases=("CountTool",))
async def count_words(text: str) -> int:
    return len(text.split())


@tool(description="Counts.", side_effect=_NONE, aliases=("LinesTool",))
async def count_lines(text: str) -> int:
    return len(text.splitlines())


INVALID: list[tuple[str, dict[str, Any]]] = [
    ("question", {"question": "   "}),
    ("question", {"question": "a\0b"}),
    ("request_id", {"request_id": "a\0b"}),
    ("conversation_id", {"conversation_id": "a\0b"}),
    ("system_prompt", {"system_prompt": "a\0b"}),
    ("prefer_agents", {"prefer_agents": ["unknown"]}),
    ("disable_agents", {"disable_agents": ["unknown"]}),
    ("max_turns", {"max_turns": 0}),
    ("max_rows", {"max_rows": 0}),
    ("max_columns", {"max_columns": -(2**31)}),
    ("backend", {"backend": "x" * 129}),
    ("backend", {"backend": "a\0b"}),
    ("model", {"model": "a\0b"}),
    ("model", {"model": "x" * 129}),
    ("timeout", {"timeout": Duration(seconds=2**62)}),
    ("timeout", {"timeout": Duration(seconds=1, nanos=-1)}),
    ("context", {"context": {"blob": "x" * 70_000}}),
    ("context", {"context": deep(MAX_DEPTH + 1)}),
    ("context", {"context": Struct(fields={"n": struct_pb2.Value(number_value=math.nan)})}),
]


@pytest.mark.requirement("A-02", "A-24", "R-01")
async def test_bad_request_names_the_field_and_the_fix(harness: Harness) -> None:
    await harness.add_agent(EchoAgent("echo"))
    async with harness.gateway() as gateway:
        for field, given in INVALID:
            error = await refusal(gateway.ask(**{"question": "x", **given}))
            assert isinstance(error, InvalidArgument), given
            assert [v.field for v in error.violations] == [f"request.{field}"], given
    assert not harness.planner.requests


@pytest.mark.requirement("A-03", "A-08")
async def test_agents_are_named_in_any_case_and_by_alias(harness: Harness) -> None:
    agent = EchoAgent("echo")
    agent.card.aliases.extend(["echo_agent", "UtilityAgent", "calculator"])
    await harness.add_agent(agent)
    await harness.add_agent(EchoAgent("other"))
    harness.planner.steps = [step("a", "UtilityAgent")]
    async with harness.gateway() as gateway:
        for named, names, absent in (
            ({"prefer_agents": ["  ECHO_agent ", "", "echo", "UTILITY-AGENT"]}, ["echo"], None),
            ({"prefer_agents": ["calculator"]}, ["echo"], None),  # though it is known as another's
            ({"prefer_agents": ["Mail_Agent", "echo"]}, ["mail", "echo"], ["mail"]),
            ({"disable_agents": ["Echo agent"]}, ["echo"], None),
        ):
            agent.inputs.clear()
            response = await gateway.ask(**named)
            (field,) = named
            assert list(getattr(harness.planner.requests[-1], field)) == names, named
            # What is left out does not run under an alias either.
            assert bool(agent.inputs) is (field == "prefer_agents"), named
            guardrails = response.planner.guardrails
            found = from_value(guardrails["unavailable_agents"]) if absent else None
            assert ("unavailable_agents" in guardrails, found) == (absent is not None, absent), (
                named
            )


@pytest.mark.requirement("A-08", "C-19", "C-29")
async def test_plan_with_aliases_is_stored_with_canonical_names(harness: Harness) -> None:
    tools = (count_words, count_lines)
    agent = EchoAgent(
        "echo", card=agent_card("echo", "Counts.", tools=tools, aliases=["UtilityAgent"])
    )
    agent.tools = tools
    await harness.add_agent(agent)
    harness.planner.steps = [
        Step(step_id="a", agent="Utility Agent", task="Count.", tool_name="CountTool"),
        Step(step_id="b", agent="Orchestrator", task="Count.", tool_name="lines_tool"),
    ]
    async with harness.gateway() as gateway:
        stored = str(await gateway.watch((await gateway.ask()).run_id))
    assert sorted((each.agent_name, each.tool_name) for each in agent.inputs) == [
        ("echo", "count_lines"),
        ("echo", "count_words"),
    ]
    for written in ("Utility Agent", "Orchestrator", "CountTool", "lines_tool"):
        assert written not in stored


@pytest.mark.requirement("A-08")
async def test_alias_of_two_agents_names_neither_and_is_logged_once(harness: Harness) -> None:
    for name, alias in (("one", "Helper"), ("two", "helper")):
        agent = EchoAgent(name)
        agent.card.aliases.append(alias)
        await harness.add_agent(agent)
    async with harness.gateway() as gateway:
        await gateway.ask()
        await gateway.ask()
        error = await refusal(gateway.ask(prefer_agents=["helper"]))
        logged = [e for e in gateway.telemetry.logs if e["event"] == "agents share a name"]
    (entry,) = logged
    assert (entry["shared_name"], entry["agents"]) == ("helper", ["one", "two"])
    assert '"helper" is not an agent; the agents are one, two' in error.message


@pytest.mark.requirement("A-05", "A-06")
async def test_temporal_context_is_filled_in_and_secrets_are_taken_out(harness: Harness) -> None:
    context = {"current_date": "2026-06-15", "api_bearer_token": "very-secret", "shop": "north"}
    async with harness.gateway() as gateway:
        response = await gateway.ask(context=context)
        run = await gateway.run(response.run_id)
        events = await gateway.watch(response.run_id)
    seen = dict(harness.planner.requests[0].context)
    assert seen["current_date_start_hour"] == "2026-06-15 00"
    assert seen["current_date_end_hour"] == "2026-06-15 23"
    assert seen["shop"] == "north"
    assert "very-secret" not in str(seen) + str(run) + str(events)


async def test_runs_are_listed_newest_first_in_pages(harness: Harness) -> None:
    async with harness.gateway() as gateway:
        ids = [(await gateway.ask(f"Question {n}?")).run_id for n in range(3)]
        first = await gateway.call(ListRunsRequest(page_size=2))
        second = await gateway.call(ListRunsRequest(page_size=2, page_token=first.next_page_token))
        none = await gateway.call(ListRunsRequest(status=RunStatus.RUN_STATUS_FAILED))
    assert [r.run_id for r in (*first.runs, *second.runs)] == ids[::-1]
    assert not second.next_page_token
    assert not none.runs


async def test_agents_are_listed_with_cards_and_availability(harness: Harness) -> None:
    harness.agent_targets["away"] = "127.0.0.1:1"
    async with harness.gateway() as gateway:
        # Without any reachable agent questions are refused, and not planned without a step.
        error = await refusal(gateway.ask())
    await harness.add_agent(EchoAgent("echo"))
    async with harness.gateway() as gateway:
        agents = (await gateway.call(ListAgentsRequest())).agents
    assert [(a.card.name, a.available) for a in agents] == [("away", False), ("echo", True)]
    assert agents[0].unavailable_reason
    assert (type(error), error.reason) == (Unavailable, "NO_AGENTS")
    assert not harness.planner.requests


async def test_planning_only_runs_nothing(harness: Harness) -> None:
    echo = await harness.plan(EchoAgent("echo"))
    harness.planner.steps.append(step("b", "echo", "after", "a"))
    async with harness.gateway() as gateway:
        response = await gateway.plan()
    assert [list(stage.step_ids) for stage in response.stages] == [["a"], ["b"]]
    assert not echo.inputs


async def test_every_internal_call_carries_a_token_for_its_audience(harness: Harness) -> None:
    private, public = generate_keypair()
    auth = AuthSettings.load(run_token_public_keys=public)
    await harness.plan(EchoAgent("echo"), auth=auth)
    async with harness.gateway(run_token_private_key=private) as gateway:
        response = await gateway.ask()
    async with harness.gateway() as without_key:
        assert isinstance(await refusal(without_key.ask()), Unavailable)
    assert response.status == RUN_STATUS_SUCCEEDED
