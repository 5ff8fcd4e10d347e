"""Every Python service in one process: built by its own ``serve``, each on its own loopback port.

Targets, keys and URLs that deployment config would hold are made here; nothing else differs.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from bos_chassis.auth.callers import authenticator_from, generate_keypair
from bos_chassis.auth.run_token_checks import open_run_tokens
from bos_chassis.errors import ConfigurationError, Unavailable
from bos_chassis.names import ROLES
from bos_chassis.settings import AuthSettings, ServerSettings, is_loopback
from bos_composer import service as composer
from bos_composer.settings import ComposerSettings
from bos_demo import service as demo
from bos_demo.questions import load_questions
from bos_demo.settings import DemoSettings
from bos_gateway import service as gateway
from bos_gateway.settings import GatewaySettings
from bos_identity import service as identity
from bos_identity.accounts import LOCAL_USER_ID
from bos_identity.settings import IdentitySettings
from bos_llm import ModelPrice, Models, ModelSettings
from bos_mcp_db import service as mcp_db
from bos_mcp_db.settings import McpDbSettings
from bos_memory import service as memory
from bos_memory.settings import MemorySettings
from bos_planner import service as planner
from bos_planner.settings import PlannerSettings
from bos_postgres import EmbeddedPostgres
from bos_sandbox import service as sandbox
from bos_sandbox.settings import SandboxSettings
from bos_standalone.agents import agent_factory, installed_agents
from bos_standalone.data_folder import BOOTSTRAP_FILE, LOG_FILE, DataFolder, own_folder
from bos_standalone.given import plain, require_secrets, today
from bos_standalone.group import ServiceGroup
from bos_standalone.rest import DEFAULT_PORT, Rest, behind_proxies, find_binary, serve_rest
from bos_standalone.stores import (
    COMPANY_DATABASE,
    STORE_DATABASE,
    company_database,
    ensure_database,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from bos_chassis.server import GrpcServer
    from bos_chassis.telemetry import Telemetry
    from bos_demo.service import Demo
    from bos_standalone.agents import AgentFactory
    from bos_standalone.settings import StandaloneSettings

_HOST = "127.0.0.1"
_ARTEFACTS = "artefacts"
_SCRIPTED = "scripted"


@dataclass(frozen=True, slots=True)
class Standalone:
    """A running house, and what its users need to know."""

    target: str
    """Address of the gateway."""
    api_key: str = field(repr=False)
    """Its key, for the local user; kept over restarts. Empty where everybody has to sign in."""
    context: Mapping[str, str]
    """What questions should carry: the sample company's fixed today."""
    questions: tuple[str, ...]
    """Questions that the sample company and the scripted model can answer; may be empty."""
    addresses: Mapping[str, str]
    """Where each service listens, by name."""
    model: str
    """Which model answers, for people."""
    log_file: Path
    """What the services say, if this is a process of its own."""
    group: ServiceGroup = field(repr=False)
    rest_url: str = ""
    """Where REST is; empty if it is not offered."""
    rest_missing: str = ""
    """Why REST is not offered, for people; empty if it is, or is not wanted."""
    bootstrap_file: Path | None = None
    """What holds the token of the first account, unless anybody here may make it."""


@asynccontextmanager
async def serve_all(
    settings: StandaloneSettings, telemetry: Telemetry, *, agents: Mapping[str, str] | None = None
) -> AsyncIterator[Standalone]:
    """Start every service, and end them in order when the context is left.

    Args:
        settings: Of the composition; each service reads its own.
        telemetry: Shared by all.
        agents: ``module:serve`` of each agent by its name; None: those that are installed.

    Raises:
        ConfigurationError: the data folder is in use, or settings contradict one another.
        ServiceNotStarted: a service could not be started; names it.
    """
    with own_folder(settings.data_dir) as folder:
        async with ServiceGroup(telemetry.logger("bos.standalone")) as group:
            yield await _House(settings, telemetry, folder, group, agents).start()


