from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from bos.agent.v1 import AgentInput, AgentResult, AgentServiceStub, ExecuteRequest
from bos.common.v1 import TraceEventType
from bos.documents.v1 import (
    Chunk,
    DocumentMatch,
    DocumentsServiceServicer,
    Passage,
    SearchDocumentsResponse,
    add_DocumentsServiceServicer_to_server,
)
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value_map, to_value
from bos_llm import Models
from bos_rag.service import serve
from bos_rag.settings import RagSettings
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.server import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from bos.common.v1 import TraceEvent
    from bos.documents.v1 import SearchDocumentsRequest
    from bos_testkit.scripted_model.replies import Fixture


def passage(
    number: int, text: str, *, dense: float | None = 0.6, name: str = "contract.pdf", **chunk: Any
) -> Passage:
    """A passage as the documents service returns it."""
    about = {"first_page": number, "section_path": [f"Section {number}"], **chunk}
    found = Passage(
        chunk=Chunk(chunk_id=f"chunk-{number}", document_name=name, text=text, **about),
        score=1 / number,
    )
    if dense is not None:
        found.dense_score = dense
    return found


@dataclass
class ScriptedDocuments(DocumentsServiceServicer):
    """Returns the passages set, or those that ``under_filter`` holds where a filter is given."""

    passages: list[Passage] = field(default_factory=list)
    under_filter: list[Passage] | None = None
    searched: int = 12
    matches: list[DocumentMatch] = field(default_factory=list)
    coverage: float = 0.0
    failure: grpc.StatusCode | None = None
    requests: list[SearchDocumentsRequest] = field(default_factory=list)

    async def SearchDocuments(
        self, request: SearchDocumentsRequest, context: Any
    ) -> SearchDocumentsResponse:
        self.requests.append(request)
        if self.failure is not None:
            await context.abort(self.failure, "no")
        filtered = bool(request.filter.ByteSize()) and self.under_filter is not None
        found = (self.under_filter or []) if filtered else self.passages
        return SearchDocumentsResponse(
            passages=found[: request.limit],
            documents_searched=self.searched,
            documents=self.matches,
            coverage=self.coverage,
        )


@dataclass
class Outcome:
    """What one step gave."""

    result: AgentResult
    trace: list[TraceEvent] = field(default_factory=list)

    @property
    def data(self) -> dict[str, Any]:
        return from_value_map(self.result.data)

    def messages(self, kind: str) -> list[str]:
        wanted = TraceEventType.Value(f"TRACE_EVENT_TYPE_{kind}")
        return [event.message for event in self.trace if event.type == wanted]


@dataclass
class Rag:
    """A real agent service before scripted documents and a scripted model."""

    stub: Any
    model: ScriptedModel
    documents: ScriptedDocuments

    async def do(self, task: str, inputs: Mapping[str, Any] | None = None, **more: Any) -> Outcome:
        request = AgentInput(
            agent_id="step_1",
            agent_name="rag",
            task=task,
            sub_task_input={name: to_value(value) for name, value in (inputs or {}).items()},
            **more,
        )
        outcome = Outcome(AgentResult())
        async for message in self.stub.Execute(ExecuteRequest(input=request), timeout=60):
            if message.HasField("result"):
                outcome.result = message.result
            outcome.trace.extend(message.trace.events)
        return outcome

    def prompts(self, schema: str) -> list[str]:
        return [request.prompt for request in self.model.requests if request.schema == schema]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def documents() -> ScriptedDocuments:
    return ScriptedDocuments()


@pytest.fixture
async def documents_address(documents: ScriptedDocuments) -> AsyncIterator[str]:
    server = grpc.aio.server()
    add_DocumentsServiceServicer_to_server(documents, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


@pytest.fixture
def start(stack: AsyncExitStack, documents: ScriptedDocuments, documents_address: str) -> Any:
    """Starts the agent with these fixtures of the scripted model."""

    async def start(*fixtures: Fixture, models: bool = True, **settings: Any) -> Rag:
        telemetry = Telemetry.for_tests("rag")
        scripted = await stack.enter_async_context(ScriptedModel(fixtures))
        access = model_settings(scripted, max_attempts=1)
        loaded = RagSettings.load(
            server=ServerSettings(reflection=False, grace_s=1),
            auth=AuthSettings.load(),
            documents_target=documents_address,
            **settings,
        )
        shared = await stack.enter_async_context(Models(access, telemetry)) if models else None
        server = await stack.enter_async_context(serve(loaded, telemetry, models=shared))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.address))
        return Rag(AgentServiceStub(channel), scripted, documents)

    return start
