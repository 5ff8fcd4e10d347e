"""Eve calls every public RPC on what ada has: over gRPC, streams and REST she finds nothing.

The calls are made from the contracts. An RPC whose request names something by an id that
``isolation_cases`` does not know, or that cannot be called with what it says there, fails until
somebody has thought about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from isolation_cases import (
    ADMINISTRATION,
    NAMING,
    OTHERS,
    RPCS,
    named,
    references_of_ada,
    request,
    traces_of_ada,
    ways,
    whats_of_ada,
)
from isolation_harness import FILE, FILE_NAME, HELD

if TYPE_CHECKING:
    from isolation_harness import IsolationHarness, Person
    from public_rpcs import PublicRpc

_UNDER_WAY = ("ACCEPTED", "PLANNED", "EXECUTING", "COMPOSING")

pytestmark = [pytest.mark.isolation, pytest.mark.asyncio(loop_scope="module")]


@named(NAMING)
@pytest.mark.requirement("R-08")
async def test_what_belongs_to_another_looks_like_what_does_not_exist(
    rpc: PublicRpc, harness: IsolationHarness
) -> None:
    eve, ada = harness.people["eve"], harness.people["ada"]
    shapes = set()
    for field in references_of_ada(rpc):
        made_up = await ways(harness, rpc, request(rpc, **{field: str(uuid4())}), eve.access_token)
        for value in whats_of_ada(harness, field):
            answers = await ways(harness, rpc, request(rpc, **{field: value}), eve.access_token)
            assert len(answers) == 1 + len(rpc.bindings)
            for way, answer in answers.items():
                assert answer.shape == made_up[way].shape, way
                shapes.add(answer.shape)
    assert len(shapes) == 1
    # Accounts can be named by administrators alone, whether they exist or not.
    refusal = "PERMISSION_DENIED" if "user_id" in rpc.references else "NOT_FOUND"
    assert {code for code, *_ in shapes} == {refusal}
    assert await _still_there(harness, ada)


@named(ADMINISTRATION)
async def test_administration_needs_the_administrator_role(
    rpc: PublicRpc, harness: IsolationHarness
) -> None:
    eve = harness.people["eve"]
    named_ones = {field: whats_of_ada(harness, field)[0] for field in references_of_ada(rpc)}
    shapes = set()
    for values in (named_ones, {field: str(uuid4()) for field in named_ones}):
        message = request(rpc, **values)
        for way, answer in (await ways(harness, rpc, message, eve.access_token)).items():
            assert answer.shape[:2] == ("PERMISSION_DENIED", "ROLE_REQUIRED"), way
            assert traces_of_ada(harness, answer.content, said=str(message)) == [], way
            shapes.add(answer.shape)
    assert len(shapes) == 1


@named([rpc for rpc in NAMING if rpc.method.name in ("GetRun", "WatchRun")])
async def test_the_owner_is_answered_in_every_way(
    rpc: PublicRpc, harness: IsolationHarness
) -> None:
    for value in whats_of_ada(harness, "run_id"):
        answers = await ways(
            harness, rpc, request(rpc, run_id=value), harness.people["ada"].access_token
        )
        assert {way for way, answer in answers.items() if answer.code != "OK"} == set()
        assert all(answer.content for answer in answers.values())


async def test_the_owner_of_a_file_gets_it_in_every_way(harness: IsolationHarness) -> None:
    (rpc,) = [rpc for rpc in NAMING if rpc.name == "OrchestratorService.DownloadFile"]
    answers = await ways(
        harness, rpc, request(rpc, run_id=harness.runs["ended"]), harness.people["ada"].access_token
    )
    assert len(answers) == 2
    assert all(FILE.decode() in answer.content for answer in answers.values())


async def test_the_owner_of_a_workspace_gets_its_file_in_every_way(
    harness: IsolationHarness,
) -> None:
    (rpc,) = [rpc for rpc in NAMING if rpc.name == "FileService.DownloadFile"]
    answers = await ways(
        harness, rpc, request(rpc, name=FILE_NAME), harness.people["ada"].access_token
    )
    assert len(answers) == 2
    assert all("of the workspace." in answer.content for answer in answers.values())


@named(
    [rpc for rpc in NAMING if rpc.method.name in ("Ask", "AskStream", "SubmitRun", "PlanQuestion")]
)
async def test_only_a_run_that_asked_can_be_replied_to_and_by_its_owner_in_every_way(
    rpc: PublicRpc, harness: IsolationHarness
) -> None:
    for which, code in (("asking", "OK"), ("ended", "FAILED_PRECONDITION")):
        reply = request(rpc, request__continues_run_id=harness.runs[which])
        reply.request.conversation_id = ""
        answers = await ways(harness, rpc, reply, harness.people["ada"].access_token)
        assert {answer.code for answer in answers.values()} == {code}


PASSWORD_FIRST = ("IdentityService.ChangePassword", "AccountService.DeleteAccount")


@named([rpc for rpc in OTHERS if rpc.name not in PASSWORD_FIRST])
async def test_nothing_of_another_is_in_any_answer(
    rpc: PublicRpc, harness: IsolationHarness
) -> None:
    message = request(rpc)
    for way, answer in (
        await ways(harness, rpc, message, harness.people["eve"].access_token)
    ).items():
        # A request that is refused for its form proves nothing.
        tried = ["OK", "UNAUTHENTICATED", "ALREADY_EXISTS", "PERMISSION_DENIED"]
        if rpc.name.startswith("OpenIdService."):
            tried.append("FAILED_PRECONDITION")  # this harness has no provider
        if rpc.name == "ConnectionService.DeleteConnection":
            tried.append("NOT_FOUND")  # eve has none of this kind; ada does
        assert answer.code in tried, (way, answer)
        assert traces_of_ada(harness, answer.content, said=str(message)) == [], way


async def test_wrong_present_password_reveals_nothing_of_another_user(
    harness: IsolationHarness,
) -> None:
    for rpc in (each for each in RPCS if each.name in PASSWORD_FIRST):
        answers = await ways(harness, rpc, request(rpc), harness.people["eve"].access_token)
        assert {answer.code for answer in answers.values()} == {"INVALID_ARGUMENT"}


async def test_lists_hold_ones_own_and_nothing_else(harness: IsolationHarness) -> None:
    lists = [
        rpc
        for rpc in OTHERS
        if rpc.method.name
        in (
            *("ListDocuments", "ListFiles", "ListRuns", "ListApprovals"),
            *("ListSessions", "ListApiKeys", "GetUser"),
        )
    ]
    assert len(lists) == 7
    for rpc in lists:
        for name, person in harness.people.items():
            for way, answer in (
                await ways(harness, rpc, rpc.message(), person.access_token)
            ).items():
                assert answer.code == "OK", way
                assert bool(traces_of_ada(harness, answer.content)) == (name == "ada"), way


@pytest.mark.requirement("R-08")
async def test_memory_holds_ones_own_and_nothing_else(harness: IsolationHarness) -> None:
    reads = ("ListConversations", "GetLongTermMemory")
    found = [rpc for rpc in OTHERS if rpc.method.name in reads]
    assert len(found) == len(reads)
    for rpc in found:
        for name, person in harness.people.items():
            for way, answer in (
                await ways(harness, rpc, rpc.message(), person.access_token)
            ).items():
                assert answer.code == "OK", way
                assert bool(traces_of_ada(harness, answer.content)) == (name == "ada"), way


async def test_the_same_request_id_of_two_people_is_two_runs(harness: IsolationHarness) -> None:
    eve = harness.people["eve"]
    run_id, call = await harness.ask(eve, "What about me?", "request-2")
    call.cancel()
    assert run_id not in harness.runs.values()


async def test_what_eve_does_leaves_adas_run_under_way(harness: IsolationHarness) -> None:
    assert await _still_there(harness, harness.people["ada"])


async def _still_there(harness: IsolationHarness, ada: Person) -> bool:
    """Whether ada's session is open and her run not cancelled."""
    get_run = next(rpc for rpc in RPCS if rpc.name == "OrchestratorService.GetRun")
    run = await harness.grpc(
        get_run, get_run.message(run_id=harness.runs["under way"]), ada.access_token
    )
    get_user = next(rpc for rpc in RPCS if rpc.name == "IdentityService.GetUser")
    me = await harness.grpc(get_user, get_user.message(), ada.access_token)
    under_way = any(f"status: RUN_STATUS_{each}" in run.content for each in _UNDER_WAY)
    return HELD in run.content and under_way and me.code == "OK"
