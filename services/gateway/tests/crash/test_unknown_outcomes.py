"""An approved action with unknown outcome: the user is asked once more."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import grpc
import pytest
from gateway_harness.answering import refusal, respond
from gateway_harness.harness import Harness, kinds, result_of
from gateway_harness.raw_agents import RawAgent, add_raw_agent, success

from bos.agent.v1 import (
    SIDE_EFFECT_CLASS_IDEMPOTENT,
    SIDE_EFFECT_CLASS_IRREVERSIBLE,
    AgentResult,
    ExecuteResponse,
    Tool,
    TraceBatch,
)
from bos.gateway.v1 import (
    APPROVAL_DECISION_APPROVE,
    APPROVAL_DECISION_DENY,
    APPROVAL_KIND_OUTCOME_UNKNOWN,
    APPROVAL_KIND_PROPOSED,
    Approval,
    RunEvent,
)
from bos.planner.v1 import Step
from bos_agentkit import AgentServiceSettings, ToolContext, agent_service
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import Unavailable
from bos_testkit.deploy import DeployAgent
from bos_testkit.plans import step
from bos_testkit.processes import free_port

APPROVE, DENY = APPROVAL_DECISION_APPROVE, APPROVAL_DECISION_DENY


class LosingAgent(DeployAgent):
    """Does what it may, and the first time its other side is gone before it could say so."""

    def _land(self, label: str, context: ToolContext) -> None:
        super()._land(label, context)
        if len(self.effects) == 1:
            raise Unavailable("The other side is gone.")


def deploying() -> Step:
    made = step("a", "deploy", "deploy shop 1.2")
    made.tools.append("trigger_deployment")
    return made


async def run(
    harness: Harness, agent: DeployAgent, *decisions: int
) -> tuple[list[RunEvent], list[Approval]]:
    """All events of a run whose requests are answered so, one after the other, and the requests."""
    await harness.add_agent(agent)
    harness.planner.steps = [deploying()]
    events: list[RunEvent] = []
    asked: list[Approval] = []
    async with harness.gateway(lease_s=15.0) as gateway:
        async for message in gateway.stream("Deploy?"):
            events.append(message.event)
            if message.event.HasField("approval_requested"):
                asked.append(message.event.approval_requested.approval)
                if asked[-1].kind == APPROVAL_KIND_OUTCOME_UNKNOWN:
                    instructing = respond(gateway, asked[-1], APPROVE, None, "but quickly")
                    error = await refusal(instructing)
                    assert [each.field for each in error.violations] == ["instructions"]
                await respond(gateway, asked[-1], decisions[len(asked) - 1], None)
    return events, asked


async def test_it_is_done_again_if_the_person_says_so(harness: Harness) -> None:
    agent = LosingAgent(side_effect=SIDE_EFFECT_CLASS_IRREVERSIBLE)
    events, (first, second) = await run(harness, agent, APPROVE, APPROVE)
    assert (first.kind, second.kind) == (APPROVAL_KIND_PROPOSED, APPROVAL_KIND_OUTCOME_UNKNOWN)
    assert second.actions == first.actions
    assert "The other side is gone." in second.task_description
    assert second.task_description.endswith("deploy shop 1.2")
    assert agent.landed == {"deploy shop 1.2": 2}
    assert len({effect.idempotency_key for effect in agent.effects}) == 1
    assert not result_of(events, "a").error.type
    assert "run_finished" in kinds(events)


async def test_it_is_left_as_it_is_if_the_person_says_so(harness: Harness) -> None:
    agent = LosingAgent(side_effect=SIDE_EFFECT_CLASS_IRREVERSIBLE)
    events, asked = await run(harness, agent, APPROVE, DENY)
    assert len(asked) == 2
    assert agent.landed == {"deploy shop 1.2": 1}
    result = result_of(events, "a")
    assert result.error.type == "OutcomeUnknown"
    assert [performed.outcome_unknown for performed in result.performed_actions] == [True]


def sender(make: Any, effect: int = SIDE_EFFECT_CLASS_IRREVERSIBLE) -> RawAgent:
    """An agent with a tool that acts without an approval."""
    agent = RawAgent("sender", make)
    agent.card.tools.append(Tool(name="send", side_effect=effect))
    return agent


async def gone(context: Any) -> AsyncIterator[ExecuteResponse]:
    """Acts, and is gone before it could say so."""
    yield ExecuteResponse(trace=TraceBatch())
    await context.abort(grpc.StatusCode.UNAVAILABLE, "gone after acting")


async def silent(context: Any) -> AsyncIterator[ExecuteResponse]:
    """Acts, and says nothing."""
    yield ExecuteResponse(trace=TraceBatch())


async def late_refusal(context: Any) -> AsyncIterator[ExecuteResponse]:
    """Begins, and only then says that it may not."""
    yield ExecuteResponse(trace=TraceBatch())
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not allowed")


async def refused(context: Any) -> AsyncIterator[ExecuteResponse]:
    """Does not even begin."""
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not allowed")
    yield ExecuteResponse()


def nonsense(context: Any) -> AgentResult:
    """Acts, and answers with an invalid result."""
    result = success()
    result.start_time.seconds = 10**15
    return result


@pytest.mark.parametrize(
    ("make", "effect", "reported"),
    [
        (gone, SIDE_EFFECT_CLASS_IRREVERSIBLE, "OutcomeUnknown"),
        (gone, SIDE_EFFECT_CLASS_IDEMPOTENT, "Unavailable"),
        (silent, SIDE_EFFECT_CLASS_IRREVERSIBLE, "OutcomeUnknown"),
        (nonsense, SIDE_EFFECT_CLASS_IRREVERSIBLE, "OutcomeUnknown"),
        (nonsense, SIDE_EFFECT_CLASS_IDEMPOTENT, "AgentProtocolError"),
        (late_refusal, SIDE_EFFECT_CLASS_IRREVERSIBLE, "OutcomeUnknown"),
        (refused, SIDE_EFFECT_CLASS_IRREVERSIBLE, "PermissionDenied"),
    ],
)
async def test_broken_call_may_have_acted_unless_it_never_started(
    harness: Harness, make: Any, effect: int, reported: str
) -> None:
    agent = await add_raw_agent(harness, sender(make, effect))
    harness.planner.steps = [step("a", "sender")]
    async with harness.gateway() as gateway:
        events = await gateway.events("Send it?")
    error = result_of(events, "a").error
    assert error.type == reported
    assert ("may have been done" in error.message) is (reported == "OutcomeUnknown")
    # Only what cannot double anything is sent again, and no nonsense is asked for twice.
    again = effect == SIDE_EFFECT_CLASS_IDEMPOTENT and make is not nonsense
    assert len(agent.inputs) == (3 if again else 1)


async def test_idempotent_action_is_repeated_without_asking(harness: Harness) -> None:
    agent = LosingAgent(side_effect=SIDE_EFFECT_CLASS_IDEMPOTENT)
    events, asked = await run(harness, agent, APPROVE)
    assert [approval.kind for approval in asked] == [APPROVAL_KIND_PROPOSED]
    assert not result_of(events, "a").error.type
    assert len(agent.effects) == 2
    assert len({effect.idempotency_key for effect in agent.effects}) == 1


@asynccontextmanager
async def served_at(agent: DeployAgent, port: int) -> AsyncIterator[None]:
    settings = AgentServiceSettings(
        server=ServerSettings(port=port, grace_s=0.2), auth=AuthSettings()
    )
    async with agent_service(settings, Telemetry.for_tests("deploy"), agent):
        yield


async def run_while_away(
    harness: Harness, agent: DeployAgent, *, comes_back: bool, timeout_s: float
) -> tuple[list[RunEvent], list[Approval]]:
    """All events of a run whose agent is away from its proposal on, and the requests to people."""
    port = free_port()
    harness.agent_targets["deploy"] = f"127.0.0.1:{port}"
    harness.planner.steps = [deploying()]
    events: list[RunEvent] = []
    asked: list[Approval] = []
    async with AsyncExitStack() as back:
        first = AsyncExitStack()
        await first.enter_async_context(served_at(agent, port))
        async with harness.gateway() as gateway:
            async for message in gateway.stream("Deploy?", timeout=timedelta(seconds=timeout_s)):
                events.append(message.event)
                if message.event.HasField("approval_requested"):
                    asked.append(message.event.approval_requested.approval)
                    await first.aclose()
                    await respond(gateway, asked[-1], APPROVE, None)
                attempts = kinds_of_all(events).count("step_started")
                if comes_back and attempts == 3 and message.event.HasField("step_started"):
                    await back.enter_async_context(served_at(agent, port))
    return events, asked


def kinds_of_all(events: list[RunEvent]) -> list[str | None]:
    return [event.WhichOneof("event") for event in events]


async def test_unsent_action_is_performed_once_its_agent_is_back(harness: Harness) -> None:
    agent = DeployAgent(side_effect=SIDE_EFFECT_CLASS_IRREVERSIBLE)
    events, asked = await run_while_away(harness, agent, comes_back=True, timeout_s=120)
    assert [approval.kind for approval in asked] == [APPROVAL_KIND_PROPOSED]
    assert agent.landed == {"deploy shop 1.2": 1}
    assert not result_of(events, "a").error.type


async def test_unsent_action_is_reported_as_not_done_at_the_deadline(harness: Harness) -> None:
    agent = DeployAgent(side_effect=SIDE_EFFECT_CLASS_IRREVERSIBLE)
    events, asked = await run_while_away(harness, agent, comes_back=False, timeout_s=6)
    assert [approval.kind for approval in asked] == [APPROVAL_KIND_PROPOSED]
    assert agent.landed == {}
    error = result_of(events, "a").error
    assert error.type == "Unavailable"
    assert "may have been done" not in error.message
    assert kinds_of_all(events).count("step_started") > 3
