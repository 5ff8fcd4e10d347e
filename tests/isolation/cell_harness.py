"""Everything that runs, what ada has there, and what everybody else calls with."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import jwt
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from bos.gateway.v1 import (
    ApprovalServiceStub,
    GetApprovalRequest,
    OrchestratorServiceStub,
    WatchRunRequest,
)
from bos.identity.v1 import (
    AdministrationServiceStub,
    ApiKeyServiceStub,
    CreateInvitationRequest,
    CreatePasswordResetRequest,
    IdentityServiceStub,
    RevokeApiKeyRequest,
    RevokeSessionRequest,
    SetUserGroupsRequest,
    SetUserRolesRequest,
)
from bos.memory.v1 import MemoryTurnServiceStub, RecordTurnRequest
from bos_agentkit import agent_card, succeeded
from bos_chassis.auth.callers import RUN_TOKEN_KEY, Attempt, current_run_token, generate_keypair
from bos_chassis.auth.scopes import SCOPES
from bos_postgres import connect
from bos_testkit.agents import RecordingAgent, agent_server

from .cell_kinds import (
    APPROVERS_SESSION,
    ENDED_SESSION,
    ENDED_STEP,
    EXPIRED_CALL,
    EXPIRED_KEY,
    EXPIRED_SESSION,
    EXPIRED_STEP,
    FORGED_STEP,
    KEY,
    NOTHING,
    OWN_CALL,
    OWN_STEP,
    REVOKED_KEY,
    SESSION,
    STATIC_KEY,
    STEP,
    STEP_AS_BEARER,
    STEP_FOR_ANOTHER,
)
from .cell_processes import START_S, start_process
from .isolation_credentials import api_key
from .isolation_documents import give_document
from .isolation_files import give_file
from .isolation_harness import (
    CONVERSATION,
    FILE_NAME,
    HELD,
    KEEPS,
    SECRET,
    IsolationHarness,
    Person,
    log_in,
    open_isolation_harness,
    sign_in,
)
from .isolation_webhooks import give_webhook

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from bos.agent.v1 import AgentResult
    from bos_agentkit import AgentTask

    from .cell_calls import Metadata

ENDS = "and end at once"
"""In a question about which the keeper does not keep on."""
ROW = f"the {SECRET} of ada"
"""In a database that ada's group alone may read."""
TABLE = "customers"
DATABASE_KEY = "a-static-key-of-mcp-db"
_WHO = {"other user": "eve", "other group": "gus", "operator": "olga"}
_NO_ATTEMPTS = 10_000
"""Of wrong passwords: every caller tries one, from one address, and none is to be slowed down."""
INSIDE = ("planner", "composer", "sandbox", "mcp_db")
OWN = {
    "mcp_db": {
        "BOS_AUTH_STATIC_KEY": DATABASE_KEY,
        "BOS_AUTH_STATIC_KEY_GROUPS": json.dumps(["hr"]),
    }
}
"""Settings of one service alone."""
AGENTS = ("sql", "computation", "code")


class Keeper(RecordingAgent):
    """Keeps the run token that it is handed, and works until the test ends."""

    def __init__(self) -> None:
        card = agent_card(
            "keeper",
            "Keeps at it.",
            downstream_audiences=["mcp_db", "sandbox"],
            default_timeout_s=3600,
        )
        super().__init__("keeper", card=card)
        self.tokens: dict[tuple[str, bool], str] = {}
        """By the user, and whether the step has ended."""
        self._kept = asyncio.Condition()

    async def behave(self, task: AgentTask) -> AgentResult:
        """Keep the token, then wait."""
        ends = ENDS in task.effective_task
        async with self._kept:
            self.tokens[task.input.metadata.user_id, ends] = current_run_token() or ""
            self._kept.notify_all()
        if not ends:
            await asyncio.Event().wait()
        return succeeded(task, answer="kept")

    async def token(self, user_id: str, *, ended: bool = False) -> str:
        """The one of a step for this user, as soon as it has begun."""
        async with asyncio.timeout(START_S), self._kept:
            await self._kept.wait_for(lambda: (user_id, ended) in self.tokens)
        return self.tokens[user_id, ended]


