"""Run tokens of steps: whom they are made out to, that they end with their step, what they open."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import jwt
import pytest
from gateway_harness.answering import refusal
from gateway_harness.callers import bearer
from gateway_harness.harness import Client, Harness
from gateway_harness.ownership_rows import insert_run

from bos.agent.v1 import AgentCard, AgentResult
from bos.gateway.v1 import (
    APPROVAL_DECISION_APPROVE,
    AgentRequest,
    AskRequest,
    AskStreamRequest,
    CancelRunRequest,
    CheckRunTokenRequest,
    DownloadFileRequest,
    GetApprovalRequest,
    GetRunRequest,
    ListAgentsRequest,
    ListApprovalsRequest,
    ListRunsRequest,
    PlanQuestionRequest,
    RespondApprovalRequest,
    WatchRunRequest,
)
from bos_agentkit import AgentTask, agent_card
from bos_chassis.auth.callers import (
    RUN_TOKEN_KEY,
    Attempt,
    Principal,
    RunTokenSigner,
    RunTokenVerifier,
    current_run_token,
    generate_keypair,
)
from bos_chassis.settings import AuthSettings
from bos_errors import ResourceExhausted
from bos_gateway import service
from bos_gateway.ownership.attempt_checks import Attempts
from bos_testkit.agents import SlowAgent
from bos_testkit.plans import step

pytestmark = pytest.mark.security

PRIVATE, PUBLIC = generate_keypair()
# However slow the machine is, no lease runs out by itself.
PATIENT: dict[str, Any] = {"run_token_private_key": PRIVATE, "lease_s": 60, "run_timeout_s": 600}


AUTH = AuthSettings(run_token_public_keys=PUBLIC)
KEY = "a-static-key-of-sixteen"
WANTED = ["gateway", "identity", "memory", "planner", "mcp_db", "sandbox", "other"]


class Holder(SlowAgent):
    """Keeps the token of every attempt, then waits."""

    def __init__(self, name: str, card: AgentCard | None = None) -> None:
        super().__init__(name, card=card)
        self.tokens: list[str] = []

    async def behave(self, task: AgentTask) -> AgentResult:
        self.tokens.append(current_run_token() or "")
        return await super().behave(task)


async def under_way(gateway: Client, token: str) -> bool:
    bearer = gateway.by(((RUN_TOKEN_KEY, token),))
    return bool((await bearer.call(CheckRunTokenRequest())).under_way)


async def test_token_ends_with_its_step_while_the_run_goes_on(harness: Harness) -> None:
    first, second = Holder("first"), Holder("second")
    await harness.plan(first, second, auth=AUTH)
    async with harness.gateway(**PATIENT) as gateway, harness.gateway(**PATIENT) as other:
        call = gateway.stream()
        await first.started.wait()
        await second.started.wait()
        (ended,), (going_on,) = first.tokens, second.tokens
        assert await under_way(gateway, ended)
        assert await under_way(other, ended)  # whichever replica is asked
        first.release.set()
        event = (await call.read()).event
        while event.step_finished.step_id != "a":
            event = (await call.read()).event
        for replica in (gateway, other):
            assert not await under_way(replica, ended)
            assert await under_way(replica, going_on)
        await gateway.cancel(event.run_id)
        while await call.read() is not grpc.aio.EOF:
            pass
        assert not await under_way(other, going_on)


_AS_IT_WAS = "SELECT"
_CASES = [
    (_AS_IT_WAS, True),
    ("UPDATE runs SET finished_at = now()", False),
    ("UPDATE runs SET epoch = epoch + 1", False),
    ("UPDATE runs SET replica_id = NULL", False),
    ("UPDATE replicas SET lease_until = now() - interval '1 millisecond'", False),
    ("UPDATE runs SET user_id = 'eve'", False),
    ("DELETE FROM runs", False),
    ("UPDATE run_events SET sequence = 8", False),
    ("UPDATE run_events SET sequence = 8, step_id = 'another'", True),
    ("UPDATE run_events SET sequence = 8, step_id = NULL", True),
]


async def test_what_ends_an_attempt(pool: Any) -> None:
    replica = uuid4()
    for change, expected in _CASES:
        await pool.execute("TRUNCATE replicas, runs, run_events CASCADE")
        await pool.execute("INSERT INTO replicas VALUES ($1, now() + interval '1 hour')", replica)
        run = await insert_run(pool, replica)
        await pool.execute("UPDATE runs SET epoch = 3, last_sequence = 8")
        # Its own dispatch, which the token knows of.
        await pool.execute(
            "UPDATE run_events SET sequence = 7, kind = 'step_dispatched', epoch = 3, step_id = 'a'"
        )
        await pool.execute(change)
        principal = Principal("u", str(run), f"{run}/0/a", "run_token", attempt=Attempt(3, 7))
        assert await Attempts(pool).under_way(principal) is expected, change
    # What prepares before there is a step goes on while there is the run.
    prepares = Principal("u", str(run), "", "run_token", attempt=Attempt(3, 1))
    assert await Attempts(pool).under_way(prepares)
    await pool.execute("DELETE FROM runs")
    assert not await Attempts(pool).under_way(prepares)


async def test_who_asks_without_end_keeps_no_other_user_waiting(pool: Any) -> None:
    attempts, answered = Attempts(pool), list[str]()

    async def ask(user: str) -> None:
        principal = Principal(user, str(uuid4()), "", "run_token", attempt=Attempt(1, 1))
        assert not await attempts.under_way(principal)
        answered.append(user)

    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("LOCK TABLE runs")  # so that questions have to wait
        greedy = [asyncio.create_task(ask("eve")) for _ in range(110)]
        await asyncio.wait(greedy, return_when=asyncio.FIRST_COMPLETED)
        honest = asyncio.create_task(ask("ada"))
    await honest
    ends = await asyncio.gather(*greedy, return_exceptions=True)
    assert {type(end) for end in ends} == {type(None), ResourceExhausted}
    assert answered.index("ada") < len(answered) / 2


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, ["greedy", "mcp_db", "sandbox"]),
        ({"greedy": ["sandbox"], "*": ["mcp_db"]}, ["greedy", "sandbox"]),
    ],
)
async def test_card_asks_and_the_operator_grants(
    harness: Harness, setting: dict[str, list[str]] | None, expected: list[str]
) -> None:
    card = agent_card("greedy", "Wants all.", downstream_audiences=WANTED)
    agent = Holder("greedy", card=card)
    agent.release.set()
    await harness.add_agent(agent, auth=AUTH)
    await harness.add_agent(SlowAgent("other"), auth=AUTH)
    harness.planner.steps = [step("a", "greedy")]
    more = {} if setting is None else {"agent_audiences": setting}
    async with harness.gateway(**PATIENT, **more) as gateway:
        await gateway.ask()
    claims = jwt.decode(agent.tokens[0], options={"verify_signature": False})
    assert claims["aud"] == expected
    assert claims["use"] == "step"


def everything() -> list[Any]:
    """A request of every method that is for people."""
    run, question = str(uuid4()), AgentRequest(question="What is new?")
    return [
        AskRequest(request=question),
        AskStreamRequest(request=question),
        GetRunRequest(run_id=run),
        ListRunsRequest(),
        WatchRunRequest(run_id=run),
        CancelRunRequest(run_id=run),
        DownloadFileRequest(run_id=run, digest="sha256:" + "0" * 64),
        ListAgentsRequest(),
        PlanQuestionRequest(request=question),
        ListApprovalsRequest(),
        GetApprovalRequest(approval_id=run),
        RespondApprovalRequest(approval_id=run, decision=APPROVAL_DECISION_APPROVE),
    ]


def step_token(**claims: Any) -> str:
    run = str(uuid4())
    given: dict[str, Any] = {"user": "ada", "run": run, "step": f"{run}/0/a", **claims}
    return RunTokenSigner(PRIVATE).mint(audiences=["agent", "gateway"], ttl_s=600, **given)


async def test_servicers_refuse_a_run_token_if_authentication_does_not(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def open_door(*_: Any, **__: Any) -> AsyncIterator[RunTokenVerifier]:
        yield RunTokenVerifier([PUBLIC], "gateway", "step")

    monkeypatch.setattr(service, "open_authenticator", open_door)
    await harness.add_agent(SlowAgent("slow"), auth=AUTH)
    async with harness.gateway(**PATIENT) as gateway:
        agent = gateway.by(((RUN_TOKEN_KEY, step_token()),))
        for request in everything():
            error = await refusal(agent.call(request))
            assert error.code == grpc.StatusCode.PERMISSION_DENIED, request


async def test_only_tokens_of_steps_can_be_checked(harness: Harness) -> None:
    foreign = RunTokenSigner(generate_keypair()[0])
    cases: list[Any] = [
        (),
        bearer(KEY),
        ((RUN_TOKEN_KEY, RunTokenSigner(PRIVATE).mint("ada", "r", "", ["gateway"], 600)),),
        ((RUN_TOKEN_KEY, foreign.mint("ada", "r", "r/0/a", ["agent"], 600)),),
        ((RUN_TOKEN_KEY, RunTokenSigner(PRIVATE, lambda: 1e9).mint("a", "r", "s", ["b"], 60)),),
    ]
    async with harness.gateway(**PATIENT, auth=AuthSettings(static_key=KEY)) as gateway:
        for metadata in cases:
            error = await refusal(gateway.by(metadata).call(CheckRunTokenRequest()))
            assert error.code == grpc.StatusCode.UNAUTHENTICATED
        # An unknown run gets the same answer as one that has ended.
        assert not await under_way(gateway, step_token())


async def test_keys_in_files_change_while_steps_are_under_way(
    harness: Harness, tmp_path: Path
) -> None:
    (old, old_public), (new, new_public) = generate_keypair(), generate_keypair()
    private_file, public_file = tmp_path / "private.pem", tmp_path / "public.pem"
    private_file.write_text(old)
    public_file.write_text(old_public)
    at_once: dict[str, Any] = {"static_key": None, "files_refresh_s": 1e-9}
    first, second = Holder("first"), Holder("second")
    for agent in (first, second):
        auth = AuthSettings.load(run_token_public_keys_file=public_file, **at_once)
        await harness.add_agent(agent, auth=auth)
    settings = {
        **PATIENT,
        "run_token_private_key": None,
        "run_token_private_keys_file": private_file,
        "auth": AuthSettings.load(**at_once),
    }
    async with harness.gateway(**settings) as gateway:
        harness.planner.steps = [step("a", "first")]
        calls = [gateway.stream()]
        await first.started.wait()
        public_file.write_text(old_public + new_public)
        private_file.write_text(new + old)
        harness.planner.steps = [step("a", "second")]
        calls.append(gateway.stream())
        await second.started.wait()
        (of_old,), (of_new,) = first.tokens, second.tokens
        RunTokenVerifier([new_public], None).verify(of_new)
        for token in (of_old, of_new):
            assert await under_way(gateway, token)
        private_file.write_text("half a key")
        assert await under_way(gateway, of_old)
        private_file.write_text(new)
        assert await under_way(gateway, of_new)
        with pytest.raises(grpc.aio.AioRpcError):
            await under_way(gateway, of_old)
        for call in calls:
            call.cancel()
