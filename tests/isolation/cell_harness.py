"""Everything that runs, what ada has there, and what everybody else calls with."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import jwt
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from bos.agent.v1 import AgentResult
from bos_agentkit import AgentTask, agent_card, succeeded
from bos_chassis.auth.callers import RUN_TOKEN_KEY, Attempt, current_run_token, generate_keypair
from bos_chassis.auth.scopes import SCOPES
from bos_postgres import connect
from bos_testkit.agents import RecordingAgent, agent_server

from . import cell_kinds as kinds
from .cell_calls import Metadata, bearer
from .isolation_harness import (
    CONVERSATION,
    HELD,
    KEEPS,
    SECRET,
    IsolationHarness,
    Person,
    open_isolation_harness,
)

START_S = 120.0
"""For a service, or an agent's step, to begin."""
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
    name: str
    """Also the audience of run tokens for it."""
    channel: grpc.aio.Channel


@dataclass
class CellHarness:
    services: IsolationHarness
    keeper: Keeper
    targets: dict[str, Target]
    """By name: every server that speaks gRPC."""
    mcp_url: str
    metrics: dict[str, str]
    """Where metrics are, by service."""
    secrets: dict[str, str] = field(default_factory=dict)
    """Secrets of a user that give access to their holder."""
    credentials: dict[str, Metadata] = field(default_factory=dict)
    """Invalid ones of ada's, and one of another user with another role."""
    ended: set[str] = field(default_factory=set)
    """Runs of ada's that she has brought to their end."""
    keys: dict[str, str] = field(default_factory=dict)
    """Keys of ada's, by the scope that they lack."""

    @property
    def people(self) -> dict[str, Person]:
        return self.services.people

    @property
    def things(self) -> dict[str, str]:
        """What is ada's, by what the table calls it."""
        return self.services.things

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
        if owner == "gateway":
            return self.call_token("ada", target.name)
        if owner == "step":
            return self.step_token("ada", [target.name, "mcp_db", "sandbox"])
        if owner == "identity":
            about = self.people["bea"].user_id
            return bearer(self.services.token(sub=about, account_data=scope))
        return () if owner == "no user" else bearer(self.people[owner].access_token)

    def credential(self, caller: str, label: str, target: Target, scope: str) -> Metadata:
        real = self.keeper.tokens[self.people["ada"].user_id, False]
        audiences = [target.name, "mcp_db", "sandbox"]
        if label in self.credentials:
            return self.credentials[label]
        if caller in _WHO and label == kinds.SESSION:
            return bearer(self.people[_WHO[caller]].access_token)
        if caller in _WHO and label == kinds.OWN_STEP:
            return self.step_token(_WHO[caller], audiences)
        if caller in _WHO and label == kinds.OWN_CALL:
            return self.call_token(_WHO[caller], target.name)
        return {
            kinds.NOTHING: lambda: (),
            kinds.STEP: lambda: ((RUN_TOKEN_KEY, real),),
            kinds.STEP_AS_BEARER: lambda: bearer(real),
            kinds.STEP_FOR_ANOTHER: lambda: self.step_token("ada", ["echo"]),
            kinds.EXPIRED_STEP: lambda: self.step_token("ada", audiences, ttl_s=-60),
            kinds.EXPIRED_CALL: lambda: self.call_token("ada", target.name, ttl_s=-60),
            kinds.ENDED_STEP: lambda: self.step_token("ada", audiences, ended=True),
            kinds.KEY: lambda: bearer(self.keys.get(scope, self.keys[""])),
            kinds.FORGED_STEP: lambda: forged(real),
            kinds.STATIC_KEY: lambda: bearer(DATABASE_KEY),
        }[label]()


def forged(token: str) -> Metadata:
    """The same claims, under the id of the same key, signed by another key."""
    claims = jwt.decode(token, options={"verify_signature": False})
    key: Any = load_pem_private_key(generate_keypair()[0].encode(), None)
    headers = jwt.get_unverified_header(token)
    return ((RUN_TOKEN_KEY, jwt.encode(claims, key, algorithm="EdDSA", headers=headers)),)


@asynccontextmanager
async def open_cell_harness(dsn: str, folder: Path) -> AsyncIterator[CellHarness]:
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


async def start_process(
    stack: AsyncExitStack, name: str, variables: dict[str, str]
) -> tuple[str, int]:
    """Start a service as a process of its own; its address, and the port of its metrics."""
    kept = {each: os.environ[each] for each in ("PATH", "PYTHONPATH") if each in os.environ}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"bos_{name}"),
        env={**kept, **variables},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    stack.push_async_callback(_stop, process)
    assert process.stdout is not None
    async with asyncio.timeout(START_S):
        line = await process.stdout.readline()
    assert line, f"{name} did not start"
    said = json.loads(line)
    return said["address"], said["metrics_port"]


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


