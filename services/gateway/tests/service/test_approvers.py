"""Who answers beside the asker: by role and group; under four eyes never the asker alone."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from gateway_harness.answering import approvals, asked, get, refusal, respond, seen_by
from gateway_harness.callers import signed_in, token
from gateway_harness.harness import Client, Harness
from identity_harness import Caller, Starter

from bos.gateway.v1 import (
    APPROVAL_DECISION_APPROVE,
    APPROVAL_DECISION_DENY,
    APPROVAL_STATUS_APPROVED,
    APPROVAL_STATUS_DENIED,
    APPROVAL_STATUS_PENDING,
    GetRunRequest,
    ListApprovalsRequest,
)
from bos.identity.v1 import LogOutRequest, SetUserRolesRequest
from bos.runlog.v1 import LogEvent
from bos_chassis.settings import AuthSettings
from bos_gateway.run_log.reader import READER
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import acquire, connect, for_user, open_database
from bos_testkit.deploy import DeployAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

APPROVE, DENY = APPROVAL_DECISION_APPROVE, APPROVAL_DECISION_DENY
ASKER = token("ada", "pilots")
APPROVER = token("max", roles=("user", "approver"))
FINANCE = token("fin", "finance")
RULE = {"deploy.trigger_*": {"roles": ["approver"], "groups": ["finance"]}}
ROLE = {"deploy.*": {"roles": ["approver"]}}
FOUR_EYES = {"deploy.trigger_*": {**RULE["deploy.trigger_*"], "four_eyes": True}}


@pytest.fixture
async def agent(harness: Harness) -> DeployAgent:
    agent = DeployAgent()
    await harness.add_agent(agent)
    made = step("a", "deploy", "deploy shop 1.2")
    made.tools.extend(["check_deploy_status", "trigger_deployment"])
    harness.planner.steps = [made]
    return agent


def gateway_with(
    harness: Harness, folder: Path, approvers: dict[str, Any]
) -> AbstractAsyncContextManager[Client]:
    return harness.gateway(
        auth=signed_in(folder), approvers=approvers, lease_s=15.0, lease_renewal_s=1.0
    )


async def test_a_role_or_a_group_answers_in_the_askers_place(
    harness: Harness, agent: DeployAgent, tmp_path: Path
) -> None:
    who, user = APPROVER, "max"
    async with gateway_with(harness, tmp_path, RULE) as gateway:
        approval = await asked(gateway, ASKER)
        assert list(approval.approvers.roles) == ["approver"]
        assert list(approval.approvers.groups) == ["finance"]
        (listed,) = await seen_by(gateway, who, status=APPROVAL_STATUS_PENDING)
        assert listed.actions[0].summary == "Deploy shop 1.2"
        run = gateway.stub.GetRun(GetRunRequest(run_id=approval.run_id), metadata=who)
        assert (await refusal(run)).code is grpc.StatusCode.NOT_FOUND
        answered = await respond(gateway, approval, APPROVE, who)
        assert (answered.status, answered.decided_by) == (APPROVAL_STATUS_APPROVED, user)
        await eventually(lambda: len(agent.effects) == 1)
        for caller in (who, ASKER):
            assert (await get(gateway, approval, caller)).decided_by == user
    async with connect(harness.dsn, schema=SCHEMA) as connection:
        rows = await connection.fetch("SELECT payload FROM run_events ORDER BY sequence")
    events = [LogEvent.FromString(row["payload"]) for row in rows]
    (resolved,) = [e.approval_resolved for e in events if e.HasField("approval_resolved")]
    assert resolved.approval.decided_by == user


async def test_without_a_rule_the_asker_alone_answers(
    harness: Harness, agent: DeployAgent, tmp_path: Path
) -> None:
    other = {"deploy.rollback_deployment": RULE["deploy.trigger_*"]}
    async with gateway_with(harness, tmp_path, other) as gateway:
        approval = await asked(gateway, ASKER)
        assert not approval.HasField("approvers")
        for caller in (APPROVER, FINANCE):
            assert await seen_by(gateway, caller) == []
            error = await refusal(respond(gateway, approval, APPROVE, caller))
            assert error.code is grpc.StatusCode.NOT_FOUND
        stripped = token("ada", "pilots", roles=())
        error = await refusal(respond(gateway, approval, APPROVE, stripped))
        assert error.reason == "ROLE_REQUIRED"
        denied = await respond(gateway, await asked(gateway, ASKER), DENY, stripped)
        assert denied.decided_by == "ada"
        assert (await respond(gateway, approval, APPROVE, ASKER)).decided_by == "ada"
        await eventually(lambda: len(agent.effects) == 1)


async def test_under_four_eyes_the_asker_may_deny_and_not_approve(
    harness: Harness, agent: DeployAgent, tmp_path: Path
) -> None:
    """Not even one who is an approver of other people's requests."""
    both = token("ada", "finance", roles=("user", "approver"))
    async with gateway_with(harness, tmp_path, FOUR_EYES) as gateway:
        first, second = await asked(gateway, ASKER), await asked(gateway, ASKER)
        assert first.approvers.four_eyes
        for caller in (ASKER, both):
            error = await refusal(respond(gateway, first, APPROVE, caller))
            assert (error.code, error.reason) == (grpc.StatusCode.PERMISSION_DENIED, "FOUR_EYES")
            assert "approver, finance" in error.message
        assert (await get(gateway, first, ASKER)).status == APPROVAL_STATUS_PENDING
        assert (await respond(gateway, second, DENY, both)).status == APPROVAL_STATUS_DENIED
        assert agent.effects == []
        assert (await respond(gateway, first, APPROVE, FINANCE)).decided_by == "fin"
        await eventually(lambda: len(agent.effects) == 1)