class _House:
    """Starts the services: those that stand on nothing first, side by side where they can."""

    def __init__(
        self,
        settings: StandaloneSettings,
        telemetry: Telemetry,
        folder: DataFolder,
        group: ServiceGroup,
        agents: Mapping[str, str] | None,
    ) -> None:
        self._settings = settings
        self._telemetry = telemetry
        self._folder = folder
        self._group = group
        self._private_key, self._public_key = generate_keypair()
        # REST's own: what it says of its callers' addresses is believed, and nobody else's word.
        self._rest_private_key, self._rest_public_key = generate_keypair()
        self._issuer = self._audience = ""
        self._gateway_address = self._memory_address = ""
        # All settings are read before anything starts, so that a wrong one costs no time.
        self._auth_given = AuthSettings.load()
        require_secrets(settings.host, self._auth_given)
        self._mcp_db = McpDbSettings.load(server=self._server())
        self._own_database = bool(self._mcp_db.database_url or self._mcp_db.databases)
        self._models = ModelSettings.load()
        found = installed_agents() if agents is None else agents
        self._agents = {name: agent_factory(name, target) for name, target in found.items()}
        self._rest_binary = find_binary(settings.rest_binary)

    async def start(self) -> Standalone:
        scripted = self._wants_scripted_model()
        postgres, sandbox_server = await self._foundation()
        company = await self._company(postgres)
        store = await self._store(postgres)
        models, mcp_server = await self._group.start(
            models=partial(Models, self._model_settings(company, scripted), self._telemetry),
            mcp_db=await self._mcp_db_service(company),
        )
        offered = {
            "mcp_url": mcp_server.url,
            "sandbox_target": sandbox_server.address,
            **({"metadata_path": company.metadata_path} if company else {}),
        }
        api_key = self._api_key()
        identity_service = self._identity_service(store, api_key)
        planner_server, composer_server, *others = await self._group.start(
            planner=self._inside(
                "planner",
                planner.serve,
                PlannerSettings.load(server=self._server()),
                models=models,
            ),
            composer=self._inside(
                "composer",
                composer.serve,
                ComposerSettings.load(server=self._server()),
                models=models,
            ),
            **{
                name: self._agent_service(name, factory, models, offered)
                for name, factory in self._agents.items()
            },
            **identity_service,
        )
        addresses = [server.address for server in others]
        identity_target = addresses.pop() if identity_service else ""
        agents = dict(zip(self._agents, addresses, strict=True))
        (memory_server,) = await self._group.start(
            memory=self._memory_service(store, api_key, identity_target, models)
        )
        settings = self._gateway_settings(
            self._public_auth(api_key, identity_target),
            store,
            planner_server.address,
            composer_server.address,
            agents,
            memory_server.address,
        )
        (gateway_server,) = await self._group.start(gateway=partial(self._gateway, settings))
        self._gateway_address = gateway_server.address
        self._memory_address = memory_server.address
        context = today(company) if company else {}
        operator = {
            "store_url": store,
            "planner_target": planner_server.address,
            "composer_target": composer_server.address,
            "agent_targets": agents,
            "agent_audiences": settings.agent_audiences,
            "model": self._model_name(scripted),
            "secrets_key_ids": sorted(ring.ids) if (ring := settings.secrets_key_ring()) else [],
        }
        rest, rest_missing = await self._rest(
            gateway_server.address, identity_target, memory_server.address
        )
        rest_url = rest.url if rest else ""
        missing = self._folder.announce(
            gateway_server.address,
            api_key,
            context,
            operator,
            rest_url,
            identity_target,
            memory_server.address,
        )
        if missing:
            self._telemetry.logger("bos.standalone").warning("not registered", reason=missing)
        return Standalone(
            target=gateway_server.address,
            api_key=api_key,
            context=context,
            questions=tuple(q.question for q in load_questions()) if scripted else (),
            addresses={
                "gateway": gateway_server.address,
                **({"identity": identity_target} if identity_target else {}),
                "memory": memory_server.address,
                "planner": planner_server.address,
                "composer": composer_server.address,
                **agents,
                "sandbox": sandbox_server.address,
                "mcp_db": mcp_server.address,
                **({"rest": rest.url} if rest else {}),
            },
            model=self._model_name(scripted),
            log_file=self._folder.path / LOG_FILE,
            group=self._group,
            rest_url=rest_url,
            rest_missing=rest_missing,
            bootstrap_file=self._bootstrap_file(),
        )

    def _identity_service(self, store: str, api_key: str) -> dict[str, Any]:
        """How to start identity, by its name; empty if another issuer takes its place."""
        if self._auth_given.names_issuer:
            return {}
        settings = IdentitySettings.load(
            server=self._server(self._settings.host, self._settings.identity_port),
            auth=self._public_auth(api_key, ""),
            store_url=store,
        )
        update: dict[str, Any] = {}
        if settings.key_encryption_keys is None and not settings.signing_key_files:
            update["key_encryption_keys"] = SecretStr(self._folder.identity_keys())
        if self._first_is_made_by_token() and settings.bootstrap_token is None:
            update["bootstrap_token"] = SecretStr(self._folder.bootstrap_token())
        self._issuer, self._audience = settings.issuer, settings.audience
        settings, telemetry = settings.model_copy(update=update), self._telemetry.named("identity")
        proxied = behind_proxies() or self._auth_given.proxy_public_keys is not None
        serve = partial(identity.serve, account_data=self._account_data, proxied=proxied)
        return {"identity": partial(serve, settings, telemetry)}

    def _account_data(self) -> Mapping[str, str]:
        """What holds data of accounts; these start after identity."""
        found = {"gateway": self._gateway_address, "memory": self._memory_address}
        return found if all(found.values()) else {}  # never a part: it would pass for all

    def _first_is_made_by_token(self) -> bool:
        """Whether strangers could come first: whoever registers first administers."""
        return not (is_loopback(self._settings.host) or self._auth_given.names_issuer)

    def _bootstrap_file(self) -> Path | None:
        file = self._folder.path / BOOTSTRAP_FILE
        return file if self._first_is_made_by_token() and file.exists() else None

    def _memory_service(
        self, store: str, api_key: str, identity_target: str, models: Models
    ) -> Any:
        """People call it, and so does the gateway, with its run tokens."""
        auth = self._public_auth(api_key, identity_target)
        settings = MemorySettings.load(
            server=self._server(self._settings.host),
            auth=auth.model_copy(update={"run_token_public_keys": self._public_key}),
            store_url=store,
        )
        return partial(memory.serve, settings, self._telemetry.named("memory"), models=models)

    async def _rest(
        self, gateway_target: str, identity_target: str, memory_target: str
    ) -> tuple[Rest | None, str]:
        """The REST gateway, or why there is none."""
        if not self._settings.rest:
            return None, ""
        if self._rest_binary is None:
            return None, "REST is not offered: its program is not built; `make rest` builds it."
        wanted = self._settings.rest_port
        ports = (self._folder.last_rest_port or DEFAULT_PORT, 0) if wanted is None else (wanted,)
        (running,) = await self._group.start(
            rest=partial(
                serve_rest,
                self._rest_binary,
                gateway_target=gateway_target,
                identity_target=identity_target,
                memory_target=memory_target,
                signing_key=self._folder.rest_key(self._rest_private_key),
                # Without identity it knows of nobody who could ask for tokens: loopback only.
                host=self._settings.host if identity_target else _HOST,
                ports=ports,
                grace_s=self._settings.grace_s,
                log=self._telemetry.named("rest").logger("bos.rest"),
            )
        )
        rest: Rest = running
        return rest, ""

    async def _foundation(self) -> tuple[EmbeddedPostgres | None, GrpcServer]:
        """The embedded server, unless nobody needs it, and the sandbox."""
        sandboxes = self._for_steps(
            sandbox.AUDIENCE, sandbox.serve, SandboxSettings.load(server=self._server())
        )
        if self._settings.store_url is not None and self._own_database:
            (sandbox_server,) = await self._group.start(sandbox=sandboxes)
            return None, sandbox_server
        postgres, sandbox_server = await self._group.start(
            postgres=partial(EmbeddedPostgres, self._folder.path / "postgres"), sandbox=sandboxes
        )
        return postgres, sandbox_server

    async def _company(self, postgres: EmbeddedPostgres | None) -> Demo | None:
        """The sample company with the scripted model, unless there is another database."""
        if self._own_database or postgres is None:
            return None
        dsn = await ensure_database(postgres.dsn(), COMPANY_DATABASE)
        (running,) = await self._group.start(
            demo=partial(
                demo.serve,
                DemoSettings.load(database_url=SecretStr(dsn)),
                self._telemetry.named("demo"),
            )
        )
        company: Demo = running
        return company

    async def _store(self, postgres: EmbeddedPostgres | None) -> str:
        if self._settings.store_url is not None or postgres is None:
            assert self._settings.store_url is not None
            return self._settings.store_url.get_secret_value()
        return await ensure_database(postgres.dsn(), STORE_DATABASE)

    async def _mcp_db_service(self, company: Demo | None) -> Any:
        settings = self._mcp_db
        if company is not None:
            settings = McpDbSettings.load(
                server=self._server(), databases={"company": await company_database(company)}
            )
        return self._for_steps(mcp_db.AUDIENCE, mcp_db.serve, settings)

    def _agent_service(
        self, name: str, factory: AgentFactory, models: Models, offered: Mapping[str, Any]
    ) -> Any:
        settings = factory.settings_with(
            server=self._server(), auth=self._internal_auth(), **offered
        ).asking(self._gateway_target)

        def start() -> AbstractAsyncContextManager[GrpcServer]:
            return factory.start(settings, telemetry=self._telemetry.named(name), models=models)

        return start

    @asynccontextmanager
    async def _gateway(self, settings: GatewaySettings) -> AsyncIterator[GrpcServer]:
        async with gateway.serve(settings, self._telemetry.named("gateway")) as server:
            yield server

    def _gateway_settings(
        self,
        auth: AuthSettings,
        store: str,
        planner_target: str,
        composer_target: str,
        agents: Mapping[str, str],
        memory_target: str,
    ) -> GatewaySettings:
        port = self._folder.gateway_port(self._settings.port)
        settings = GatewaySettings.load(
            # The metrics of all services are in one registry, so one of them offers it.
            server=ServerSettings.load(
                tls=plain(), host=self._settings.host, port=port, grace_s=self._settings.grace_s
            ),
            auth=auth,
            store_url=store,
            planner_target=planner_target,
            composer_target=composer_target,
            agent_targets=dict(agents),
            memory_target=memory_target,
            run_token_private_key=SecretStr(self._private_key),
            run_token_private_keys_file=None,
        )
        own: dict[str, Any] = {}
        if settings.secrets_keys is None:
            own["secrets_keys"] = SecretStr(self._folder.secrets_keys())
        if settings.artefacts_url is None:
            own["artefacts_url"] = (self._folder.path / _ARTEFACTS).as_uri()
        return settings.model_copy(update=own)

    def _inside(self, name: str, serve: Callable[..., Any], settings: Any, **more: Any) -> Any:
        """How to start a service that this house's gateway alone calls."""
        auth = authenticator_from(self._internal_auth(), name, "service")
        return partial(serve, settings, self._telemetry.named(name), auth=auth, **more)

    def _for_steps(self, name: str, serve: Callable[..., Any], settings: Any) -> Any:
        """How to start a service that agents call, for as long as their steps are under way."""
        telemetry = self._telemetry.named(name)

        @asynccontextmanager
        async def start() -> AsyncIterator[Any]:
            tokens = open_run_tokens(
                self._internal_auth(), name, telemetry, check_target=self._gateway_target
            )
            async with tokens as auth, serve(settings, telemetry, auth=auth) as server:
                yield server

        return start

    def _gateway_target(self) -> str:
        """Where the gateway is, which starts after those who ask it."""
        if not self._gateway_address:
            raise Unavailable("The gateway has not started yet.")
        return self._gateway_address

    def _server(self, host: str = _HOST, port: int = 0) -> ServerSettings:
        return ServerSettings.load(
            tls=plain(), host=host, port=port, metrics_port=None, grace_s=self._settings.grace_s
        )

    def _internal_auth(self) -> AuthSettings:
        """Inside, run tokens of this house's gateway are all that counts."""
        return AuthSettings.load(
            static_key=None,
            static_keys_file=None,
            run_token_public_keys=self._public_key,
            run_token_public_keys_file=None,
            run_token_check_target=None,
        )

    def _public_auth(self, api_key: str, identity_target: str) -> AuthSettings:
        """Who may call what people call: the local user by the key, and whoever signed in."""
        update: dict[str, Any] = {
            "static_key": SecretStr(api_key) if api_key else None,
            **dict.fromkeys(("run_token_public_keys", "run_token_public_keys_file")),
            "proxy_public_keys": "\n".join(
                filter(None, (self._auth_given.proxy_public_keys, self._rest_public_key))
            ),
        }
        if "static_key_user" not in self._auth_given.model_fields_set:
            update["static_key_user"] = str(LOCAL_USER_ID)
        if "static_key_roles" not in self._auth_given.model_fields_set and is_loopback(
            self._settings.host
        ):
            update["static_key_roles"] = ROLES  # whoever holds it owns the machine
        if identity_target:
            update |= {
                "issuer": self._issuer,
                "audience": self._audience,
                "identity_target": identity_target,
            }
        return self._auth_given.model_copy(update=update)

    def _api_key(self) -> str:
        """The key that signs in the local user: on loopback there always is one."""
        given = self._auth_given.static_key
        if given is not None:
            return given.get_secret_value()
        return self._folder.api_key if is_loopback(self._settings.host) else ""

    def _wants_scripted_model(self) -> bool:
        """Whether the scripted model answers: there is no other, and it knows the database.

        Raises:
            ConfigurationError: a model is configured, but not enough of it.
        """
        settings = self._models
        missing = settings.missing("", settings.get_agent_model_config(""))
        if not missing:
            return False
        if settings.base_url or settings.azure_endpoint or settings.provider:
            raise ConfigurationError(
                f"A model is configured, but not completely: set {' and '.join(missing)}."
            )
        return not self._own_database

    def _model_settings(self, company: Demo | None, scripted: bool) -> ModelSettings:
        if not scripted or company is None:
            return self._models
        # It costs nothing, and says so: a model without a price is worth a warning.
        prices = {_SCRIPTED: ModelPrice(input=0, output=0)}
        return ModelSettings.load(base_url=company.model_base_url, model=_SCRIPTED, prices=prices)

    def _model_name(self, scripted: bool) -> str:
        if scripted:
            return "the scripted demo model"
        config = self._models.get_agent_model_config("")
        missing = self._models.missing("", config)
        return "none: plans and answers follow fixed rules" if missing else config.model