async def _let_people_in(harness: CellHarness) -> None:
    """Others, and those of whom ada disposes."""
    services, people = harness.services, harness.people
    for name in ("gus", "olga", "paul", "bea", "ann"):
        await services.sign_in(name)
    groups = {"user_id": people["gus"].user_id, "groups": ["hr"]}
    await services.call("ada", "AdministrationService.SetUserGroups", **groups)
    for name, role in {"olga": "operator", "paul": "approver"}.items():
        roles = {"user_id": people[name].user_id, "roles": ["user", role]}
        await services.call("ada", "AdministrationService.SetUserRoles", **roles)
    for name in ("gus", "olga", "paul"):
        people[name] = await services.log_in(name)
    harness.things["account"] = people["bea"].user_id
    harness.secrets["to refresh"] = (await services.log_in("ann")).refresh_token
    harness.secrets["to log out"] = (await services.log_in("ann")).refresh_token
    reset = await services.call(
        "ada", "AdministrationService.CreatePasswordReset", user_id=people["bea"].user_id
    )
    harness.secrets["to reset"] = reset.code


async def _give_ada_twins(harness: CellHarness, stack: AsyncExitStack) -> None:
    """What she ends herself, after others have tried to."""
    services, things = harness.services, harness.things
    waiting = await services.call(
        "ada", "ApprovalService.GetApproval", approval_id=things["approval"]
    )
    things["run that waits"] = waiting.approval.run_id
    for run in ("run to cancel", "run for an operator to cancel"):
        things[run], call = await services.ask(
            "ada", f"{HELD}: the {SECRET}, {run}?", run.replace(" ", "-")
        )
        stack.callback(call.cancel)
    things["session"] = (await services.log_in("ada")).session_id
    things["key"], harness.secrets["key"] = await services.api_key("ada", ["account"])
    invited = await services.call("ada", "AdministrationService.CreateInvitation")
    things["invitation"] = invited.invitation.invitation_id
    harness.secrets["invitation"] = invited.code
    for which in ("delete", "read anew"):
        text = f"The {SECRET} to {which}."
        things[f"document to {which}"] = await services.give_document("a.txt", text)
    things["table"] = await services.give_file("rows-of-ada.csv", f"name\n{SECRET}\n")
    things["file to delete"] = await services.give_file(f"doomed {SECRET}.txt", "Gone soon.")
    things["webhook to delete"] = await services.give_webhook("to-delete")
    things["conversation to delete"] = f"{CONVERSATION}-to-delete"
    await services.record_turn(things["run that asked"], things["conversation to delete"])


async def _let_steps_run(harness: CellHarness, stack: AsyncExitStack) -> None:
    """A step of each user's that is under way, and one of ada's that has ended."""
    services = harness.services
    for name in ("ada", *_WHO.values()):
        run, call = await services.ask(name, f"{KEEPS}: the plans", f"keeps-{name}")
        stack.callback(call.cancel)
        await harness.keeper.token(harness.people[name].user_id)
        if name == "ada":
            harness.things["run with a step"] = run
    await services.ended("ada", f"{KEEPS}: the {SECRET}, {ENDS}", "ends")
    await harness.keeper.token(harness.people["ada"].user_id, ended=True)


async def _end_credentials(harness: CellHarness) -> None:
    """Credentials of ada's that have expired or were revoked, and keys that lack a scope."""
    services, ada = harness.services, harness.people["ada"]
    ended = await services.log_in("ada")
    session = ended.session_id
    await services.call("ada", "IdentityService.RevokeSession", session_id=session)
    revoked_id, revoked = await services.api_key("ada", [*SCOPES])
    await services.call("ada", "ApiKeyService.RevokeApiKey", key_id=revoked_id)
    expired_id, expired = await services.api_key("ada", [*SCOPES])
    async with connect(services.dsn) as connection:
        changed = await connection.execute(
            "UPDATE identity.api_keys SET expires_at = now() - interval '1 minute' "
            "WHERE key_id = $1::uuid",
            expired_id,
        )
    assert changed == "UPDATE 1"
    now = int(time.time())
    harness.credentials = {
        kinds.EXPIRED_SESSION: bearer(
            services.token(sub=ada.user_id, sid=ada.session_id, iat=now - 700, exp=now - 60)
        ),
        kinds.EXPIRED_KEY: bearer(expired),
        kinds.ENDED_SESSION: bearer(ended.access_token),
        kinds.REVOKED_KEY: bearer(revoked),
        kinds.APPROVERS_SESSION: bearer(harness.people["paul"].access_token),
    }
    for scope in ("", *SCOPES):
        _, harness.keys[scope] = await services.api_key(
            "ada", [each for each in SCOPES if each != scope]
        )
