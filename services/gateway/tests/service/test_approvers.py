"""Who answers beside the asker: by role and group; under four eyes never the asker alone."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from gateway_harness.answering import APPROVE, DENY, asked, get, listed, refusal, respond
from gateway_harness.callers import bearer, signed_in, token
from gateway_harness.harness import Harness
from gateway_harness.stored import log_of
from identity_harness import Caller, Starter

from bos.gateway.v1 import (
    APPROVAL_STATUS_APPROVED,
    APPROVAL_STATUS_DENIED,
    APPROVAL_STATUS_PENDING,
    ListApprovalsRequest,
)
from bos.identity.v1 import LogOutRequest, SetUserRolesRequest
from bos_chassis.settings import AuthSettings
from bos_gateway.run_log.reader import READER
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import acquire, for_user, open_database
from bos_testkit.deploy import DeployAgent
from bos_testkit.waiting import eventually

ASKER = token("ada", "pilots")
APPROVER = token("max", roles=("user", "approver"))
FINANCE = token("fin", "finance")
RULE = {"deploy.trigger_*": {"roles": ["approver"], "groups": ["finance"]}}
FOUR_EYES = {"deploy.trigger_*": {**RULE["deploy.trigger_*"], "four_eyes": True}}


@pytest.fixture
async def agent(harness: Harness) -> DeployAgent:
    return await harness.plan_deployment()


@pytest.fixture
def auth(tmp_path: Path) -> AuthSettings:
    return signed_in(tmp_path)


async def test_a_role_or_a_group_answers_in_the_askers_place(
    harness: Harness, agent: DeployAgent, auth: AuthSettings
) -> None:
    async with harness.gateway(auth=auth, approvers=RULE) as gateway:
        approver, asker = gateway.by(APPROVER), gateway.by(ASKER)
        approval = await asked(asker)
        assert list(approval.approvers.roles) == ["approver"]
        assert list(approval.approvers.groups) == ["finance"]
        (shown,) = await listed(approver, status=APPROVAL_STATUS_PENDING)
        assert shown.actions[0].summary == "Deploy shop 1.2"
        assert (await refusal(approver.run(approval.run_id))).code is grpc.StatusCode.NOT_FOUND
        answered = await respond(approver, approval, APPROVE)
        assert (answered.status, answered.decided_by) == (APPROVAL_STATUS_APPROVED, "max")
        await eventually(lambda: len(agent.effects) == 1)
        for caller in (approver, asker):
            assert (await get(caller, approval)).decided_by == "max"
    log = await log_of(harness.dsn)
    (resolved,) = [e.approval_resolved for e in log if e.HasField("approval_resolved")]
    assert resolved.approval.decided_by == "max"


async def test_without_a_rule_the_asker_alone_answers(
    harness: Harness, agent: DeployAgent, auth: AuthSettings
) -> None:
    other = {"deploy.rollback_deployment": RULE["deploy.trigger_*"]}
    async with harness.gateway(auth=auth, approvers=other) as gateway:
        asker = gateway.by(ASKER)
        approval = await asked(asker)
        assert not approval.HasField("approvers")
        for caller in (gateway.by(APPROVER), gateway.by(FINANCE)):
            assert await listed(caller) == []
            error = await refusal(respond(caller, approval, APPROVE))
            assert error.code is grpc.StatusCode.NOT_FOUND
        stripped = gateway.by(token("ada", "pilots", roles=()))
        error = await refusal(respond(stripped, approval, APPROVE))
        assert error.reason == "ROLE_REQUIRED"
        assert (await respond(stripped, await asked(asker), DENY)).decided_by == "ada"
        assert (await respond(asker, approval, APPROVE)).decided_by == "ada"
        await eventually(lambda: len(agent.effects) == 1)


async def test_under_four_eyes_the_asker_may_deny_and_not_approve(
    harness: Harness, agent: DeployAgent, auth: AuthSettings
) -> None:
    """Not even one who is an approver of other people's requests."""
    async with harness.gateway(auth=auth, approvers=FOUR_EYES) as gateway:
        asker = gateway.by(ASKER)
        both = gateway.by(token("ada", "finance", roles=("user", "approver")))
        first, second = await asked(asker), await asked(asker)
        assert first.approvers.four_eyes
        for caller in (asker, both):
            error = await refusal(respond(caller, first, APPROVE))
            assert (error.code, error.reason) == (grpc.StatusCode.PERMISSION_DENIED, "FOUR_EYES")
            assert "approver, finance" in error.message
        assert (await get(asker, first)).status == APPROVAL_STATUS_PENDING
        assert (await respond(both, second, DENY)).status == APPROVAL_STATUS_DENIED
        assert agent.effects == []
        assert (await respond(gateway.by(FINANCE), first, APPROVE)).decided_by == "fin"
        await eventually(lambda: len(agent.effects) == 1)


