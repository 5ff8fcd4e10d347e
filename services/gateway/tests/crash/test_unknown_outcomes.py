"""An approved action with unknown outcome: the user is asked once more."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import grpc
import pytest
from gateway_harness.answering import APPROVE, DENY, Following, refusal, respond
from gateway_harness.harness import Harness, deploying, kinds, result_of
from gateway_harness.raw_agents import RawAgent, success

from bos.agent.v1 import (
    SIDE_EFFECT_CLASS_IDEMPOTENT,
    SIDE_EFFECT_CLASS_IRREVERSIBLE,
    AgentResult,
    ExecuteResponse,
    Tool,
    TraceBatch,
)
from bos.gateway.v1 import (
    APPROVAL_KIND_OUTCOME_UNKNOWN,
    APPROVAL_KIND_PROPOSED,
    Approval,
    RunEvent,
)
from bos_agentkit import AgentServiceSettings, ToolContext, agent_service
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import Unavailable
from bos_testkit.deploy import DeployAgent
from bos_testkit.processes import free_port
from bos_testkit.waiting import eventually


class LosingAgent(DeployAgent):
    """Does what it may, and the first time its other side is gone before it could say so."""

    def _land(self, label: str, context: ToolContext) -> None:
        super()._land(label, context)
        if len(self.effects) == 1:
            raise Unavailable("The other side is gone.")


async def run(
    harness: Harness, agent: DeployAgent, *decisions: int
) -> tuple[list[RunEvent], list[Approval]]:
    """All events of a run whose requests are answered so, one after the other, and the requests."""
    await harness.plan(agent)
    harness.planner.steps = [deploying()]
    async with harness.gateway() as gateway:
        following = Following(gateway)
        for number, decision in enumerate(decisions, 1):
            approval = await following.asked(number)
            if approval.kind == APPROVAL_KIND_OUTCOME_UNKNOWN:
                error = await refusal(respond(gateway, approval, APPROVE, "but quickly"))
                assert [each.field for each in error.violations] == ["instructions"]
            await respond(gateway, approval, decision)
        return await following.end(), following.requests


@pytest.mark.parametrize(
    ("comes_back", "timeout_s"), [(True, 120), (False, 6)], ids=["back", "deadline"]
)
async def test_unsent_action_is_performed_once_its_agent_is_back_or_reported_as_not_done(
    harness: Harness, comes_back: bool, timeout_s: float
) -> None:
    """The agent is away from its proposal on."""
    agent, port = DeployAgent(side_effect=SIDE_EFFECT_CLASS_IRREVERSIBLE), free_port()
    harness.agent_targets["deploy"] = f"127.0.0.1:{port}"
    harness.planner.steps = [deploying()]
    async with AsyncExitStack() as first, AsyncExitStack() as back:
        await first.enter_async_context(served_at(agent, port))
        async with harness.gateway() as gateway:
            following = Following(gateway, timeout=timedelta(seconds=timeout_s))
            approval = await following.asked()
            await first.aclose()
            await respond(gateway, approval, APPROVE)
            if comes_back:
                await eventually(lambda: attempts(following.events) >= 3)
                await back.enter_async_context(served_at(agent, port))
            events = await following.end()
    assert [approval.kind for approval in following.requests] == [APPROVAL_KIND_PROPOSED]
    assert agent.landed == ({"deploy shop 1.2": 1} if comes_back else {})
    error = result_of(events, "a").error
    assert error.type == ("" if comes_back else "Unavailable")
    assert "may have been done" not in error.message
    assert attempts(events) > (2 if comes_back else 3)


def attempts(events: list[RunEvent]) -> int:
    return [event.WhichOneof("event") for event in events].count("step_started")


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


async def gone(context: Any) -> AsyncIterator[ExecuteResponse]:
    """Acts, and is gone before it could say so."""
    yield ExecuteResponse(trace=TraceBatch())
    await context.abort(grpc.StatusCode.UNAVAILABLE, "gone after acting")


async def silent(context: Any) -> AsyncIterator[ExecuteResponse]:
    yield ExecuteResponse(trace=TraceBatch())


async def late_refusal(context: Any) -> AsyncIterator[ExecuteResponse]:
    """Begins, and only then says that it may not."""
    yield ExecuteResponse(trace=TraceBatch())
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not allowed")


async def refused(context: Any) -> AsyncIterator[ExecuteResponse]:
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not allowed")
    yield ExecuteResponse()


def nonsense(context: Any) -> AgentResult:
    """Acts, and answers with an invalid result."""
    result = success()
    result.start_time.seconds = 10**15
    return result


async def test_broken_call_may_have_acted_unless_it_never_started(harness: Harness) -> None:
    cases = [
        (gone, SIDE_EFFECT_CLASS_IRREVERSIBLE, "OutcomeUnknown"),
        (gone, SIDE_EFFECT_CLASS_IDEMPOTENT, "Unavailable"),
        (silent, SIDE_EFFECT_CLASS_IRREVERSIBLE, "OutcomeUnknown"),
        (nonsense, SIDE_EFFECT_CLASS_IRREVERSIBLE, "OutcomeUnknown"),
        (nonsense, SIDE_EFFECT_CLASS_IDEMPOTENT, "AgentProtocolError"),
        (late_refusal, SIDE_EFFECT_CLASS_IRREVERSIBLE, "OutcomeUnknown"),
        (refused, SIDE_EFFECT_CLASS_IRREVERSIBLE, "PermissionDenied"),
    ]
    agents = [RawAgent(f"sender{number}", make) for number, (make, *_) in enumerate(cases)]
    for agent, (_, effect, _) in zip(agents, cases, strict=True):
        agent.card.tools.append(Tool(name="send", side_effect=effect))
    await harness.plan(*agents)
    async with harness.gateway() as gateway:
        events = await gateway.events("Send it?")
    for number, (agent, (make, effect, reported)) in enumerate(zip(agents, cases, strict=True)):
        case = (make.__name__, effect)
        error = result_of(events, chr(97 + number)).error
        assert error.type == reported, case
        assert ("may have been done" in error.message) is (reported == "OutcomeUnknown"), case
        # Only what cannot double anything is sent again, and no nonsense is asked for twice.
        again = effect == SIDE_EFFECT_CLASS_IDEMPOTENT and make is not nonsense
        assert len(agent.inputs) == (3 if again else 1), case


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