async def test_who_may_answer_is_fixed_when_it_is_asked(
    harness: Harness, agent: DeployAgent, tmp_path: Path
) -> None:
    """Another gateway, with other settings, judges by what the request says."""
    async with gateway_with(harness, tmp_path, FOUR_EYES) as gateway:
        strict = await asked(gateway, ASKER)
    async with gateway_with(harness, tmp_path, {}) as gateway:
        lax = await asked(gateway, ASKER)
        error = await refusal(respond(gateway, strict, APPROVE, ASKER))
        assert error.reason == "FOUR_EYES"
        assert (await respond(gateway, strict, APPROVE, APPROVER)).decided_by == "max"
    async with gateway_with(harness, tmp_path, FOUR_EYES) as gateway:
        assert [each.approval_id for each in await seen_by(gateway, APPROVER)] == [
            strict.approval_id
        ]
        assert (await respond(gateway, lax, APPROVE, ASKER)).decided_by == "ada"
        await eventually(lambda: len(agent.effects) == 2)


@pytest.mark.usefixtures("agent")
async def test_lists_hold_own_and_shared_requests_once_each_in_pages(
    harness: Harness, tmp_path: Path
) -> None:
    async with gateway_with(harness, tmp_path, RULE) as gateway:
        made = [
            await asked(gateway, ASKER),
            await asked(gateway, APPROVER),
            await asked(gateway, ASKER),
        ]
        newest_first = [each.approval_id for each in reversed(made)]
        found, page_token = [], ""
        for _ in made:
            request = ListApprovalsRequest(page_size=1, page_token=page_token)
            answer = await approvals(gateway).ListApprovals(request, timeout=30, metadata=APPROVER)
            found += [each.approval_id for each in answer.approvals]
            page_token = answer.next_page_token
        assert (found, page_token) == (newest_first, "")
        await respond(gateway, made[0], DENY, ASKER)
        pending = await seen_by(gateway, APPROVER, status=APPROVAL_STATUS_PENDING)
        assert [each.approval_id for each in pending] == newest_first[:2]


