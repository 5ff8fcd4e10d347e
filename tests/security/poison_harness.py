"""Documents, rag, an agent with effects, planner, composer and gateway, before one model."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from documents_harness import Caller

from bos.documents.v1 import DocumentsServiceStub
from bos.gateway.v1 import Approval
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_composer.service import serve as serve_composer
from bos_composer.settings import ComposerSettings
from bos_documents.service import serve as serve_documents
from bos_documents.settings import DocumentsSettings
from bos_gateway.service import serve as serve_gateway
from bos_gateway.settings import GatewaySettings
from bos_llm import Models
from bos_planner.service import serve as serve_planner
from bos_planner.settings import PlannerSettings
from bos_postgres import create_database
from bos_rag.service import serve as serve_rag
from bos_rag.settings import RagSettings
from bos_testkit.agents import EchoAgent, agent_server
from bos_testkit.deploy import DeployAgent
from bos_testkit.runs import SeenRun
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import Fixture
from bos_testkit.scripted_model.server import ScriptedModel

from .obeying_model import improvise


class PoisonRun(SeenRun):
    """A run, and what a person was asked in it."""

    def __init__(self, events: list[Any], asked: list[Approval]) -> None:
        super().__init__(events)
        object.__setattr__(self, "asked", asked)

    asked: list[Approval]

    @property
    def streamed(self) -> str:
        """The answer as its client saw it being written."""
        return "".join(
            each.answer_delta.text for each in self.events if each.HasField("answer_delta")
        )


@dataclass
class PoisonHarness:
    """The running services."""

    client: BosClient
    documents: Caller
    model: ScriptedModel
    agent: DeployAgent

    @asynccontextmanager
    async def holding(self, content: bytes, name: str) -> AsyncIterator[str]:
        """A document that is read and can be searched, deleted with the block; its id."""
        self.model.requests.clear()
        document = await self.documents.ready(content, name)
        try:
            yield document.document_id
        finally:
            await self.documents.delete(document.document_id)

    async def ask(self, question: str, *, approve: bool = False, **options: Any) -> PoisonRun:
        """Follow a run to its end; everything that it asks about is approved, or denied."""
        events: list[Any] = []
        asked: list[Approval] = []
        async with aclosing(self.client.ask_stream(question, **options)) as stream:
            async for event in stream:
                events.append(event)
                if event.HasField("approval_requested"):
                    approval = event.approval_requested.approval
                    asked.append(approval)
                    decide = self.client.approve if approve else self.client.deny
                    await decide(approval.approval_id)
        return PoisonRun(events, asked)

    def replies(self) -> Iterator[tuple[str | None, str]]:
        """What the model said, and the form it was asked for."""
        return ((each.schema, each.reply) for each in self.model.requests)


@asynccontextmanager
async def open_poison_harness(
    dsn: str, folder: Path, fixtures: list[Fixture]
) -> AsyncIterator[PoisonHarness]:
    """The real services; only the model is ours.

    Args:
        dsn: Of a database server.
        folder: Where files, index and spool go.
        fixtures: What the model says where it does not improvise.
    """
    telemetry = Telemetry.for_tests("poison")
    server = ServerSettings(port=0, grace_s=0.2)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        model = await enter(ScriptedModel(fixtures, improvise=improvise))
        models = await enter(Models(model_settings(model, max_attempts=1), telemetry))
        documents_dsn = await create_database(dsn, "poison_documents")
        (folder / "spool").mkdir()
        found = await enter(
            serve_documents(
                DocumentsSettings.load(
                    server=server,
                    store_url=documents_dsn,
                    files_url=(folder / "files").as_uri(),
                    index_folder=folder / "index",
                    spool_folder=folder / "spool",
                    poll_s=0.2,
                ),
                telemetry.named("documents"),
                models=models,
            )
        )
        rag = await enter(
            serve_rag(
                RagSettings.load(
                    server=server, auth=AuthSettings.load(), documents_target=found.address
                ),
                telemetry.named("rag"),
                models=models,
            )
        )
        planner = await enter(
            serve_planner(PlannerSettings.load(server=server), telemetry, models=models)
        )
        composer = await enter(
            serve_composer(ComposerSettings.load(server=server), telemetry, models=models)
        )
        agent = DeployAgent()
        targets = {
            "rag": rag.address,
            "deploy": await enter(agent_server(agent)),
            "echo": await enter(agent_server(EchoAgent("echo"))),
        }
        gateway = await enter(
            serve_gateway(
                GatewaySettings.load(
                    server=server,
                    store_url=await create_database(dsn, "poison_runs"),
                    planner_target=planner.address,
                    composer_target=composer.address,
                    agent_targets=",".join(f"{name}={at}" for name, at in targets.items()),
                    backoff_s=0.01,
                ),
                telemetry.named("gateway"),
            )
        )
        client = await enter(BosClient(gateway.address))
        channel = await enter(grpc.aio.insecure_channel(found.address))
        stub = DocumentsServiceStub(channel)
        caller = Caller(stub, None, telemetry, documents_dsn, folder, address=found.address)
        yield PoisonHarness(client, caller, model, agent)
