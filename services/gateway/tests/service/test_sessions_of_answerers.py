"""Decisions need a session that is open and roles that are granted at the time of the answer."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import grpc
import pytest
from gateway_harness.answering import asked, get, refusal, respond
from gateway_harness.harness import Client, Harness
from identity_harness import Caller, Starter

from bos.gateway.v1 import (
    APPROVAL_DECISION_APPROVE,
    APPROVAL_STATUS_APPROVED,
    APPROVAL_STATUS_PENDING,
)
from bos.identity.v1 import LogOutRequest, SetUserRolesRequest
from bos_chassis.settings import AuthSettings
from bos_testkit.deploy import DeployAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

APPROVE = APPROVAL_DECISION_APPROVE
RULE = {"deploy.*": {"roles": ["approver"]}}


@pytest.fixture
async def agent(harness: Harness) -> DeployAgent:
    agent = DeployAgent()
    await harness.add_agent(agent)
    made = step("a", "deploy", "deploy shop 1.2")
    made.tools.append("trigger_deployment")
    harness.planner.steps = [made]
    return agent


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
    return harness.gateway(auth=auth, approvers=RULE, lease_s=15.0, lease_renewal_s=1.0)


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
