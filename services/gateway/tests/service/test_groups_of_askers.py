"""What members of groups are offered and sent: cards, plans, steps and tools, on a real gateway."""

from pathlib import Path
from typing import Any

import pytest
from gateway_harness.answering import refusal
from gateway_harness.callers import signed_in, token
from gateway_harness.harness import Client, Harness

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_FAILED,
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    AgentResult,
)
from bos.gateway.v1 import APPROVAL_DECISION_APPROVE as APPROVE
from bos.gateway.v1 import (
    RUN_STATUS_SUCCEEDED,
    AgentRequest,
    ApprovalServiceStub,
    AskRequest,
    AskStreamRequest,
    GetRunRequest,
    ListAgentsRequest,
    PlanQuestionRequest,
    RespondApprovalRequest,
    WatchRunRequest,
)
from bos_agentkit import AgentTask, agent_card, failed, succeeded
from bos_chassis.auth.access import AccessSettings
from bos_chassis.auth.callers import current_principal, generate_keypair
from bos_chassis.settings import AuthSettings
from bos_chassis.values import from_value
from bos_gateway.run_log.session import SCHEMA
from bos_plans import HEURISTIC, HEURISTIC_CONFIDENCE
from bos_postgres import connect
from bos_testkit.agents import EchoAgent, RecordingAgent
from bos_testkit.deploy import DeployAgent
from bos_testkit.plans import step

GROUPS = {
    "analysts": {"agents": ["sql"], "tools": ["*"], "tables": {"company": ["orders"]}},
    "crew": {"agents": ["deploy"], "tools": ["deploy.check_*"]},
    "pilots": {"agents": ["deploy"], "tools": ["deploy.*"]},
}
EVERYBODY = {"agents": ["echo"]}


def rules(**changes: Any) -> AccessSettings:
    return AccessSettings.load(**{"groups": GROUPS, "everybody": EVERYBODY, **changes})


def asked(question: str = "What is new?", **request: Any) -> AskRequest:
    return AskRequest(request=AgentRequest(question=question, **request))


async def ask(gateway: Client, caller: Any, **request: Any) -> Any:
    return (await gateway.stub.Ask(asked(**request), timeout=60, metadata=caller)).response


@pytest.fixture
async def agents(harness: Harness) -> dict[str, RecordingAgent]:
    """echo for everybody, sql and deploy for some."""
    made = {"echo": EchoAgent("echo"), "sql": EchoAgent("sql"), "deploy": DeployAgent()}
    for agent in made.values():
        await harness.add_agent(agent)
    return made


@pytest.mark.usefixtures("agents")
async def test_users_see_what_their_groups_may_use_and_no_more(
    harness: Harness, tmp_path: Path
) -> None:
    async with harness.gateway(auth=signed_in(tmp_path), access=rules()) as gateway:

        async def seen(caller: Any) -> dict[str, int]:
            answer = await gateway.stub.ListAgents(ListAgentsRequest(), metadata=caller, timeout=30)
            return {each.card.name: len(each.card.tools) for each in answer.agents}

        assert await seen(token("ada", "analysts")) == {"echo": 0, "sql": 0}
        assert await seen(token("bob", "crew")) == {"echo": 0, "deploy": 1}
        assert await seen(token("bob", "pilots", "unheard-of")) == {"echo": 0, "deploy": 3}
        assert await seen(token("eve")) == {"echo": 0}
        answer = await gateway.stub.ListAgents(
            ListAgentsRequest(), metadata=token("ada", "analysts", "unheard-of"), timeout=30
        )
    assert (list(answer.roles), list(answer.groups)) == (["user"], ["analysts"])
    assert [(each.database, list(each.tables)) for each in answer.tables] == [
        ("company", ["orders"])
    ]


async def test_the_planner_is_offered_what_the_asker_may_use(
    harness: Harness, agents: dict[str, RecordingAgent], tmp_path: Path
) -> None:
    harness.planner.steps = [step("a", "sql")]
    harness.planner.revisions = [[step("b", "echo")]]

    async def behave(task: AgentTask) -> AgentResult:
        return failed(task, type="QueryError", message="no such column")

    agents["sql"].behave = behave  # type: ignore[method-assign]
    async with harness.gateway(auth=signed_in(tmp_path), access=rules()) as gateway:
        plan = PlanQuestionRequest(request=AgentRequest(question="What is new?"))
        await gateway.stub.PlanQuestion(plan, timeout=30, metadata=token("ada", "analysts"))
        await ask(gateway, token("ada", "analysts"))
    assert len(harness.planner.requests) == 3  # dry run, first plan, revision
    for request in harness.planner.requests:
        assert [card.name for card in request.cards] == ["echo", "sql"]


