"""What members of groups are offered and sent: cards, plans, steps and tools, on a real gateway."""

from pathlib import Path
from typing import Any

import pytest
from gateway_harness.answering import APPROVE, asked, refusal, respond
from gateway_harness.callers import signed_in, token
from gateway_harness.harness import Harness, deploying, result_of
from gateway_harness.stored import log_of

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_FAILED,
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    AgentResult,
)
from bos.gateway.v1 import (
    RUN_STATUS_SUCCEEDED,
    ListAgentsRequest,
)
from bos_agentkit import AgentTask, agent_card, failed, succeeded
from bos_chassis.auth.access import AccessSettings
from bos_chassis.auth.callers import current_principal, generate_keypair
from bos_chassis.settings import AuthSettings
from bos_chassis.values import from_value
from bos_plans import HEURISTIC, HEURISTIC_CONFIDENCE
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


@pytest.fixture
async def agents(harness: Harness) -> dict[str, Any]:
    """echo for everybody, sql and deploy for some."""
    made = {"echo": EchoAgent("echo"), "sql": EchoAgent("sql"), "deploy": DeployAgent()}
    for agent in made.values():
        await harness.add_agent(agent)
    return made


ANALYST, EVE = token("ada", "analysts"), token("eve")


CREW, PILOT = token("bob", "crew"), token("pia", "pilots")


@pytest.mark.usefixtures("agents")
async def test_users_see_what_their_groups_may_use_and_no_more(
    harness: Harness, auth: AuthSettings
) -> None:
    async with harness.gateway(auth=auth, access=rules()) as gateway:

        async def seen(caller: Any) -> dict[str, int]:
            answer = await gateway.by(caller).call(ListAgentsRequest())
            return {each.card.name: len(each.card.tools) for each in answer.agents}

        assert await seen(ANALYST) == {"echo": 0, "sql": 0}
        assert await seen(CREW) == {"echo": 0, "deploy": 1}
        assert await seen(token("bob", "pilots", "unheard-of")) == {"echo": 0, "deploy": 3}
        assert await seen(EVE) == {"echo": 0}
        ada = gateway.by(token("ada", "analysts", "unheard-of"))
        answer = await ada.call(ListAgentsRequest())
    assert (list(answer.roles), list(answer.groups)) == (["user"], ["analysts"])
    assert [(each.database, list(each.tables)) for each in answer.tables] == [
        ("company", ["orders"])
    ]


async def test_the_planner_is_offered_what_the_asker_may_use(
    harness: Harness, agents: dict[str, Any], auth: AuthSettings
) -> None:
    harness.planner.steps = [step("a", "sql")]
    harness.planner.revisions = [[step("b", "echo")]]

    async def behave(task: AgentTask) -> AgentResult:
        return failed(task, type="QueryError", message="no such column")

    agents["sql"].behave = behave
    async with harness.gateway(auth=auth, access=rules()) as gateway:
        await gateway.by(ANALYST).plan()
        await gateway.by(ANALYST).ask()
    assert len(harness.planner.requests) == 3  # dry run, first plan, revision
    for request in harness.planner.requests:
        assert [card.name for card in request.cards] == ["echo", "sql"]


async def test_a_plan_with_a_hidden_agent_is_none(
    harness: Harness, agents: dict[str, Any], auth: AuthSettings
) -> None:
    """Plans of every origin; hidden agents are as unknown or unavailable as others."""
    harness.planner.steps = [step("a", "sql")]
    async with harness.gateway(auth=auth, access=rules()) as gateway:
        eve = gateway.by(EVE)
        response, dry = await eve.ask(prefer_agents=["sql", "mail"]), await eve.plan()
        error = await refusal(eve.ask(prefer_agents=["deploy"]))
        member = await gateway.by(ANALYST).ask()
    assert response.planner.confidence == HEURISTIC_CONFIDENCE
    assert dry.plan.origin == HEURISTIC
    assert not response.agent_results
    assert not dry.plan.steps
    absent = from_value(response.planner.guardrails["unavailable_agents"])
    assert absent == ["sql", "mail"]
    assert "sql" not in response.metadata.agents
    assert error.message.endswith('"deploy" is not an agent; the agents are echo')
    assert member.status == RUN_STATUS_SUCCEEDED
    assert len(agents["sql"].inputs) == 1


@pytest.mark.usefixtures("agents")
async def test_user_who_may_use_no_agent_is_refused(harness: Harness, auth: AuthSettings) -> None:
    async with harness.gateway(auth=auth, access=rules(everybody={})) as gateway:
        for call in (gateway.by(EVE).ask(), gateway.by(EVE).plan()):
            assert (await refusal(call)).reason == "NO_AGENT_ALLOWED"
        harness.planner.steps = [step("a", "sql")]
        assert (await gateway.by(ANALYST).ask()).status == RUN_STATUS_SUCCEEDED


