"""Groups and roles open nothing of another's, but what a request for approval says they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from isolation_cases import NAMING, RPCS, named, references_of_ada, request, ways, whats_of_ada
from isolation_harness import SECRET

if TYPE_CHECKING:
    from isolation_harness import IsolationHarness
    from public_rpcs import PublicRpc

pytestmark = [pytest.mark.isolation, pytest.mark.asyncio(loop_scope="module")]

KINDS: dict[str, dict[str, Any]] = {
    "other group": {"roles": ["user"], "groups": ["hr"]},
    "group of hers": {"roles": ["user"], "groups": ["crew"]},
    "operator": {"roles": ["user", "operator"], "groups": []},
    "administrator": {"roles": ["user", "administrator"], "groups": []},
    "group called like a role": {"roles": ["user"], "groups": ["approver", "role:approver"]},
}
"""What eve's tokens say of her; none of it makes anything of ada's hers."""
APPROVERS: dict[str, dict[str, Any]] = {
    "approver": {"roles": ["user", "approver"], "groups": []},
    "finance": {"roles": ["user"], "groups": ["finance"]},
}
"""Who may see what ada is asked, and no more of hers than that."""


def of(name: str) -> PublicRpc:
    (rpc,) = [rpc for rpc in RPCS if rpc.name == name]
    return rpc


@named([rpc for rpc in NAMING if rpc.name != "ApprovalService.GetApproval"])
@pytest.mark.parametrize("kind", {**KINDS, **APPROVERS})
async def test_no_group_and_no_role_finds_what_is_anothers(
    kind: str, rpc: PublicRpc, harness: IsolationHarness
) -> None:
    token = harness.token(**{**KINDS, **APPROVERS}[kind])
    for field in references_of_ada(rpc):
        made_up = await ways(harness, rpc, request(rpc, **{field: str(uuid4())}), token)
        for value in whats_of_ada(harness, field):
            answers = await ways(harness, rpc, request(rpc, **{field: value}), token)
            for way, answer in answers.items():
                assert answer.shape == made_up[way].shape, way
                assert answer.code in ("NOT_FOUND", "PERMISSION_DENIED"), way


@pytest.mark.parametrize("kind", APPROVERS)
async def test_approvers_see_the_request_and_neither_its_run_nor_anything_else(
    kind: str, harness: IsolationHarness
) -> None:
    token = harness.token(**APPROVERS[kind])
    get, listed = of("ApprovalService.GetApproval"), of("ApprovalService.ListApprovals")
    asked = get.message(approval_id=harness.approval_id)
    for way, answer in (await ways(harness, get, asked, token)).items():
        assert (answer.code, SECRET in answer.content) == ("OK", True), way
    for way, answer in (await ways(harness, listed, listed.message(), token)).items():
        assert (answer.code, harness.approval_id in answer.content) == ("OK", True), way
    runs = of("OrchestratorService.ListRuns")
    for way, answer in (await ways(harness, runs, runs.message(), token)).items():
        assert (answer.code, SECRET in answer.content) == ("OK", False), way


@pytest.mark.parametrize("kind", KINDS)
async def test_the_request_is_hidden_from_other_users(kind: str, harness: IsolationHarness) -> None:
    token, get = harness.token(**KINDS[kind]), of("ApprovalService.GetApproval")
    listed = of("ApprovalService.ListApprovals")
    for way, answer in (await ways(harness, listed, listed.message(), token)).items():
        assert (answer.code, harness.approval_id in answer.content) == ("OK", False), way
    hers, made_up = (get.message(approval_id=each) for each in (harness.approval_id, str(uuid4())))
    answers, expected = (
        await ways(harness, get, hers, token),
        await ways(harness, get, made_up, token),
    )
    for way, answer in answers.items():
        assert answer.code == "NOT_FOUND", way
        assert answer.shape == expected[way].shape, way


async def test_agents_of_another_group_are_not_there(harness: IsolationHarness) -> None:
    agents = of("OrchestratorService.ListAgents")
    for groups, seen in ((["crew"], True), (["hr"], False), ([], False)):
        token = harness.token(roles=["user"], groups=groups)
        for way, answer in (await ways(harness, agents, agents.message(), token)).items():
            assert (answer.code, "deploy" in answer.content) == ("OK", seen), way