async def test_a_plan_with_a_hidden_agent_is_none(
    harness: Harness, agents: dict[str, RecordingAgent], tmp_path: Path
) -> None:
    """Plans of every origin."""
    harness.planner.steps = [step("a", "sql")]
    async with harness.gateway(auth=signed_in(tmp_path), access=rules()) as gateway:
        response = await ask(gateway, token("eve"))
        plan = PlanQuestionRequest(request=AgentRequest(question="What is new?"))
        dry = await gateway.stub.PlanQuestion(plan, timeout=30, metadata=token("eve"))
        member = await ask(gateway, token("ada", "analysts"))
    assert response.planner.confidence == HEURISTIC_CONFIDENCE
    assert dry.plan.origin == HEURISTIC
    assert not response.agent_results
    assert not dry.plan.steps
    assert member.status == RUN_STATUS_SUCCEEDED
    assert len(agents["sql"].inputs) == 1


@pytest.mark.usefixtures("agents")
async def test_hidden_agents_are_as_unknown_or_unavailable_as_others(
    harness: Harness, tmp_path: Path
) -> None:
    async with harness.gateway(auth=signed_in(tmp_path), access=rules()) as gateway:
        error = await refusal(ask(gateway, token("eve"), prefer_agents=["deploy"]))
        response = await ask(gateway, token("eve"), prefer_agents=["sql", "mail"])
    assert error.message.endswith('"deploy" is not an agent; the agents are echo')
    absent = from_value(response.planner.guardrails["unavailable_agents"])
    assert absent == ["sql", "mail"]
    assert "sql" not in response.metadata.agents


@pytest.mark.usefixtures("agents")
async def test_user_who_may_use_no_agent_is_refused(harness: Harness, tmp_path: Path) -> None:
    access = rules(everybody={})
    async with harness.gateway(auth=signed_in(tmp_path), access=access) as gateway:
        refused = await refusal(gateway.stub.Ask(asked(), timeout=30, metadata=token("eve")))
        plan = PlanQuestionRequest(request=AgentRequest(question="What is new?"))
        dry = await refusal(gateway.stub.PlanQuestion(plan, timeout=30, metadata=token("eve")))
        assert (refused.reason, dry.reason) == ("NO_AGENT_ALLOWED", "NO_AGENT_ALLOWED")
        harness.planner.steps = [step("a", "sql")]
        assert (await ask(gateway, token("ada", "analysts"))).status == RUN_STATUS_SUCCEEDED


@pytest.mark.usefixtures("agents")
async def test_asking_needs_the_role_of_a_user(harness: Harness, tmp_path: Path) -> None:
    harness.planner.steps = [step("a", "echo")]
    async with harness.gateway(auth=signed_in(tmp_path)) as gateway:
        known = await ask(gateway, token("ada", roles=("user",)))
        for roles in ((), ("approver", "operator", "administrator")):
            caller = token("ada", roles=roles)
            stream = AskStreamRequest(request=AgentRequest(question="What is new?"))
            calls = (
                gateway.stub.Ask(asked(), timeout=30, metadata=caller),
                gateway.stub.AskStream(stream, timeout=30, metadata=caller).read(),
                gateway.stub.PlanQuestion(
                    PlanQuestionRequest(request=AgentRequest(question="?")),
                    timeout=30,
                    metadata=caller,
                ),
            )
            for call in calls:
                error = await refusal(call)
                assert (error.reason, error.metadata["role"]) == ("ROLE_REQUIRED", "user")
            get = GetRunRequest(run_id=known.run_id)  # what was asked before is still theirs
            assert await gateway.stub.GetRun(get, timeout=30, metadata=caller)


async def test_withheld_tool_is_not_offered_sent_or_proposed(
    harness: Harness, agents: dict[str, RecordingAgent], tmp_path: Path
) -> None:
    """A step that lists no tools leaves an agent its own choice; a member's leaves it its own."""
    deploy = agents["deploy"]
    harness.planner.steps = [step("a", "deploy", "look at shop")]
    async with harness.gateway(auth=signed_in(tmp_path), access=rules()) as gateway:
        assert (await ask(gateway, token("bob", "crew"))).status == RUN_STATUS_SUCCEEDED
        assert (await ask(gateway, token("pia", "pilots"))).status == RUN_STATUS_SUCCEEDED
        assert [list(given.tools) for given in deploy.inputs] == [["check_deploy_status"], []]
        offered = [
            [tool.name for tool in card.tools]
            for request in harness.planner.requests
            for card in request.cards
            if card.name == "deploy"
        ]
        assert [len(tools) for tools in offered] == [1, 3]
        harness.planner.steps[0].tools.append("trigger_deployment")
        forged = await ask(gateway, token("bob", "crew"))
        assert not forged.agent_results
    assert len(deploy.inputs) == 2


