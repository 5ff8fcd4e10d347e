from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from google.protobuf import json_format
from pydantic import BaseModel, Field

from bos.agent.v1 import (
    AgentInput,
    AgentResult,
    ApprovalContext,
    ProposedAction,
    SideEffectClass,
    TaskMetadata,
)
from bos_agentkit import Agent, AgentTask, ApprovalNeeded, ToolContext, agent_card, tool
from bos_agentkit.agent import check_tools
from bos_agentkit.failures import AgentFailure
from bos_chassis.values import from_value_map, to_value_map
from bos_errors import (
    ConfigurationError,
    InvalidArgument,
    PermissionDenied,
    Unavailable,
)

NONE = SideEffectClass.SIDE_EFFECT_CLASS_NONE


class Line(BaseModel):
    item: str
    price: Decimal


class DeployAgent(Agent):
    """Agent with safe and protected tools."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.error: Exception | None = None

    @tool(description="Looks.", side_effect=NONE)
    async def check_status(
        self,
        service: str,
        detail: Literal["short", "long"] = "short",
        limit: Annotated[int, Field(ge=1)] = 3,
    ) -> str:
        self.calls.append(("check_status", service, detail, limit))
        return f"{service} is up"

    @tool(description="Deploys.", requires_approval=True, summary="Deploy {service} v{version}")
    async def deploy(
        self,
        service: str,
        version: int,
        context: ToolContext,
        lines: tuple[Line, ...] = (),
        on: date | None = None,
    ) -> dict[str, Any]:
        self.calls.append(("deploy", service, version, context.idempotency_key, lines, on))
        if self.error is not None:
            raise self.error
        return {"deployed": service}

    @tool(description="Notes.", side_effect=SideEffectClass.SIDE_EFFECT_CLASS_IDEMPOTENT)
    async def note(self, text: str) -> None:
        self.calls.append(("note", text))

    card = agent_card("deploy", "Deploys services.", tools=[check_status, deploy, note])

    async def execute(self, task: AgentTask) -> AgentResult:
        return AgentResult()


def task(agent: Agent, **input: Any) -> AgentTask:
    metadata = TaskMetadata(user_id="u", step_key="run/0/s")
    return AgentTask(
        AgentInput(task="t", metadata=metadata, **input),
        agent=agent.card.name,
        tools=agent.all_tools(),
    )


def approved(*actions: ProposedAction) -> ApprovalContext:
    return ApprovalContext(approved_actions=actions)


async def proposed(agent: Agent, **arguments: Any) -> ProposedAction:
    with pytest.raises(ApprovalNeeded) as caught:
        await task(agent, tools=["deploy"]).tools.call("deploy", **arguments)
    return caught.value.action


@pytest.mark.requirement("S-03")
def test_the_card_of_a_tool_comes_from_its_signature() -> None:
    card = DeployAgent.check_status.card
    assert json_format.MessageToDict(card.input_schema) == {
        "type": "object",
        "additionalProperties": False,
        "required": ["service"],
        "properties": {
            "service": {"type": "string"},
            "detail": {"type": "string", "enum": ["short", "long"], "default": "short"},
            "limit": {"type": "integer", "minimum": 1, "default": 3},
        },
    }
    assert "context" not in dict(DeployAgent.deploy.card.input_schema)["properties"]
    assert DeployAgent.deploy.card.requires_approval
    assert not card.requires_approval


async def test_a_free_tool_is_called_with_checked_arguments() -> None:
    agent = DeployAgent()
    assert await task(agent).tools.call("check_status", service="api", limit="7") == "api is up"
    assert agent.calls == [("check_status", "api", "short", 7)]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({}, "check_status.service"),
        ({"service": "api", "detail": "huge"}, "check_status.detail"),
        ({"service": "api", "surprise": 1}, "check_status.surprise"),
    ],
)
async def test_invalid_arguments_are_refused_by_name(arguments: dict[str, Any], field: str) -> None:
    agent = DeployAgent()
    with pytest.raises(InvalidArgument) as caught:
        await task(agent).tools.call("check_status", **arguments)
    assert [violation.field for violation in caught.value.violations] == [field]
    assert agent.calls == []


@pytest.mark.requirement("R-06", "M-02")
async def test_an_empty_list_allows_every_tool_that_needs_no_approval() -> None:
    box = task(DeployAgent()).tools
    assert [card.name for card in box.allowed] == ["check_status", "note"]
    with pytest.raises(PermissionDenied, match="deploy"):
        await box.call("deploy", service="api", version=1)


@pytest.mark.requirement("R-06")
async def test_a_tool_outside_the_list_is_refused() -> None:
    agent = DeployAgent()
    box = task(agent, tools=["deploy"]).tools
    assert [card.name for card in box.allowed] == ["deploy"]
    for name in ("check_status", "unknown"):
        with pytest.raises(PermissionDenied, match=name):
            await box.call(name, service="api")
    assert agent.calls == []


@pytest.mark.requirement("M-01", "S-10")
async def test_a_protected_tool_is_proposed_and_not_called() -> None:
    agent = DeployAgent()
    action = await proposed(agent, service="api", version=2)
    assert agent.calls == []
    assert action.summary == "Deploy api v2"
    assert from_value_map(action.arguments) == {
        "service": "api",
        "version": 2,
        "lines": [],
        "on": None,
    }
    assert action.action_id == (await proposed(agent, service="api", version=2)).action_id


async def test_exactly_the_approved_action_is_performed_once() -> None:
    agent = DeployAgent()
    lines = [{"item": "a", "price": Decimal("1.50")}]
    action = await proposed(agent, service="api", version=2, lines=lines, on="2026-01-31")
    step = task(agent, tools=["deploy"], approval_context=approved(action))
    assert await step.tools.perform(action) == {"deployed": "api"}
    key = f"run/0/s/{action.action_id}"
    assert agent.calls == [
        ("deploy", "api", 2, key, (Line(item="a", price=Decimal("1.50")),), date(2026, 1, 31))
    ]
    (performed,) = step.tools.performed
    assert performed.action == action
    assert from_value_map(performed.result) == {"deployed": "api"}
    assert step.tools.irreversible_dispatched
    for again in (step, task(agent, tools=["deploy"])):
        with pytest.raises(PermissionDenied, match="not one that was approved"):
            await again.tools.perform(action)
    assert len(agent.calls) == 1


async def test_the_same_action_approved_twice_is_performed_twice() -> None:
    agent = DeployAgent()
    box = task(agent, tools=["deploy"]).tools
    twins = [box.propose("deploy", {"service": "api", "version": 2}) for _ in range(2)]
    assert twins[0].digest == twins[1].digest
    assert twins[0].action_id != twins[1].action_id
    step = task(agent, tools=["deploy"], approval_context=approved(*twins))
    for action in twins:
        await step.tools.perform(action)
    assert len({call[3] for call in agent.calls}) == 2


async def test_only_a_call_equal_to_an_approved_action_is_performed() -> None:
    agent = DeployAgent()
    action = await proposed(agent, service="api", version=2)
    box = task(agent, tools=["deploy"], approval_context=approved(action)).tools
    with pytest.raises(ApprovalNeeded):
        await box.call("deploy", service="api", version=3)
    await box.call("deploy", service="api", version=2)
    with pytest.raises(ApprovalNeeded):
        await box.call("deploy", service="api", version=2)
    assert len(agent.calls) == 1


async def test_changed_arguments_under_an_approved_digest_are_refused() -> None:
    agent = DeployAgent()
    action = await proposed(agent, service="api", version=2)
    forged = ProposedAction()
    forged.CopyFrom(action)
    forged.arguments.CopyFrom(
        to_value_map({"service": "db", "version": 2, "lines": [], "on": None})
    )
    step = task(agent, tools=["deploy"], approval_context=approved(forged))
    with pytest.raises(PermissionDenied) as caught:
        await step.tools.perform(forged)
    assert caught.value.reason == "ACTION_NOT_APPROVED"
    assert agent.calls == []


@pytest.mark.requirement("M-02")
async def test_an_approval_does_not_extend_the_list_of_tools() -> None:
    agent = DeployAgent()
    action = await proposed(agent, service="api", version=2)
    for tools in ([], ["check_status"]):
        step = task(agent, tools=tools, approval_context=approved(action))
        with pytest.raises(PermissionDenied, match="does not allow"):
            await step.tools.perform(action)
    assert agent.calls == []


async def test_a_tool_that_changed_since_the_approval_is_refused() -> None:
    agent = DeployAgent()
    arguments = to_value_map({"service": "api", "version": 2})  # from before `lines` and `on`
    old = ProposedAction(action_id="a", tool="deploy", arguments=arguments)
    old.digest = "sha256:" + "0" * 64
    step = task(agent, tools=["deploy"], approval_context=approved(old))
    with pytest.raises(PermissionDenied):
        await step.tools.perform(old)
    assert agent.calls == []


@pytest.mark.parametrize(
    ("error", "unknown"),
    [
        (Unavailable("gone"), True),
        (AgentFailure("QuotaError", "no"), False),
        (AgentFailure("OutcomeUnknown", "perhaps", outcome_unknown=True), True),
    ],
)
async def test_an_ambiguous_error_is_an_unknown_outcome(error: Exception, unknown: bool) -> None:
    agent = DeployAgent()
    action = await proposed(agent, service="api", version=2)
    agent.error = error
    step = task(agent, tools=["deploy"], approval_context=approved(action))
    with pytest.raises(type(error)):
        await step.tools.perform(action)
    assert [performed.outcome_unknown for performed in step.tools.performed] == [True] * unknown


@pytest.mark.parametrize(
    ("side_effect", "dispatched"),
    [
        (None, True),
        (SideEffectClass.SIDE_EFFECT_CLASS_IRREVERSIBLE, True),
        (SideEffectClass.SIDE_EFFECT_CLASS_IDEMPOTENT, False),
    ],
)
async def test_a_proposal_may_state_the_class_of_its_own_call(
    side_effect: SideEffectClass | None, dispatched: bool
) -> None:
    """Where the destination recognises the key, another attempt does not double the effect."""
    agent = DeployAgent()
    planner = task(agent, tools=["deploy"])
    arguments = {"service": "api", "version": 2}
    action = planner.tools.propose("deploy", arguments, side_effect=side_effect)
    declared = DeployAgent.deploy.card.side_effect
    assert action.side_effect == (declared if side_effect is None else side_effect)
    assert action.digest == planner.tools.propose("deploy", arguments).digest
    step = task(agent, tools=["deploy"], approval_context=approved(action))
    await step.tools.perform(action)
    assert step.tools.irreversible_dispatched is dispatched


async def test_on_a_tainted_step_every_side_effect_needs_approval() -> None:
    agent = DeployAgent()
    step = task(agent)
    await step.tools.call("note", text="clean")
    step.taint()
    await step.tools.call("check_status", service="api")
    with pytest.raises(ApprovalNeeded) as caught:
        await step.tools.call("note", text="tainted")
    assert caught.value.action.tainted
    assert [call[0] for call in agent.calls] == ["note", "check_status"]
    assert not step.tools.irreversible_dispatched


def test_functions_that_cannot_be_tools_are_refused() -> None:
    def blocking(a: int) -> int:
        return a

    async def untyped(a) -> int:  # type: ignore[no-untyped-def]  # noqa: ANN001
        return int(a)

    async def variadic(*a: int) -> int:
        return len(a)

    async def hidden(a: "Missing") -> int:  # noqa: F821
        return 0

    async def fine(a: int) -> int:
        return a

    for function, problem in (
        (blocking, "must be async"),
        (untyped, "a has no annotation"),
        (variadic, "a cannot be passed by name"),
        (hidden, "not under TYPE_CHECKING"),
    ):
        with pytest.raises(TypeError, match=problem):
            tool(description="")(function)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="names no parameter"):
        tool(description="", summary="{b}")(fine)


@tool(description="Adds.", side_effect=NONE)
async def add(a: int, b: int) -> int:
    return a + b


@pytest.mark.requirement("S-03")
async def test_a_plain_function_can_be_a_tool_of_several_agents() -> None:
    class Adder(DeployAgent):
        tools = (add,)
        card = agent_card("adder", "Adds.", tools=[add])

    class Summer(DeployAgent):
        tools = (add,)
        card = agent_card("summer", "Adds, too.", tools=[add])

    for agent in (Adder(), Summer()):
        check_tools(agent)
        assert await task(agent).tools.call("add", a=1, b=2) == 3


@pytest.mark.requirement("S-02", "S-04")
def test_a_card_that_disagrees_with_the_code_is_refused() -> None:
    check_tools(DeployAgent())
    agent = DeployAgent()
    agent.card = agent_card("deploy", "Deploys.", tools=[DeployAgent.deploy, add])
    with pytest.raises(ConfigurationError, match="add, check_status, note"):
        check_tools(agent)
    agent.card = agent_card("deploy", "Deploys.", tools=agent.all_tools())
    agent.card.tools[1].requires_approval = False
    with pytest.raises(ConfigurationError, match="deploy"):
        check_tools(agent)
