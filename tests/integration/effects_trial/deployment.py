"""Two gateways and three agents as processes, with identity, planner, composer and model around."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from mail_servers import PASSWORD, connection

from bos.agent.v1 import AgentInput, AgentServiceStub, ExecuteRequest, TaskMetadata
from bos.identity.v1 import (
    ConnectionServiceStub,
    IdentityServiceStub,
    LogInRequest,
    PutConnectionRequest,
    RegisterUserRequest,
)
from bos_chassis.auth.callers import generate_keypair
from bos_chassis.settings import AuthSettings, ServerSettings, TelemetrySettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import to_value
from bos_client import BosClient
from bos_client.client import Reconnect
from bos_composer.service import serve as serve_composer
from bos_composer.settings import ComposerSettings
from bos_identity.service import serve as serve_identity
from bos_identity.settings import IdentitySettings
from bos_identity.signing.key_ring import new_key_encryption_key
from bos_llm import Models
from bos_planner.service import serve as serve_planner
from bos_planner.settings import PlannerSettings
from bos_testkit.scripted_model.pytest_fixtures import SCRIPTED_KEY, model_settings
from bos_testkit.scripted_model.server import ScriptedModel

from .actions import Planner
from .respawning import Respawning, running
from .world import World

_LOG_IN = "correct horse battery"
_ISSUER = "bos-identity"
_LOOPBACK = ["127.0.0.0/8"]
# A client that is patient: the trial is about what happens, not about how long it takes.
_PATIENT = Reconnect(attempts=1_000, cap_s=0.5)


@dataclass(frozen=True)
class Stores:
    gateway: str
    identity: str
    files: str


@dataclass(frozen=True)
class Deployment:
    gateways: tuple[Respawning, ...]
    agents: Mapping[str, Respawning]
    client: BosClient
    user_id: str

    async def write_file(self, name: str, text: str) -> None:
        """A file in the user's workspace, by a step of the files agent."""
        request = AgentInput(
            agent_id="step",
            agent_name="files",
            task="Write it",
            tool_name="write_file",
            sub_task_input={"name": to_value(name), "text": to_value(text)},
            metadata=TaskMetadata(
                user_id=self.user_id, run_id="before", step_key=f"before/0/{name}"
            ),
        )
        async with grpc.aio.insecure_channel(self.agents["files"].address) as channel:
            call = AgentServiceStub(channel).Execute(ExecuteRequest(input=request), timeout=60)
            async for message in call:
                assert not message.result.error.type, message.result.error


class _Token:
    def __init__(self, token: str) -> None:
        self._token = token

    async def access_token(self) -> str:
        return self._token


@asynccontextmanager
async def deployed(
    stores: Stores, world: World, planner: Planner, folder: Path, pause_s: Callable[[], float]
) -> AsyncIterator[Deployment]:
    """All of it, until the block is left.

    Args:
        stores: Databases.
        world: What the agents act on.
        planner: What the model says.
        folder: For logs and files.
        pause_s: How long what was killed stays away.
    """
    telemetry = Telemetry.for_tests("effects")
    server = ServerSettings(port=0, grace_s=0.2)
    run_key, public_run_key = generate_keypair()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        model = await enter(ScriptedModel((), improvise=planner.say))
        models = await enter(Models(model_settings(model), telemetry))
        identity = await enter(
            serve_identity(
                _identity_settings(server, stores, public_run_key), telemetry.named("identity")
            )
        )
        made = await enter(
            serve_planner(PlannerSettings.load(server=server), telemetry, models=models)
        )
        composer = await enter(
            serve_composer(ComposerSettings.load(server=server), telemetry, models=models)
        )
        agents = {
            name: Respawning(f"bos_{name}", settings, folder / f"{name}.log", pause_s)
            for name, settings in _agents(stores, world, model.base_url, folder).items()
        }
        settings = {
            "BOS_AUTH_ISSUER": _ISSUER,
            "BOS_AUTH_IDENTITY_TARGET": identity.address,
            "BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS": public_run_key,
            **_gateway(stores, run_key),
            "BOS_GATEWAY_PLANNER_TARGET": made.address,
            "BOS_GATEWAY_COMPOSER_TARGET": composer.address,
            "BOS_GATEWAY_AGENT_TARGETS": ",".join(
                f"{n}={each.address}" for n, each in agents.items()
            ),
        }
        # The first makes the tables that the second finds.
        gateways = tuple(
            Respawning("bos_gateway", settings, folder / f"gateway_{number}.log", pause_s)
            for number in (1, 2)
        )
        await enter(running(*agents.values()))
        for each in gateways:
            await enter(running(each))
        user_id, token = await _signed_in(identity.address, world)
        target = "ipv4:" + ",".join(each.address for each in gateways)
        client = await enter(BosClient(target, tokens=_Token(token), reconnect=_PATIENT))
        yield Deployment(gateways, agents, client, user_id)