@dataclass(frozen=True)
class Target:
    """A server that is called."""

    name: str
    channel: grpc.aio.Channel

    @property
    def audience(self) -> str:
        return self.name


@dataclass
class CellHarness:
    """What is called, by whom, about what."""

    services: IsolationHarness
    keeper: Keeper
    targets: dict[str, Target]
    """By name: every server that speaks gRPC."""
    mcp_url: str
    metrics: dict[str, str]
    """Where metrics are, by service."""
    people: dict[str, Person]
    things: dict[str, str] = field(default_factory=dict)
    """What is ada's, by what the table calls it."""
    secrets: dict[str, str] = field(default_factory=dict)
    """Secrets of a user that give access to their holder."""
    credentials: dict[str, Metadata] = field(default_factory=dict)
    """Invalid ones of ada's, and one of another user with another role."""
    ended: set[str] = field(default_factory=set)
    """Runs of ada's that she has brought to their end."""
    keys: dict[str, str] = field(default_factory=dict)
    """Keys of ada's, by the scope that they lack."""

    @property
    def planted(self) -> list[str]:
        """Texts that only ada may see."""
        texts = [SECRET, "ada@example.com", *self.things.values(), *self.secrets.values()]
        ids = [self.people["ada"].user_id, self.people["ada"].session_id]
        return [*dict.fromkeys([*texts, *ids, *self.services.runs.values()])]

    def traces(self, text: str, said: str) -> list[str]:
        """What of ada's is in a text, beside what the caller ``said``."""
        return [each for each in self.planted if each in text and each not in said]

    @property
    def ids(self) -> set[str]:
        """Of ada, of her runs and of the approval that one of them waits for."""
        own = {text for name, text in self.things.items() if name.split()[0] in ("run", "approval")}
        return {self.people["ada"].user_id, *own, *self.services.runs.values()}

    def claims(self, who: str, *, ended: bool = False) -> dict[str, Any]:
        """Of the token of a running step of a user."""
        token = self.keeper.tokens[self.people[who].user_id, ended]
        return dict(jwt.decode(token, options={"verify_signature": False}))

    def step_token(
        self, who: str, audiences: list[str], *, ended: bool = False, ttl_s: float = 7200
    ) -> Metadata:
        """A token of a user's step, as the gateway would sign it for another agent."""
        claims = self.claims(who, ended=ended)
        token = self.services.run_tokens.mint(
            claims["sub"],
            claims["run"],
            claims["step"],
            audiences,
            ttl_s,
            attempt=Attempt(claims["epoch"], claims["seq"]),
            groups=claims.get("groups", ()),
        )
        return ((RUN_TOKEN_KEY, token),)

    def call_token(self, who: str, audience: str, *, ttl_s: float = 7200) -> Metadata:
        """A token of a call of the gateway's own, for a run of a user."""
        claims = self.claims(who)
        token = self.services.run_tokens.mint(claims["sub"], claims["run"], "", [audience], ttl_s)
        return ((RUN_TOKEN_KEY, token),)

    def rightful(self, owner: str, target: Target, scope: str = "") -> Metadata:
        """What the call of the owner is made with."""
        if owner == "gateway":
            return self.call_token("ada", target.audience)
        if owner == "step":
            return self.step_token("ada", [target.audience, "mcp_db", "sandbox"])
        if owner == "identity":
            about = self.people["bea"].user_id
            return bearer(self.services.token(sub=about, account_data=scope))
        return () if owner == "no user" else bearer(self.people[owner].access_token)

    def credential(self, caller: str, label: str, target: Target, scope: str) -> Metadata:
        """What a caller of the table calls with."""
        real = self.keeper.tokens[self.people["ada"].user_id, False]
        audiences = [target.audience, "mcp_db", "sandbox"]
        if label in self.credentials:
            return self.credentials[label]
        if caller in _WHO and label == SESSION:
            return bearer(self.people[_WHO[caller]].access_token)
        if caller in _WHO and label == OWN_STEP:
            return self.step_token(_WHO[caller], audiences)
        if caller in _WHO and label == OWN_CALL:
            return self.call_token(_WHO[caller], target.audience)
        return {
            NOTHING: lambda: (),
            STEP: lambda: ((RUN_TOKEN_KEY, real),),
            STEP_AS_BEARER: lambda: bearer(real),
            STEP_FOR_ANOTHER: lambda: self.step_token("ada", ["echo"]),
            EXPIRED_STEP: lambda: self.step_token("ada", audiences, ttl_s=-60),
            EXPIRED_CALL: lambda: self.call_token("ada", target.audience, ttl_s=-60),
            ENDED_STEP: lambda: self.step_token("ada", audiences, ended=True),
            KEY: lambda: bearer(self.keys.get(scope, self.keys[""])),
            FORGED_STEP: lambda: forged(real),
            STATIC_KEY: lambda: bearer(DATABASE_KEY),
        }[label]()


