"""Every RPC of the contracts, and every route, as every kind of caller who has no right to it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import grpc
import pytest
import pytest_asyncio
from callers_table import ABSENT, CALLERS, CLOSED, FIELDS, KIND_OF, KINDS, NOTHING
from isolation_cases import (
    RPCS,
    named,
    references_of_ada,
    request,
    traces_of_ada,
    ways,
    whats_of_ada,
)
from isolation_house import api_key
from public_rpcs import all_rpcs

from bos.identity.v1 import ApiKeyServiceStub, RevokeApiKeyRequest
from bos_chassis.auth import authenticator_from
from bos_chassis.scopes import SCOPE_OF, SCOPES
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_composer.service import serve as serve_composer
from bos_composer.settings import ComposerSettings
from bos_planner.service import serve as serve_planner
from bos_planner.settings import PlannerSettings
from bos_sandbox.service import AUDIENCE as SANDBOX
from bos_sandbox.service import serve as serve_sandbox
from bos_sandbox.settings import SandboxSettings
from bos_testkit.agents import EchoAgent, agent_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from isolation_house import Answer, IsolationHouse
    from public_rpcs import PublicRpc

pytestmark = [pytest.mark.isolation, pytest.mark.asyncio(loop_scope="module")]

EVERY = all_rpcs()
PUBLIC = {rpc.name for rpc in RPCS}
INTERNAL = [rpc for rpc in EVERY if rpc.name not in PUBLIC]
AUDIENCES = {
    "AgentService": ("echo", "gateway's step"),
    "SandboxService": (SANDBOX, "step"),
    "PlannerService": ("planner", ""),
    "ComposerService": ("composer", ""),
    "MemoryTurnService": ("memory", ""),
}
"""Whose run tokens open what is a run's, and of which step."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def inside(house: IsolationHouse) -> AsyncIterator[IsolationHouse]:
    """The same house, with the services that nobody but runs and services calls."""
    auth = AuthSettings.load(run_token_public_keys=house.public_run_key)
    server, telemetry = ServerSettings.load(grace_s=0.2), Telemetry.for_tests("inside")
    planner = PlannerSettings.load(server=server)
    composer = ComposerSettings.load(server=server)
    sandbox = SandboxSettings.load(server=server)
    async with (
        serve_planner(
            planner, telemetry.named("planner"), models=None, auth=own(auth, "planner")
        ) as plans,
        serve_composer(
            composer, telemetry.named("composer"), models=None, auth=own(auth, "composer")
        ) as composes,
        serve_sandbox(sandbox, telemetry.named("sandbox"), auth=own(auth, SANDBOX, "step")) as runs,
        agent_server(EchoAgent("echo"), auth=auth) as echoes,
    ):
        addresses = {
            "bos.planner.v1": plans.address,
            "bos.composer.v1": composes.address,
            "bos.sandbox.v1": runs.address,
            "bos.agent.v1": echoes,
        }
        for package, address in addresses.items():
            house.channels[package] = grpc.aio.insecure_channel(address)
        house.channels["bos.account.v1"] = house.channels["bos.gateway.v1"]
        yield house
        for package in addresses:
            await house.channels[package].close()


def own(auth: AuthSettings, audience: str, accepts: Any = "service") -> Any:
    return authenticator_from(auth, audience, accepts)


@dataclass(frozen=True)
class Credential:
    bearer: str | None = None
    run_token: str = ""