async def test_step_is_not_sent_once_access_to_its_agent_is_revoked(
    harness: Harness, agents: dict[str, RecordingAgent], tmp_path: Path
) -> None:
    """The plan was made, and approved, while it still was allowed."""
    made = step("a", "deploy", "deploy shop 1.2")
    made.tools.extend(["trigger_deployment", "check_deploy_status"])
    harness.planner.steps = [made]
    caller = token("pia", "pilots")
    slow_lease = {"lease_s": 15.0, "lease_renewal_s": 1.0}
    async with harness.gateway(auth=signed_in(tmp_path), access=rules(), **slow_lease) as gateway:
        stream = AskStreamRequest(request=AgentRequest(question="Deploy?"))
        call = gateway.stub.AskStream(stream, timeout=60, metadata=caller)
        async for message in call:
            if message.event.HasField("approval_requested"):
                approval = message.event.approval_requested.approval
                break
    changed = rules(groups={**GROUPS, "pilots": GROUPS["crew"]})
    async with harness.gateway(auth=signed_in(tmp_path), access=changed, **slow_lease) as gateway:
        respond = RespondApprovalRequest(approval_id=approval.approval_id, decision=APPROVE)
        await ApprovalServiceStub(gateway.channel).RespondApproval(
            respond, timeout=60, metadata=caller
        )
        results = {}
        watch = WatchRunRequest(run_id=approval.run_id)
        async for message in gateway.stub.WatchRun(watch, timeout=60, metadata=caller):
            if message.event.HasField("step_finished"):
                finished = message.event.step_finished
                results[finished.step_id] = finished.result
    assert results["a"].status == AGENT_EXECUTION_STATUS_FAILED
    assert results["a"].error.type == "PermissionDenied"
    assert "deploy.trigger_deployment" in results["a"].error.message
    deploy = agents["deploy"]
    assert isinstance(deploy, DeployAgent)
    assert deploy.effects == []
    assert len(deploy.inputs) == 1


async def test_run_tokens_name_groups_that_operator_has_defined(
    harness: Harness, tmp_path: Path
) -> None:
    private, public = generate_keypair()
    seen = []

    class Looking(RecordingAgent):
        async def behave(self, task: AgentTask) -> AgentResult:
            principal = current_principal()
            assert principal is not None
            seen.append((principal.user_id, principal.groups, principal.roles))
            return succeeded(task, answer="seen")

    inside = AuthSettings.load(run_token_public_keys=public)
    await harness.add_agent(Looking("echo"), auth=inside)
    harness.planner.steps = [step("a", "echo")]
    settings = {"auth": signed_in(tmp_path), "access": rules(), "run_token_private_key": private}
    async with harness.gateway(**settings) as gateway:
        caller = token("ada", "analysts", "unheard-of", roles=("user", "approver"))
        assert (await ask(gateway, caller)).status == RUN_STATUS_SUCCEEDED
    assert seen == [("ada", {"analysts"}, frozenset())]


async def test_credentials_for_a_hidden_agent_are_in_no_log(
    harness: Harness, tmp_path: Path
) -> None:
    card = agent_card("sql", "Has a key.", secret_context_keys=["ledger"])
    await harness.add_agent(EchoAgent("echo"))
    await harness.add_agent(EchoAgent("sql", card=card))
    harness.planner.steps = [step("a", "echo")]
    request = asked()
    request.request.context.update({"ledger": "hunter2-of-the-ledger"})
    async with harness.gateway(auth=signed_in(tmp_path), access=rules()) as gateway:
        answer = await gateway.stub.Ask(request, timeout=60, metadata=token("eve"))
        assert answer.response.agent_results[0].status == AGENT_EXECUTION_STATUS_SUCCEEDED
    async with connect(harness.dsn, schema=SCHEMA) as connection:
        rows = await connection.fetch("SELECT payload FROM run_events")
    assert rows
    assert not any(b"hunter2" in row["payload"] for row in rows)