async def test_who_may_answer_is_fixed_when_it_is_asked(
    harness: Harness, agent: DeployAgent, auth: AuthSettings
) -> None:
    """Another gateway, with other settings, judges by what the request says."""
    async with harness.gateway(auth=auth, approvers=FOUR_EYES) as gateway:
        strict = await asked(gateway.by(ASKER))
    async with harness.gateway(auth=auth, approvers={}) as gateway:
        lax = await asked(gateway.by(ASKER))
        error = await refusal(respond(gateway.by(ASKER), strict, APPROVE))
        assert error.reason == "FOUR_EYES"
        assert (await respond(gateway.by(APPROVER), strict, APPROVE)).decided_by == "max"
        # A gateway that stops meanwhile would leave it unknown whether the action was performed.
        await eventually(lambda: len(agent.effects) == 1)
    async with harness.gateway(auth=auth, approvers=FOUR_EYES) as gateway:
        shown = await listed(gateway.by(APPROVER))
        assert [each.approval_id for each in shown] == [strict.approval_id]
        assert (await respond(gateway.by(ASKER), lax, APPROVE)).decided_by == "ada"
        await eventually(lambda: len(agent.effects) == 2)


@pytest.mark.usefixtures("agent")
async def test_lists_hold_own_and_shared_requests_once_each_in_pages(
    harness: Harness, auth: AuthSettings
) -> None:
    async with harness.gateway(auth=auth, approvers=RULE) as gateway:
        approver = gateway.by(APPROVER)
        made = [await asked(gateway.by(each)) for each in (ASKER, APPROVER, ASKER)]
        newest_first = [each.approval_id for each in reversed(made)]
        found, page_token = [], ""
        for _ in made:
            request = ListApprovalsRequest(page_size=1, page_token=page_token)
            answer = await approver.call(request)
            found += [each.approval_id for each in answer.approvals]
            page_token = answer.next_page_token
        assert (found, page_token) == (newest_first, "")
        await respond(gateway.by(ASKER), made[0], DENY)
        pending = await listed(approver, status=APPROVAL_STATUS_PENDING)
        assert [each.approval_id for each in pending] == newest_first[:2]


@pytest.mark.usefixtures("agent")
async def test_row_security_hides_approvals_from_other_users(
    harness: Harness, auth: AuthSettings
) -> None:
    async with harness.gateway(auth=auth, approvers=RULE) as gateway:
        await asked(gateway.by(ASKER))
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


@pytest.fixture
async def identity(harness: Harness, stack: AsyncExitStack) -> Caller:
    return await Starter(stack, harness.dsn)()


def by_identity(identity: Caller) -> dict[str, Any]:
    auth = AuthSettings.load(issuer="bos-identity", identity_target=identity.address)
    return {"auth": auth, "approvers": {"deploy.*": {"roles": ["approver"]}}}


async def test_ended_session_approves_nothing_with_a_valid_token(
    harness: Harness, agent: DeployAgent, identity: Caller
) -> None:
    await identity.administrator()
    ended, open_one = await identity.log_in("root"), await identity.log_in("root")
    async with harness.gateway(**by_identity(identity)) as gateway:
        former = gateway.by(bearer(ended.tokens.access_token))
        approval = await asked(former)
        refresh_token = ended.tokens.refresh_token
        await identity.call("LogOut", LogOutRequest(refresh_token=refresh_token))
        error = await refusal(respond(former, approval, APPROVE))
        assert error.code is grpc.StatusCode.UNAUTHENTICATED
        assert (await get(former, approval)).status == APPROVAL_STATUS_PENDING
        assert agent.effects == []
        present = gateway.by(bearer(open_one.tokens.access_token))
        assert (await respond(present, approval, APPROVE)).status == APPROVAL_STATUS_APPROVED
        await eventually(lambda: len(agent.effects) == 1)


async def test_former_approver_approves_nothing_with_an_old_token(
    harness: Harness, agent: DeployAgent, identity: Caller
) -> None:
    root = await identity.administrator()
    max_ = await identity.invited(root, "max", roles=["user", "approver"])
    token_of_max = (await identity.log_in("max")).tokens.access_token
    async with harness.gateway(**by_identity(identity)) as gateway:
        approver = gateway.by(bearer(token_of_max))
        approval = await asked(gateway.by(bearer(root)))
        change = SetUserRolesRequest(user_id=max_.user_id, roles=["user"])
        await identity.call("SetUserRoles", change, root)
        error = await refusal(respond(approver, approval, APPROVE))
        assert error.code is grpc.StatusCode.NOT_FOUND
        assert agent.effects == []
        change = SetUserRolesRequest(user_id=max_.user_id, roles=["user", "approver"])
        await identity.call("SetUserRoles", change, root)
        assert (await respond(approver, approval, APPROVE)).decided_by == max_.user_id
        await eventually(lambda: len(agent.effects) == 1)


async def test_without_identity_nothing_is_decided(
    harness: Harness, agent: DeployAgent, identity: Caller, stack: AsyncExitStack
) -> None:
    token_of_root = await identity.administrator()
    async with harness.gateway(**by_identity(identity)) as gateway:
        root = gateway.by(bearer(token_of_root))
        approval = await asked(root)
        await stack.aclose()
        error = await refusal(respond(root, approval, APPROVE))
        assert error.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        assert (await get(root, approval)).status == APPROVAL_STATUS_PENDING
    assert agent.effects == []