async def credentials(house: IsolationHouse, rpc: PublicRpc) -> dict[str, Credential]:
    """One of each kind, good but for what its name says."""
    ada = house.people["ada"]
    scope = SCOPE_OF.get(rpc.path.removeprefix("/"), "")
    _, lacking = await api_key(house, ada, [each for each in SCOPES if each != scope])
    key_id, revoked = await api_key(house, ada, SCOPES)
    await ApiKeyServiceStub(house.channels["bos.identity.v1"]).RevokeApiKey(
        RevokeApiKeyRequest(key_id=key_id),
        metadata=(("authorization", f"Bearer {ada.access_token}"),),
    )
    run = house.runs["under way"]
    # Of a service that there is not: what the right one opens is another test.
    token = house.run_tokens.mint(ada.user_id, run, f"{run}/0/a", ["elsewhere"], 3600)
    hers = {"sub": ada.user_id, "sid": ada.session_id}
    return {
        "stranger": Credential(),
        "other user": Credential(house.people["eve"].access_token),
        "other group": Credential(house.token(roles=["user"], groups=["hr"])),
        "operator": Credential(house.token(roles=["user", "operator"], groups=[])),
        "run token": Credential(token, token),
        "expired": Credential(house.token(exp=time.time() - 60, **hers)),
        "revoked": Credential(revoked),
        "key without scope": Credential(lacking),
    }


async def answers_to(
    house: IsolationHouse, rpc: PublicRpc, message: Any, who: Credential
) -> dict[str, Answer]:
    """Over gRPC and each route."""
    if rpc.name in PUBLIC:
        return await ways(house, rpc, message, who.bearer)
    return {"gRPC": await house.grpc(rpc, message, who.bearer)}


def refused_for_who_calls(answer: Answer) -> bool:
    return answer.code in ("UNAUTHENTICATED", "PERMISSION_DENIED")


async def test_every_rpc_has_a_kind_and_every_kind_an_answer_to_every_caller() -> None:
    known = {rpc.name for rpc in EVERY}
    assert known - set(KIND_OF) == set(), "say in callers_table.py of which kind these are"
    assert set(KIND_OF) - known == set(), "these are gone: take them out of callers_table.py"
    assert {kind: set(heard) for kind, heard in KINDS.items()} == {
        kind: set(CALLERS) for kind in KINDS
    }


@named(EVERY)
async def test_no_caller_gets_what_is_not_theirs(rpc: PublicRpc, inside: IsolationHouse) -> None:
    house, heard = inside, KINDS[KIND_OF[rpc.name]]
    references = references_of_ada(rpc) if rpc.name in PUBLIC else []
    hers = request(rpc, **{name: whats_of_ada(house, name)[0] for name in references})
    absent = request(rpc, **{name: str(uuid4()) for name in references})
    for caller, who in (await credentials(house, rpc)).items():
        expected = heard[caller]
        # Of what works without naming something, and of open calls, eve tries her own.
        plain = expected == NOTHING or not references
        said = request(rpc, **FIELDS.get(rpc.name, {})) if plain else hers
        made_up = await answers_to(house, rpc, absent, who) if expected == ABSENT else {}
        for way, answer in (await answers_to(house, rpc, said, who)).items():
            if expected == ABSENT:
                assert answer.shape == made_up[way].shape, (caller, way)
                assert answer.code in ("NOT_FOUND", "PERMISSION_DENIED"), (caller, way)
            elif expected == CLOSED:
                assert refused_for_who_calls(answer), (caller, way, answer)
            elif expected != NOTHING:
                assert answer.shape[:2] == expected, (caller, way, answer)
            if caller != "key without scope" or expected not in (NOTHING, ABSENT):
                leaked = traces_of_ada(house, answer.content, said=str(said))
                assert leaked == [], (caller, way)


@named([rpc for rpc in INTERNAL if KIND_OF[rpc.name] == "a run's"])
async def test_the_run_token_that_is_for_it_opens_what_is_a_runs(
    rpc: PublicRpc, inside: IsolationHouse
) -> None:
    ada, run = inside.people["ada"].user_id, inside.runs["under way"]
    service = rpc.name.partition(".")[0]
    if service == "RunTokenService":
        audience, step = "gateway", f"{run}/0/a"
    else:
        audience, kind = AUDIENCES[service]
        step = f"{run}/0/a" if kind else ""
    token = inside.run_tokens.mint(ada, run, step, [audience], 3600)
    answer = await inside.grpc(rpc, rpc.message(), None, run_token=token)
    assert answer.code != "UNAUTHENTICATED", answer