@pytest.mark.usefixtures("agent")
async def test_row_security_hides_approvals_from_other_users(
    harness: Harness, tmp_path: Path
) -> None:
    async with gateway_with(harness, tmp_path, RULE) as gateway:
        approval = await asked(gateway, ASKER)
    careless = for_user("SELECT approval_id::text FROM approvals", "bos.member_of")
    async with (
        open_database(harness.dsn, schema=SCHEMA, max_size=1, role=READER) as readers,
        acquire(readers) as connection,
    ):

        async def seen(user: str, *names: str) -> int:
            return len(await connection.fetch(careless, user, "\x1f".join(names)))

        assert await seen("ada") == 1
        assert await seen("max", "role:user", "role:approver") == 1
        assert await seen("fin", "group:finance") == 1
        for names in ((), ("role:user",), ("group:approver",), ("role:finance",), ("",)):
            assert await seen("eve", *names) == 0
        assert await seen("", "role:approver") == 0
        assert await connection.fetch("SELECT 1 FROM approvals") == []
        assert approval.approval_id


# Sessions and roles at the time of the answer


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """What identity lives in; closing it ends identity."""
    async with AsyncExitStack() as opened:
        yield opened


@pytest.fixture
async def identity(harness: Harness, stack: AsyncExitStack) -> Caller:
    return await Starter(stack, harness.dsn)()


def gateway_of(harness: Harness, identity: Caller) -> AbstractAsyncContextManager[Client]:
    auth = AuthSettings.load(issuer="bos-identity", identity_target=identity.address)
    return harness.gateway(auth=auth, approvers=ROLE, lease_s=15.0, lease_renewal_s=1.0)


def by(access_token: str) -> Any:
    return (("authorization", f"Bearer {access_token}"),)


async def test_ended_session_approves_nothing_with_a_valid_token(
    harness: Harness, agent: DeployAgent, identity: Caller
) -> None:
    await identity.administrator()
    ended, open_one = await identity.log_in("root"), await identity.log_in("root")
    former, present = by(ended.tokens.access_token), by(open_one.tokens.access_token)
    async with gateway_of(harness, identity) as gateway:
        approval = await asked(gateway, former)
        refresh_token = ended.tokens.refresh_token
        await identity.call("LogOut", LogOutRequest(refresh_token=refresh_token))
        error = await refusal(respond(gateway, approval, APPROVE, former))
        assert error.code is grpc.StatusCode.UNAUTHENTICATED
        assert (await get(gateway, approval, former)).status == APPROVAL_STATUS_PENDING
        assert agent.effects == []
        answered = await respond(gateway, approval, APPROVE, present)
        assert answered.status == APPROVAL_STATUS_APPROVED
        await eventually(lambda: len(agent.effects) == 1)


async def test_former_approver_approves_nothing_with_an_old_token(
    harness: Harness, agent: DeployAgent, identity: Caller
) -> None:
    root = await identity.administrator()
    max_ = await identity.invited(root, "max", roles=["user", "approver"])
    approver = by((await identity.log_in("max")).tokens.access_token)
    async with gateway_of(harness, identity) as gateway:
        approval = await asked(gateway, by(root))
        change = SetUserRolesRequest(user_id=max_.user_id, roles=["user"])
        await identity.call("SetUserRoles", change, root)
        error = await refusal(respond(gateway, approval, APPROVE, approver))
        assert error.code is grpc.StatusCode.NOT_FOUND
        assert agent.effects == []
        change = SetUserRolesRequest(user_id=max_.user_id, roles=["user", "approver"])
        await identity.call("SetUserRoles", change, root)
        assert (await respond(gateway, approval, APPROVE, approver)).decided_by == max_.user_id
        await eventually(lambda: len(agent.effects) == 1)


async def test_without_identity_nothing_is_decided(
    harness: Harness, agent: DeployAgent, identity: Caller, stack: AsyncExitStack
) -> None:
    root = by(await identity.administrator())
    async with gateway_of(harness, identity) as gateway:
        approval = await asked(gateway, root)
        await stack.aclose()
        error = await refusal(respond(gateway, approval, APPROVE, root))
        assert error.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        assert (await get(gateway, approval, root)).status == APPROVAL_STATUS_PENDING
    assert agent.effects == []