@pytest.mark.usefixtures("agents")
async def test_asking_needs_the_role_of_a_user(harness: Harness, auth: AuthSettings) -> None:
    async with harness.gateway(auth=auth) as gateway:
        known = await gateway.by(token("ada", roles=("user",))).ask()
        for roles in ((), ("approver", "operator", "administrator")):
            caller = gateway.by(token("ada", roles=roles))
            for call in (caller.ask(), caller.stream(), caller.plan()):
                error = await refusal(call)
                assert (error.reason, error.metadata["role"]) == ("ROLE_REQUIRED", "user")
            assert await caller.run(known.run_id)  # what was asked before is still theirs


async def test_withheld_tool_is_not_offered_sent_or_proposed(
    harness: Harness, agents: dict[str, Any], auth: AuthSettings
) -> None:
    """A step that lists no tools leaves an agent its own choice; a member's leaves it its own."""
    deploy = agents["deploy"]
    harness.planner.steps = [step("a", "deploy", "look at shop")]
    async with harness.gateway(auth=auth, access=rules()) as gateway:
        for caller in (CREW, PILOT):
            assert (await gateway.by(caller).ask()).status == RUN_STATUS_SUCCEEDED
        assert [list(given.tools) for given in deploy.inputs] == [["check_deploy_status"], []]
        offered = [
            len(card.tools)
            for request in harness.planner.requests
            for card in request.cards
            if card.name == "deploy"
        ]
        assert offered == [1, 3]
        harness.planner.steps[0].tools.append("trigger_deployment")
        assert not (await gateway.by(CREW).ask()).agent_results
    assert len(deploy.inputs) == 2


async def test_step_is_not_sent_once_access_to_its_agent_is_revoked(
    harness: Harness, agents: dict[str, Any], auth: AuthSettings
) -> None:
    """The plan was made, and approved, while it still was allowed."""
    harness.planner.steps = [deploying()]
    async with harness.gateway(auth=auth, access=rules()) as gateway:
        approval = await asked(gateway.by(PILOT))
    changed = rules(groups={**GROUPS, "pilots": GROUPS["crew"]})
    async with harness.gateway(auth=auth, access=changed) as gateway:
        await respond(gateway.by(PILOT), approval, APPROVE)
        result = result_of(await gateway.by(PILOT).watch(approval.run_id), "a")
    assert (result.status, result.error.type) == (AGENT_EXECUTION_STATUS_FAILED, "PermissionDenied")
    assert "deploy.trigger_deployment" in result.error.message
    assert agents["deploy"].effects == []
    assert len(agents["deploy"].inputs) == 1


async def test_run_tokens_name_groups_that_operator_has_defined(
    harness: Harness, auth: AuthSettings
) -> None:
    private, public = generate_keypair()
    seen = []

    class Looking(RecordingAgent):
        async def behave(self, task: AgentTask) -> AgentResult:
            principal: Any = current_principal()
            seen.append((principal.user_id, principal.groups, principal.roles))
            return succeeded(task, answer="seen")

    inside = AuthSettings.load(run_token_public_keys=public)
    await harness.plan(Looking("echo"), auth=inside)
    settings = {"auth": auth, "access": rules(), "run_token_private_key": private}
    async with harness.gateway(**settings) as gateway:
        caller = gateway.by(token("ada", "analysts", "unheard-of", roles=("user", "approver")))
        assert (await caller.ask()).status == RUN_STATUS_SUCCEEDED
    assert seen == [("ada", {"analysts"}, frozenset())]


async def test_credentials_for_a_hidden_agent_are_in_no_log(
    harness: Harness, auth: AuthSettings
) -> None:
    card = agent_card("sql", "Has a key.", secret_context_keys=["ledger"])
    await harness.add_agent(EchoAgent("sql", card=card))
    await harness.plan(EchoAgent("echo"))
    async with harness.gateway(auth=auth, access=rules()) as gateway:
        answer = await gateway.by(EVE).ask(context={"ledger": "hunter2-of-the-ledger"})
        assert answer.agent_results[0].status == AGENT_EXECUTION_STATUS_SUCCEEDED
    log = await log_of(harness.dsn)
    assert log
    assert not any(b"hunter2" in event.SerializeToString() for event in log)


@pytest.fixture
def auth(tmp_path: Path) -> AuthSettings:
    return signed_in(tmp_path)