def bearer(token: str) -> Metadata:
    return (("authorization", f"Bearer {token}"),)


def forged(token: str) -> Metadata:
    """The same claims, under the id of the same key, signed by another key."""
    claims = jwt.decode(token, options={"verify_signature": False})
    key: Any = load_pem_private_key(generate_keypair()[0].encode(), None)
    headers = jwt.get_unverified_header(token)
    return ((RUN_TOKEN_KEY, jwt.encode(claims, key, algorithm="EdDSA", headers=headers)),)


@asynccontextmanager
async def open_cell_harness(dsn: str, folder: Path) -> AsyncIterator[CellHarness]:
    """All services, and people who have something there."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        keeper = Keeper()
        services = await enter(
            open_isolation_harness(
                dsn,
                folder,
                agents={"keeper": await enter(agent_server(keeper))},
                identity_settings={
                    "account_attempts": _NO_ATTEMPTS,
                    "account_attempts_anywhere": _NO_ATTEMPTS,
                    "address_attempts": _NO_ATTEMPTS,
                },
            )
        )
        targets = {
            name: Target(name, services.channels[f"bos.{name}.v1"])
            for name in ("gateway", "identity", "memory", "documents", "files")
        }
        # The same server, for steps, under the name that their tokens have for it.
        targets["file_tables"] = Target("file_tables", targets["files"].channel)
        started = await _inside(stack, services, folder)
        for name, (address, _) in started.items():
            if name != "mcp_db":
                targets[name] = Target(name, await enter(grpc.aio.insecure_channel(address)))
        metrics = {**services.metrics, **{name: port for name, (_, port) in started.items()}}
        harness = CellHarness(
            services,
            keeper,
            targets,
            f"http://{started['mcp_db'][0]}",
            {name: f"http://127.0.0.1:{port}/metrics" for name, port in metrics.items()},
            dict(services.people),
        )
        await _let_people_in(harness)
        await _give_ada_twins(harness, stack)
        await _let_steps_run(harness, stack)
        await _end_credentials(harness)
        yield harness


async def _inside(
    stack: AsyncExitStack, services: IsolationHarness, folder: Path
) -> dict[str, tuple[str, int]]:
    """What is not for people, each a process of its own; addresses and ports of metrics."""
    database = folder / "company.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(f"CREATE TABLE {TABLE} (name TEXT)")
        connection.execute(f"INSERT INTO {TABLE} VALUES (?)", (ROW,))
        connection.commit()
    groups = {"crew": {"tables": {"main": [TABLE]}}}
    common = {
        "BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS": services.public_run_key,
        "BOS_AUTH_RUN_TOKEN_CHECK_TARGET": services.addresses["gateway"],
        "BOS_SERVER_METRICS_PORT": "0",
        "BOS_DATABASE_URL": f"sqlite:///{database}",
        "BOS_DATABASE_ALLOWED_TABLES": TABLE,
        "BOS_ACCESS_GROUPS": json.dumps(groups),
        "BOS_ACCESS_EVERYBODY": json.dumps({"agents": ["*"]}),
    }
    async with asyncio.TaskGroup() as tasks:
        first = {
            name: tasks.create_task(start_process(stack, name, {**common, **OWN.get(name, {})}))
            for name in INSIDE
        }
    found = {name: task.result() for name, task in first.items()}
    agents = {
        **common,
        "BOS_SQL_MCP_URL": f"http://{found['mcp_db'][0]}/mcp",
        "BOS_CODE_SANDBOX_TARGET": found["sandbox"][0],
        "BOS_COMPUTATION_SANDBOX_TARGET": found["sandbox"][0],
    }
    async with asyncio.TaskGroup() as tasks:
        then = {name: tasks.create_task(start_process(stack, name, agents)) for name in AGENTS}
    return {**found, **{name: task.result() for name, task in then.items()}}


async def _let_people_in(harness: CellHarness) -> None:
    """Others, and those of whom ada disposes."""
    stub = IdentityServiceStub(harness.services.channels["bos.identity.v1"])
    administration = AdministrationServiceStub(harness.services.channels["bos.identity.v1"])
    for name in ("gus", "olga", "paul", "bea", "ann"):
        harness.people[name] = await sign_in(stub, name)
    as_ada = bearer(harness.people["ada"].access_token)
    await administration.SetUserGroups(
        SetUserGroupsRequest(user_id=harness.people["gus"].user_id, groups=["hr"]), metadata=as_ada
    )
    for name, role in {"olga": "operator", "paul": "approver"}.items():
        await administration.SetUserRoles(
            SetUserRolesRequest(user_id=harness.people[name].user_id, roles=["user", role]),
            metadata=as_ada,
        )
    for name in ("gus", "olga", "paul"):
        harness.people[name] = await log_in(stub, name)
    harness.things["account"] = harness.people["bea"].user_id
    ann = await log_in(stub, "ann")
    harness.secrets["to refresh"] = ann.refresh_token
    harness.secrets["to log out"] = (await log_in(stub, "ann")).refresh_token
    reset = await administration.CreatePasswordReset(
        CreatePasswordResetRequest(user_id=harness.people["bea"].user_id), metadata=as_ada
    )
    harness.secrets["to reset"] = reset.code


async def _give_ada_twins(harness: CellHarness, stack: AsyncExitStack) -> None:
    """What she ends herself, after others have tried to."""
    services, ada, things = harness.services, harness.people["ada"], harness.things
    identity = IdentityServiceStub(services.channels["bos.identity.v1"])
    things["run"] = services.runs["ended"]
    things["run that asked"] = services.runs["asking"]
    things["approval"] = services.approval_id
    approvals = ApprovalServiceStub(services.channels["bos.gateway.v1"])
    as_ada = bearer(ada.access_token)
    asked_for = GetApprovalRequest(approval_id=services.approval_id)
    waiting = await approvals.GetApproval(asked_for, metadata=as_ada)
    things["run that waits"] = waiting.approval.run_id
    things["run to cancel"], call = await services.ask(ada, f"{HELD}: the {SECRET}?", "to-cancel")
    stack.callback(call.cancel)
    asked = f"{HELD}: the {SECRET}, too?"
    things["run for an operator to cancel"], call = await services.ask(
        ada, asked, "to-be-cancelled"
    )
    stack.callback(call.cancel)
    things["session"] = (await log_in(identity, "ada")).session_id
    things["key"], harness.secrets["key"] = await api_key(services, ada, ["account"])
    administration = AdministrationServiceStub(services.channels["bos.identity.v1"])
    invited = await administration.CreateInvitation(CreateInvitationRequest(), metadata=as_ada)
    things["invitation"] = invited.invitation.invitation_id
    harness.secrets["invitation"] = invited.code
    things["document"], things["passage"] = services.document_id, services.chunk_id
    for which in ("delete", "read anew"):
        text = f"The {SECRET} to {which}."
        mine = services.channels["bos.documents.v1"], ada.access_token
        things[f"document to {which}"] = await give_document(*mine, text, "a.txt")
    table = services.channels["bos.files.v1"], ada.access_token, "rows-of-ada.csv"
    things["table"] = await give_file(*table, f"name\n{SECRET}\n")
    things["file"] = FILE_NAME
    doomed = services.channels["bos.files.v1"], ada.access_token, f"doomed {SECRET}.txt"
    things["file to delete"] = await give_file(*doomed, "Gone soon.")
    things["webhook"], things["doomed query"] = services.webhook_id, services.doomed_query_id
    channel = services.channels["bos.gateway.v1"]
    things["webhook to delete"] = await give_webhook(channel, ada.access_token, "to-delete")
    things["conversation"] = CONVERSATION
    things["conversation to delete"] = f"{CONVERSATION}-to-delete"
    turn = RecordTurnRequest(
        user_id=ada.user_id,
        run_id=things["run that asked"],
        conversation_id=things["conversation to delete"],
        question=f"And the {SECRET}?",
    )
    turn.ask_time.GetCurrentTime()
    turn.answer_time.GetCurrentTime()
    token = services.run_tokens.mint(ada.user_id, turn.run_id, "", ["memory"], 60)
    await MemoryTurnServiceStub(services.channels["bos.memory.v1"]).RecordTurn(
        turn, metadata=((RUN_TOKEN_KEY, token),)
    )


async def _let_steps_run(harness: CellHarness, stack: AsyncExitStack) -> None:
    """A step of everybody's that is under way, and one of ada's that has ended."""
    for name in ("ada", *_WHO.values()):
        person = harness.people[name]
        run, call = await harness.services.ask(person, f"{KEEPS}: the plans", f"keeps-{name}")
        stack.callback(call.cancel)
        await harness.keeper.token(person.user_id)
        if name == "ada":
            harness.things["run with a step"] = run
    ada = harness.people["ada"]
    run, call = await harness.services.ask(ada, f"{KEEPS}: the {SECRET}, {ENDS}", "ends")
    call.cancel()
    stub = OrchestratorServiceStub(harness.services.channels["bos.gateway.v1"])
    async for _ in stub.WatchRun(
        WatchRunRequest(run_id=run), metadata=bearer(ada.access_token), timeout=START_S
    ):
        pass
    await harness.keeper.token(ada.user_id, ended=True)


async def _end_credentials(harness: CellHarness) -> None:
    """Credentials of ada's that have expired or were revoked, and keys that lack a scope."""
    services, ada = harness.services, harness.people["ada"]
    channel, as_ada = services.channels["bos.identity.v1"], bearer(ada.access_token)
    ended = await log_in(IdentityServiceStub(channel), "ada")
    await IdentityServiceStub(channel).RevokeSession(
        RevokeSessionRequest(session_id=ended.session_id), metadata=as_ada
    )
    revoked_id, revoked = await api_key(services, ada, SCOPES)
    await ApiKeyServiceStub(channel).RevokeApiKey(
        RevokeApiKeyRequest(key_id=revoked_id), metadata=as_ada
    )
    expired_id, expired = await api_key(services, ada, SCOPES)
    async with connect(services.dsn) as connection:
        changed = await connection.execute(
            "UPDATE identity.api_keys SET expires_at = now() - interval '1 minute' "
            "WHERE key_id = $1::uuid",
            expired_id,
        )
    assert changed == "UPDATE 1"
    now = int(time.time())
    harness.credentials = {
        EXPIRED_SESSION: bearer(
            services.token(sub=ada.user_id, sid=ada.session_id, iat=now - 700, exp=now - 60)
        ),
        EXPIRED_KEY: bearer(expired),
        ENDED_SESSION: bearer(ended.access_token),
        REVOKED_KEY: bearer(revoked),
        APPROVERS_SESSION: bearer(harness.people["paul"].access_token),
    }
    for scope in ("", *SCOPES):
        lacking = [each for each in SCOPES if each != scope]
        _, harness.keys[scope] = await api_key(services, ada, lacking)
