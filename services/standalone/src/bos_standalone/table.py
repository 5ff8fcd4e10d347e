"""Table of a standalone's services: how each is configured, what it needs, how it starts.

Rows are in the order in which their addresses are displayed; the start order follows from needs.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from bos_chassis.auth.callers import authenticator_from
from bos_chassis.auth.run_token_checks import open_run_tokens
from bos_chassis.settings import ServerSettings, is_loopback
from bos_composer import service as composer
from bos_composer.settings import ComposerSettings
from bos_demo import service as demo
from bos_demo.settings import DemoSettings
from bos_documents import service as documents
from bos_documents.settings import DocumentsSettings
from bos_errors import ConfigurationError, Unavailable
from bos_gateway import service as gateway
from bos_gateway.settings import GatewaySettings
from bos_identity import service as identity
from bos_identity.settings import IdentitySettings
from bos_llm import Models
from bos_mcp_db import service as mcp_db
from bos_mcp_db.settings import McpDbSettings
from bos_memory import service as memory
from bos_memory.settings import MemorySettings
from bos_planner import service as planner
from bos_planner.settings import PlannerSettings
from bos_postgres import EmbeddedPostgres
from bos_protocols import service as protocols
from bos_protocols.settings import ProtocolsSettings
from bos_sandbox import service as sandbox
from bos_sandbox.settings import SandboxSettings
from bos_standalone.agents import AUDIENCES, CONNECTIONS
from bos_standalone.callers import Callers
from bos_standalone.given import ModelChoice, plain, require_secrets, today
from bos_standalone.group import not_started
from bos_standalone.rest import DEFAULT_PORT, behind_proxies, find_binary, serve_rest
from bos_standalone.stores import (
    COMPANY_DATABASE,
    STORE_DATABASE,
    company_database,
    ensure_database,
)
from bos_standalone.wiring import Row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

    from bos_chassis.settings import AuthSettings, Settings
    from bos_chassis.telemetry import Telemetry
    from bos_standalone.agents import AgentFactory
    from bos_standalone.data_folder import DataFolder
    from bos_standalone.settings import StandaloneSettings
    from bos_standalone.wiring import Running, Start

_HOST = "127.0.0.1"
_ARTEFACTS = "artefacts"
_DOCUMENTS = "documents"
OFFERS: Mapping[str, tuple[str, str]] = {
    "store_url": ("store", "url"),
    "planner_target": ("planner", "address"),
    "composer_target": ("composer", "address"),
    "memory_target": ("memory", "address"),
    "documents_target": ("documents", "address"),
    "sandbox_target": ("sandbox", "address"),
    "mcp_url": ("mcp_db", "url"),
    "metadata_path": ("demo", "metadata_path"),
    "sample_api": ("demo", "sample_api"),
    "sample_servers": ("demo", "sample_servers"),
    "search_provider": ("demo", "search_provider"),
    "search_url": ("demo", "search_url"),
    "search_key": ("demo", "search_key"),
    "search_networks": ("demo", "search_networks"),
    "site_origins": ("demo", "site_origins"),
}
"""Settings filled in from running services: the row, and the attribute with the value.