def _identity_settings(
    server: ServerSettings, stores: Stores, public_run_key: str
) -> IdentitySettings:
    return IdentitySettings.load(
        server=server,
        auth=AuthSettings.load(run_token_public_keys=public_run_key),
        telemetry=TelemetrySettings.load(),
        store_url=stores.identity,
        issuer=_ISSUER,
        key_encryption_keys=new_key_encryption_key(),
        registration_open=True,
        argon2_time_cost=1,
        argon2_memory_kib=8,
        access_token_s=86_400,
    )


def _agents(
    stores: Stores, world: World, model_url: str, folder: Path
) -> Mapping[str, Mapping[str, str]]:
    common = {
        "OPENAI_BASE_URL": model_url,
        "OPENAI_API_KEY": SCRIPTED_KEY,
        "BOS_MODEL": "scripted",
        "BOS_SERVER_GRACE_S": "0.2",
    }
    origins = {world.origin(name): _LOOPBACK for name in ("company", "notes")}
    return {
        "api_docs": {
            **common,
            "BOS_API_DOCS_APIS": json.dumps(world.apis),
            "BOS_HTTP_INTERNAL_ORIGINS": json.dumps(origins),
            "BOS_API_DOCS_RELOAD_S": "0",
        },
        "files": {
            **common,
            "BOS_FILES_STORE_URL": stores.files,
            "BOS_FILES_WORKSPACE_URL": (folder / "workspace").as_uri(),
        },
        "mail": {**common, "BOS_MAIL_INTERNAL_HOSTS": json.dumps({"127.0.0.1": _LOOPBACK})},
    }


def _gateway(stores: Stores, run_key: str) -> Mapping[str, str]:
    return {
        "BOS_SERVER_GRACE_S": "0.2",
        "BOS_GATEWAY_STORE_URL": stores.gateway,
        "BOS_GATEWAY_RUN_TOKEN_PRIVATE_KEY": run_key,
        "BOS_GATEWAY_SECRETS_KEYS": "k=" + b64encode(bytes(range(32))).decode(),
        "BOS_GATEWAY_AGENT_CONNECTIONS": json.dumps({"mail": ["mail.imap"]}),
        # As in production but for what a thousand kills in ten minutes would lead to.
        "BOS_GATEWAY_MAX_FAILURES": "1000",
        "BOS_GATEWAY_HOLD_OFF_S": "0.5",
        "BOS_GATEWAY_APPROVAL_TIMEOUT_S": "3600",
        "BOS_GATEWAY_MAX_REVISIONS": "0",
    }


async def _signed_in(identity: str, world: World) -> tuple[str, str]:
    """User id and token of a new user, whose mailbox is connected."""
    async with grpc.aio.insecure_channel(identity) as channel:
        stub: Any = IdentityServiceStub(channel)
        registered = await stub.RegisterUser(
            RegisterUserRequest(username="ada", email="ada@example.com", password=_LOG_IN)
        )
        found = await stub.LogIn(LogInRequest(username="ada", password=_LOG_IN))
        token = found.tokens.access_token
        fields = connection(world.gates["imap"], world.gates["smtp"]).fields
        mailbox = PutConnectionRequest(kind="mail.imap", fields=fields, secret=PASSWORD)
        connections: Any = ConnectionServiceStub(channel)
        await connections.PutConnection(mailbox, metadata=(("authorization", f"Bearer {token}"),))
    return registered.user.user_id, token
