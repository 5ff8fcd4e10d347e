"""Real services over TLS at addresses that outlive them, so that each can go away and come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc
from gateway_harness.postgres_proxy import Proxy, postgres_proxy

from bos_chassis.metrics.exposition import metrics_server
from bos_chassis.settings import ServerSettings, TlsSettings
from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_composer.service import serve as serve_composer
from bos_composer.settings import ComposerSettings
from bos_computation.service import serve as serve_computation
from bos_computation.settings import ComputationSettings
from bos_demo.company import DEFAULT_TODAY
from bos_demo.scripted.replies import composer_section, demo_fixtures
from bos_documents.service import serve as serve_documents
from bos_documents.settings import DocumentsSettings
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.service import serve as serve_gateway
from bos_gateway.settings import GatewaySettings
from bos_llm import Models
from bos_mcp_db.service import serve as serve_mcp_db
from bos_mcp_db.settings import DatabaseSettings, McpDbSettings
from bos_memory.service import serve as serve_memory
from bos_memory.settings import MemorySettings
from bos_planner.service import serve as serve_planner
from bos_planner.settings import PlannerSettings
from bos_postgres import connect
from bos_rag.service import serve as serve_rag
from bos_rag.settings import RagSettings
from bos_sandbox.service import serve as serve_sandbox
from bos_sandbox.settings import SandboxSettings
from bos_sql.service import serve as serve_sql
from bos_sql.settings import SqlSettings
from bos_testkit.certificates import Authority
from bos_testkit.processes import free_port
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import Fixture, fixture
from bos_testkit.scripted_model.server import ScriptedModel

from .chain_replies import DOCS, DOCUMENT
from .effects_trial.gates import Gate
from .harness import TODAY, Outcome, plan_reply, planned, program_reply, query_replies
from .library import upload_source

Make: TypeAlias = Callable[[ServerSettings, Telemetry], AbstractAsyncContextManager[Any]]
AGENTS: Final = ("sql", "computation", "rag")
_LONGEST_RUN_S = 120.0
_SLOW_LINK_S = 0.02
LIST_TABLES: Final = "List all tables in the database"
BOTH: Final = "Name the regions and add the numbers up"
SEARCHED: Final = "Look the flights up and add the numbers up"
_SUM = planned("sum", "computation", "add the numbers up")
REPLIES: Final = (
    plan_reply(BOTH, planned("regions", "sql", "name the regions"), _SUM),
    plan_reply(SEARCHED, planned("passages", "rag", DOCS.task), _SUM),
    *query_replies("name the regions", "SELECT region_name FROM regions", "regions"),
    program_reply("add the numbers up", "result = {'total': 4000 + 321}"),
    *(
        fixture(f"answer: {question}", [composer_section(question)], text="It is in the results.")
        for question in (BOTH, SEARCHED)
    ),
)


@dataclass
class Part:
    """A service behind a link that can be slow; both keep their ports."""

    name: str
    make: Make
    tls: TlsSettings
    """Its certificate, whose files may be replaced."""
    behind: int = field(default_factory=free_port)
    port: int = field(default_factory=free_port)
    metrics_port: int = field(default_factory=free_port)
    """Where Prometheus reads it, while it runs."""
    _running: AsyncExitStack | None = None

    def __post_init__(self) -> None:
        self.link = Gate(self.behind, self.port)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it, and the link to it; its metrics begin anew."""
        self._running = AsyncExitStack()
        enter = self._running.enter_async_context
        telemetry = Telemetry.for_tests(self.name)
        server = ServerSettings(port=self.behind, grace_s=0.2, tls=self.tls)
        await enter(self.make(server, telemetry))
        await enter(metrics_server(telemetry.registry, "127.0.0.1", self.metrics_port))
        await enter(self.link.listening())

    async def stop(self) -> None:
        """Stop it, if it runs: connections are refused from then on."""
        if self._running is not None:
            running, self._running = self._running, None
            await running.aclose()


@dataclass
class FaultsHarness:
    client: BosClient
    model: ScriptedModel
    parts: dict[str, Part]
    certificates: Certificates
    postgres: Proxy
    """Between the gateway and its run log."""
    store_url: str
    metrics_port: int
    """Of the gateway, and of all calls of models."""
    asked: int = 0

    @property
    def metrics_ports(self) -> list[int]:
        """Where Prometheus reads all services."""
        return [self.metrics_port, *(part.metrics_port for part in self.parts.values())]

    async def ask(self, question: str, conversation: str = "") -> Outcome:
        self.asked += 1
        async with asyncio.timeout(_LONGEST_RUN_S):
            stream = self.client.ask_stream(
                question, context=TODAY, trace=True, conversation_id=conversation
            )
            return Outcome([event async for event in stream])

    async def ask_at_once(self, question: str, times: int) -> list[Outcome]:
        return list(await asyncio.gather(*(self.ask(question) for _ in range(times))))

    def slow_down(self, *, slow: bool) -> None:
        for part in self.parts.values():
            part.link.delay_s = _SLOW_LINK_S if slow else 0.0

    async def count(self, what: str) -> int:
        """A number that the run log knows, as a SQL expression over its tables."""
        async with connect(self.store_url, schema=SCHEMA) as session:
            return int(await session.fetchval(f"SELECT {what}"))