A service or an agent that has such a setting starts after that row.
"""


@dataclass(frozen=True, slots=True)
class Store:
    """Database of run log, identity and memory."""

    url: str


class Composition:
    """The services of one start as rows; settings that need no running service are read first.

    Args:
        settings: Of the standalone.
        telemetry: Shared by all services.
        folder: Data that is kept between starts.
        agents: How each agent is started, by name.

    Raises:
        ConfigurationError: settings are wrong, or contradict one another.
    """

    def __init__(
        self,
        settings: StandaloneSettings,
        telemetry: Telemetry,
        folder: DataFolder,
        agents: Mapping[str, AgentFactory],
    ) -> None:
        self._settings = settings
        self._telemetry = telemetry
        self._folder = folder
        self._agents = agents
        self._callers = Callers(settings.host, folder)
        require_secrets(settings.host, self._callers.given)
        self._mcp_db_settings = McpDbSettings.load(server=self._server())
        self._own_database = bool(
            self._mcp_db_settings.database_url or self._mcp_db_settings.databases
        )
        if self._own_database:
            try:
                self._mcp_db_settings.named_databases()
            except ConfigurationError as error:  # said before anything starts
                raise not_started("mcp_db", error) from error
        self.model = ModelChoice(own_database=self._own_database)
        self.rest_binary = find_binary(settings.rest_binary)
        self.running: dict[str, Any] = {}
        """Running services by row."""
        self.gateway_settings: GatewaySettings | None = None
        """Set when the gateway starts."""
        self._identity_settings: IdentitySettings | None = None
        self.rows = self._rows()

    @property
    def api_key(self) -> str:
        """API key of the local user; empty where all users have to sign in."""
        return self._callers.api_key

    @property
    def first_is_made_by_token(self) -> bool:
        """Whether the first account, which is the administrator's, needs the bootstrap token.

        It does where others than the user of this machine can reach identity.
        """
        return not (is_loopback(self._settings.host) or self._callers.given.names_issuer)

    def address(self, name: str) -> str:
        """Address of a row; empty if it does not run."""
        return self.running[name].address if name in self.running else ""

    def _rows(self) -> Sequence[Row]:
        embedded = self._settings.store_url is None or not self._own_database
        with_identity = not self._callers.given.names_issuer
        with_rest = self._settings.rest and self.rest_binary is not None
        return [
            _row("gateway", self._gateway, GatewaySettings, "identity", *self._agents),
            _row("identity", self._identity, IdentitySettings, wanted=with_identity),
            _row("memory", self._memory, MemorySettings, "models", "identity"),
            _row("documents", self._documents, DocumentsSettings, "models", "identity"),
            _row(
                "planner",
                self._for_gateway("planner", planner.serve, PlannerSettings),
                PlannerSettings,
                "models",
            ),
            _row(
                "composer",
                self._for_gateway("composer", composer.serve, ComposerSettings),
                ComposerSettings,
                "models",
            ),
            *(
                _row(name, self._agent(name, factory), factory.settings, *_agent_needs(factory))
                for name, factory in self._agents.items()
            ),
            _row("sandbox", self._sandbox, SandboxSettings),
            _row("mcp_db", self._mcp_db, McpDbSettings, "demo", *self._with_files()),
            _row(
                "protocols",
                self._protocols,
                ProtocolsSettings,
                "gateway",
                "documents",
                wanted=with_rest,
            ),
            Row(
                "rest",
                self._rest,
                (
                    *("gateway", "identity", "memory", "documents", "protocols", "demo"),
                    *self._serving_people(),
                ),
                "url",
                with_rest,
            ),
            Row("models", self._models, ("demo",)),
            Row("demo", self._demo, ("postgres",), wanted=not self._own_database),
            Row("store", self._store, ("postgres",)),
            Row("postgres", self._postgres, wanted=embedded),
        ]

    def _postgres(self, running: Running) -> Start:
        return partial(EmbeddedPostgres, self._folder.path / "postgres")

    def _store(self, running: Running) -> Start:
        own = self._settings.store_url

        @asynccontextmanager
        async def start() -> AsyncIterator[Store]:
            if own is not None:
                yield Store(own.get_secret_value())
            else:
                yield Store(await ensure_database(running["postgres"].dsn(), STORE_DATABASE))

        return start

    def _demo(self, running: Running) -> Start:
        """The sample company and the scripted model, unless another database is configured."""

        @asynccontextmanager
        async def start() -> AsyncIterator[demo.Demo]:
            dsn = await ensure_database(running["postgres"].dsn(), COMPANY_DATABASE)
            with_mailbox = self._settings.demo_mailbox and "mail" in self._agents
            settings = DemoSettings.load(
                database_url=SecretStr(dsn), mailbox=with_mailbox and bool(self.api_key)
            )
            async with demo.serve(settings, self._telemetry.named("demo")) as company:
                yield company

        return start

    def _models(self, running: Running) -> Start:
        return partial(Models, self.model.settings(running.get("demo")), self._telemetry)

    def _sandbox(self, running: Running) -> Start:
        settings = SandboxSettings.load(server=self._server())
        return self._for_steps(sandbox.AUDIENCE, sandbox.serve, settings)

    def _mcp_db(self, running: Running) -> Start:
        company: demo.Demo | None = running.get("demo")
        files = {"files_target": self.address("files")} if self._with_files() else {}
        if company is None:
            own = self._mcp_db_settings.model_copy(update=files)
            return self._for_steps(mcp_db.AUDIENCE, mcp_db.serve, own)

        @asynccontextmanager
        async def start() -> AsyncIterator[Any]:
            databases = {"company": await company_database(company)}
            settings = McpDbSettings.load(server=self._server(), databases=databases, **files)
            async with self._for_steps(mcp_db.AUDIENCE, mcp_db.serve, settings)() as server:
                yield server

        return start

    def _with_files(self) -> Sequence[str]:
        """The row of the files agent, whose files are tables at mcp_db, if it is installed."""
        return ("files",) if "files" in self._agents else ()

    def _agent(self, name: str, factory: AgentFactory) -> Callable[[Running], Start]:
        def make(running: Running) -> Start:
            public = factory.settings.serves_people
            settings = factory.settings_with(
                server=self._server(self._settings.host) if public else self._server(),
                auth=self._public_auth(run_tokens=True) if public else self._callers.internal(),
                workspace_url=(self._folder.path / name).as_uri(),
                **offered(running, factory.settings.model_fields),
            ).asking(self._gateway_target)
            telemetry, models = self._telemetry.named(name), running["models"]
            return lambda: factory.start(settings, telemetry=telemetry, models=models)

        return make

    def _identity(self, running: Running) -> Start:
        loaded = IdentitySettings.load(
            server=self._server(self._settings.host, self._settings.identity_port),
            auth=self._callers.public(run_tokens=True),
            **offered(running, IdentitySettings.model_fields),
        )
        update: dict[str, Any] = {}
        if loaded.key_encryption_keys is None and not loaded.signing_key_files:
            update["key_encryption_keys"] = SecretStr(self._folder.identity_keys())
        if self.first_is_made_by_token and loaded.bootstrap_token is None:
            update["bootstrap_token"] = SecretStr(self._folder.bootstrap_token())
        self._identity_settings = settings = loaded.model_copy(update=update)
        return partial(
            identity.serve,
            settings,
            self._telemetry.named("identity"),
            account_data=self._account_data,
            proxied=behind_proxies() or self._callers.given.proxy_public_keys is not None,
        )

    def _account_data(self) -> Mapping[str, str]:
        """Services that hold data of accounts; they start after identity."""
        names = ("gateway", "memory", "documents", *self._serving_people())
        found = {name: self.address(name) for name in names}
        # Never some of them: identity would take these for all.
        return found if all(found.values()) else {}

    def _serving_people(self) -> Sequence[str]:
        """Agents whose address offers a service to people too, and that hold data of theirs."""
        return [name for name, each in self._agents.items() if each.settings.serves_people]

    def _memory(self, running: Running) -> Start:
        """Memory, called by users and by the gateway with its run tokens."""
        settings = MemorySettings.load(
            server=self._server(self._settings.host),
            auth=self._public_auth(run_tokens=True),
            **offered(running, MemorySettings.model_fields),
        )
        telemetry = self._telemetry.named("memory")
        return partial(memory.serve, settings, telemetry, models=running["models"])

    def _documents(self, running: Running) -> Start:
        """Documents, called by users and by steps whose run token names it."""
        given: dict[str, Any] = offered(running, DocumentsSettings.model_fields)
        loaded = {
            "server": self._server(self._settings.host),
            "auth": self._public_auth(run_tokens=True),
            **given,
        }
        path = self._folder.path / _DOCUMENTS
        settings = DocumentsSettings.load(
            **{"files_url": (path / "files").as_uri(), "index_folder": path / "index"} | loaded
        )
        return partial(
            documents.serve,
            settings,
            self._telemetry.named("documents"),
            models=running["models"],
            check_target=self._gateway_target,
        )

    def _gateway(self, running: Running) -> Start:
        port = self._folder.gateway_port(self._settings.port)
        settings = GatewaySettings.load(
            # All services share one metrics registry, so the gateway alone exposes it.
            server=ServerSettings.load(
                tls=plain(),
                host=self._settings.host,
                port=port,
                grace_s=self._settings.grace_s,
            ),
            auth=self._public_auth(),
            agent_targets={name: running[name].address for name in self._agents},
            run_token_private_key=SecretStr(self._callers.run_token_key),
            run_token_private_keys_file=None,
            **offered(running, GatewaySettings.model_fields),
        )
        own: dict[str, Any] = {}
        if settings.secrets_keys is None:
            own["secrets_keys"] = SecretStr(self._folder.secrets_keys())
        if settings.artefacts_url is None:
            own["artefacts_url"] = (self._folder.path / _ARTEFACTS).as_uri()
        if "agent_audiences" not in settings.model_fields_set:
            named = {name: each for name, each in AUDIENCES.items() if name in self._agents}
            own["agent_audiences"] = settings.agent_audiences | named
        if "agent_connections" not in settings.model_fields_set:
            own["agent_connections"] = {
                name: each for name, each in CONNECTIONS.items() if name in self._agents
            }
        self.gateway_settings = settings.model_copy(update=own)
        return partial(gateway.serve, self.gateway_settings, self._telemetry.named("gateway"))

    def _protocols(self, running: Running) -> Start:
        """The protocols service, called by REST alone."""
        settings = ProtocolsSettings.load(
            server=self._server(),
            gateway_target=self.address("gateway"),
            documents_target=self.address("documents"),
        )
        return partial(protocols.serve, settings, self._telemetry.named("protocols"))

    def _rest(self, running: Running) -> Start:
        assert self.rest_binary is not None
        wanted = self._settings.rest_port
        ports = (self._folder.last_rest_port or DEFAULT_PORT, 0) if wanted is None else (wanted,)
        identity_target = self.address("identity")
        return partial(
            serve_rest,
            self.rest_binary,
            gateway_target=self.address("gateway"),
            identity_target=identity_target,
            memory_target=self.address("memory"),
            documents_target=self.address("documents"),
            files_target=self.address("files"),
            protocols_target=self.address("protocols"),
            signing_key=self._folder.rest_key(self._callers.rest_key),
            session_keys=self._folder.session_keys(),
            console_context=today(running["demo"]) if "demo" in running else None,
            # Without identity REST cannot sign users in, so it stays on loopback.
            host=self._settings.host if identity_target else _HOST,
            ports=ports,
            grace_s=self._settings.grace_s,
            log=self._telemetry.named("rest").logger("bos.rest"),
        )

    def _for_gateway(
        self, name: str, serve: Callable[..., Any], settings: type[Settings]
    ) -> Callable[[Running], Start]:
        """How to start a service that calls a model and that only the gateway calls."""

        def make(running: Running) -> Start:
            loaded = settings.load(server=self._server(), **offered(running, settings.model_fields))
            auth = authenticator_from(self._callers.internal(), name, "service")
            telemetry = self._telemetry.named(name)
            return partial(serve, loaded, telemetry, auth=auth, models=running["models"])

        return make

    def _for_steps(self, name: str, serve: Callable[..., Any], settings: Settings) -> Start:
        """How to start a service that agents call with run tokens of running steps."""
        telemetry = self._telemetry.named(name)

        @asynccontextmanager
        async def start() -> AsyncIterator[Any]:
            tokens = open_run_tokens(
                self._callers.internal(), name, telemetry, check_target=self._gateway_target
            )
            async with tokens as auth, serve(settings, telemetry, auth=auth) as server:
                yield server

        return start

    def _gateway_target(self) -> str:
        """Address of the gateway, looked up per call: it starts after the services that call it."""
        address = self.address("gateway")
        if not address:
            raise Unavailable("The gateway has not started yet.")
        return address

    def _public_auth(self, *, run_tokens: bool = False) -> AuthSettings:
        return self._callers.public(
            self.address("identity"), self._identity_settings, run_tokens=run_tokens
        )

    def _server(self, host: str = _HOST, port: int = 0) -> ServerSettings:
        return ServerSettings.load(
            tls=plain(),
            host=host,
            port=port,
            metrics_port=None,
            health_port=None,
            grace_s=self._settings.grace_s,
        )


def _agent_needs(factory: AgentFactory) -> Sequence[str]:
    """Rows that an agent needs beyond what its settings refer to."""
    return ("models", "identity") if factory.settings.serves_people else ("models",)


def _row(
    name: str,
    start: Callable[[Running], Start],
    settings: type[Settings],
    *needs: str,
    wanted: bool = True,
) -> Row:
    """The row of a service; its needs are the rows that its settings refer to, and ``needs``."""
    named = (row for setting, (row, _) in OFFERS.items() if setting in settings.model_fields)
    return Row(name, start, tuple(dict.fromkeys((*named, *needs))), "address", wanted)


def offered(running: Running, fields: Collection[str]) -> dict[str, Any]:
    """Values for those of the settings ``fields`` that ``OFFERS`` takes from running services."""
    return {
        setting: getattr(running[row], attribute)
        for setting, (row, attribute) in OFFERS.items()
        if setting in fields and row in running
    }