class Certificates:
    """What services show one another, good for as long as no alert asks for.

    Args:
        authority: Whose certificates they are.
        left: How long they are good.
    """

    def __init__(self, authority: Authority, left: timedelta) -> None:
        self._authority = authority
        self._left = left

    def issue(self, service: str, *, expired: bool = False) -> TlsSettings:
        issued = self._authority.issue(service, expired=expired, left=self._left)
        return issued.model_copy(update={"refresh_s": 0.1})

    def credentials(self) -> grpc.ChannelCredentials:
        tls = self.issue("outside")
        assert tls.ca_file is not None
        assert tls.key_file is not None
        assert tls.cert_file is not None
        files = (tls.ca_file, tls.key_file, tls.cert_file)
        return grpc.ssl_channel_credentials(*(file.read_bytes() for file in files))


@asynccontextmanager
async def open_faults_harness(
    company: DatabaseSettings,
    store_url: str,
    more_url: str,
    folder: Path,
    certificates: Certificates,
    replies: Sequence[Fixture],
) -> AsyncIterator[FaultsHarness]:
    """Planner, composer, memory, three agents with what they call, and a gateway that retries soon.

    Args:
        company: The sample company, as mcp_db sees it.
        store_url: Migrated database of the run log.
        more_url: Empty database, of memory and documents.
        folder: Where files go.
        certificates: Of all services.
        replies: Replies of the model beside those to the demo questions.
    """
    telemetry = Telemetry.for_tests("faults")
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        model = await enter(ScriptedModel([*demo_fixtures(DEFAULT_TODAY), *replies]))
        short = {"retry_base_s": 0.001, "retry_cap_s": 0.002, "breaker_s": 0.001}
        models = await enter(Models(model_settings(model, **short), telemetry))
        parts: dict[str, Part] = {}
        for name, make in _services(company, more_url, folder, models, parts).items():
            parts[name] = Part(name, make, certificates.issue(name))
            stack.push_async_callback(parts[name].stop)
        for part in parts.values():
            await part.start()
        credentials = certificates.credentials()
        async with grpc.aio.secure_channel(parts["documents"].address, credentials) as channel:
            await upload_source(channel, DOCUMENT)
        postgres = await enter(postgres_proxy(store_url))
        outside = {"client_certificates": False}
        gateway = await enter(
            serve_gateway(
                GatewaySettings.load(
                    server=ServerSettings(
                        port=0,
                        grace_s=0.2,
                        tls=certificates.issue("gateway").model_copy(update=outside),
                    ),
                    store_url=postgres.dsn,
                    planner_target=parts["planner"].address,
                    composer_target=parts["composer"].address,
                    memory_target=parts["memory"].address,
                    agent_targets={name: parts[name].address for name in AGENTS},
                    backoff_s=0.01,
                    restart_wait_s=0,
                    lease_s=15,
                ),
                telemetry.named("gateway"),
            )
        )
        port = await enter(metrics_server(telemetry.registry, "127.0.0.1", free_port()))
        client = await enter(BosClient(gateway.address, credentials=credentials))
        yield FaultsHarness(client, model, parts, certificates, postgres, store_url, port)


def _services(
    company: DatabaseSettings, dsn: str, folder: Path, models: Models, parts: dict[str, Part]
) -> dict[str, Make]:

    def of(serve: Any, settings: Any, /, targets: Any = dict, **options: Any) -> Make:
        given = {name: options.pop(name) for name in ("models",) if name in options}
        return lambda server, telemetry: serve(
            settings.load(server=server, **options, **targets()), telemetry, **given
        )

    return {
        "mcp_db": of(serve_mcp_db, McpDbSettings, databases={"company": company}),
        "sandbox": of(serve_sandbox, SandboxSettings, warm_workers=1),
        "planner": of(serve_planner, PlannerSettings, models=models),
        "composer": of(serve_composer, ComposerSettings, models=models),
        "memory": of(serve_memory, MemorySettings, store_url=dsn, models=None),
        "documents": of(
            serve_documents,
            DocumentsSettings,
            store_url=dsn,
            files_url=(folder / "files").as_uri(),
            index_folder=folder / "index",
            spool_folder=folder / "spool",
            models=None,
        ),
        "sql": of(
            serve_sql,
            SqlSettings,
            lambda: {"mcp_url": f"https://{parts['mcp_db'].address}/mcp"},
            models=models,
        ),
        "computation": of(
            serve_computation,
            ComputationSettings,
            lambda: {"sandbox_target": parts["sandbox"].address},
            models=models,
        ),
        "rag": of(
            serve_rag,
            RagSettings,
            lambda: {"documents_target": parts["documents"].address},
            models=models,
        ),
    }
