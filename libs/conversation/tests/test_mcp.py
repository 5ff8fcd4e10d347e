"""The MCP server over a scripted gateway: bounds, marks, files, documents, failures."""

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from bos.agent.v1 import AgentResult
from bos.common.v1 import Artefact, Row, Value, ValueList
from bos.documents.v1 import (
    Chunk,
    DocumentsServiceServicer,
    Passage,
    SearchDocumentsResponse,
    add_DocumentsServiceServicer_to_server,
)
from bos.gateway.v1 import Approval, ApprovalKind
from bos_client import BosClient
from bos_client.documents import DocumentsClient
from bos_conversation import approval_shown
from bos_conversation.mcp import build_server
from bos_conversation.mcp.resources import MAX_FILE_BYTES
from bos_conversation.mcp.results import MAX_ROWS, MAX_TEXT_CHARS
from bos_errors import InvalidArgument, PermissionDenied
from bos_testkit.scripted_gateway import RUN_ID, Gateway, Starter, client, response, story

OTHERS = "content that others wrote"
CONTENT = b"%PDF, or so it says"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class One:
    """One caller of all requests."""

    gateway: BosClient
    found: DocumentsClient | None = None

    @property
    def has_documents(self) -> bool:
        return self.found is not None

    def bos(self, _: Any) -> BosClient:
        return self.gateway

    def documents(self, _: Any) -> DocumentsClient:
        assert self.found is not None
        return self.found


@asynccontextmanager
async def mcp_of(gateway: Gateway, documents: DocumentsClient | None = None) -> AsyncIterator[Any]:
    async with client(gateway) as bos, Client(build_server(One(bos, documents))) as connected:
        yield connected


async def shown(start: Starter, outcome: Any, **options: Any) -> Any:
    """What ``get_run`` gives of a run with this outcome."""
    gateway = await start(Gateway(events=story(outcome), **options))
    async with mcp_of(gateway) as mcp:
        return await mcp.call_tool("get_run", {"run_id": RUN_ID})


async def test_a_table_of_any_size_is_bounded_and_says_what_is_left(start: Starter) -> None:
    outcome = response()
    row = Row(values=[Value(string_value="x" * 5000), Value(decimal_value="1.50")])
    outcome.data.rows.extend([row] * 1000)
    content = (result := await shown(start, outcome)).structured_content
    assert content["table"]["total_rows"] == 1003
    assert 0 < len(content["table"]["rows"]) <= MAX_ROWS
    assert len(json.dumps(content)) < 2 * MAX_TEXT_CHARS
    assert len(result.content[0].text) <= MAX_TEXT_CHARS
    assert content["table"]["uri"] == f"bos://runs/{RUN_ID}/table"


async def test_a_table_within_the_bounds_is_whole(start: Starter) -> None:
    content = (await shown(start, response())).structured_content
    assert content["table"]["rows"][0] == ["Acme", "9007199254740993.10"]
    assert len(content["table"]["rows"]) == content["table"]["total_rows"] == 3


async def test_answers_sources_and_cells_of_any_size_are_bounded(start: Starter) -> None:
    outcome = response()
    outcome.answer = "y" * (3 * MAX_TEXT_CHARS)
    for _ in range(500):
        outcome.sources.add(title="t" * 5000, excerpt="e" * 5000)
    many = Value(list_value=ValueList(values=[Value(string_value="z" * 100)] * 100))
    outcome.data.rows.add(values=[many, many])
    result = await shown(start, outcome)
    assert len(result.content[0].text) < MAX_TEXT_CHARS + 200
    assert len(json.dumps(result.structured_content)) < 4 * MAX_TEXT_CHARS
    assert f"Run: {RUN_ID}" in result.content[0].text


@pytest.mark.parametrize("tainted", [True, False])
async def test_what_rests_on_content_of_others_is_marked(start: Starter, tainted: bool) -> None:
    outcome = response()
    outcome.tainted = tainted
    result = await shown(start, outcome)
    assert result.structured_content["tainted"] is tainted
    assert (OTHERS in result.content[0].text) is tainted


def with_file(size_bytes: int = len(CONTENT)) -> Any:
    outcome = response()
    file = Artefact(
        digest=f"sha256:{DIGEST}", name="a\nb.pdf", media_type="text/x", size_bytes=size_bytes
    )
    outcome.agent_results.append(AgentResult(agent_name="files", files=[file]))
    return outcome


async def test_files_are_links_to_resources(start: Starter) -> None:
    gateway = await start(Gateway(events=story(with_file()), files={f"sha256:{DIGEST}": CONTENT}))
    async with mcp_of(gateway) as mcp:
        result = await mcp.call_tool("get_run", {"run_id": RUN_ID})
        (link,) = [each for each in result.content if each.type == "resource_link"]
        assert "\n" not in link.name
        blob = (await mcp.read_resource(str(link.uri))).contents[0].blob
    assert base64.b64decode(blob) == CONTENT


async def test_files_beyond_the_bound_are_not_read(start: Starter) -> None:
    gateway = await start(Gateway(events=story(with_file(MAX_FILE_BYTES + 1))))
    async with mcp_of(gateway) as mcp:
        with pytest.raises(MCPError, match="more than"):
            await mcp.read_resource(f"bos://runs/{RUN_ID}/files/{DIGEST}")


@pytest.mark.parametrize("digest", ["..", "%2e%2e%2fetc", "%00", "x" * 5000])
async def test_hostile_addresses_of_files_lead_nowhere(start: Starter, digest: str) -> None:
    gateway = await start(Gateway(events=story(with_file())))
    async with mcp_of(gateway) as mcp:
        with pytest.raises(MCPError):
            await mcp.read_resource(f"bos://runs/{RUN_ID}/files/{digest}")


async def test_failures_name_field_and_reason(start: Starter) -> None:
    gateway = await start(Gateway(error=InvalidArgument("question: too odd", reason="ODD")))
    async with mcp_of(gateway) as mcp:
        result = await mcp.call_tool("ask", {"question": "Who leads?"})
    assert result.is_error
    assert result.structured_content["error"]["reason"] == "ODD"
    assert "too odd" in result.content[0].text
    assert "run_id" not in result.structured_content, "there is no run"


class Unwatched(Gateway):
    """A gateway that takes questions and refuses to stream them."""

    async def WatchRun(self, request: Any, context: Any) -> AsyncIterator[Any]:
        raise PermissionDenied("This key may not.", reason="SCOPE")
        yield  # it is a stream


async def test_a_failure_on_the_way_names_the_run_that_goes_on(start: Starter) -> None:
    async with mcp_of(await start(Unwatched())) as mcp:
        result = await mcp.call_tool("ask", {"question": "Who leads?"})
    assert result.is_error
    assert result.structured_content["run_id"] == RUN_ID
    assert RUN_ID in result.content[0].text
    assert result.structured_content["error"]["reason"] == "SCOPE"


class Found(DocumentsServiceServicer):
    """A documents service with one passage."""

    async def SearchDocuments(self, request: Any, context: Any) -> SearchDocumentsResponse:
        chunk = Chunk(chunk_id="c", document_name="Lease.pdf", text="p" * 10_000, first_page=3)
        passages = [Passage(chunk=chunk, score=0.5)] * request.limit
        return SearchDocumentsResponse(passages=passages, documents_searched=2)


async def test_passages_of_documents_are_bounded_and_marked(start: Starter) -> None:
    server = grpc.aio.server()
    add_DocumentsServiceServicer_to_server(Found(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with (
        DocumentsClient(f"127.0.0.1:{port}") as documents,
        mcp_of(await start(), documents) as mcp,
    ):
        result = await mcp.call_tool("search_documents", {"query": "penalty", "limit": 50})
    await server.stop(None)
    assert OTHERS in result.content[0].text
    assert len(result.content[0].text) < MAX_TEXT_CHARS + 200
    assert len(result.structured_content["passages"]) == 50
    assert result.structured_content["passages"][0]["first_page"] == 3


async def test_without_documents_there_is_no_search(start: Starter) -> None:
    async with mcp_of(await start()) as mcp:
        tools = {tool.name for tool in (await mcp.list_tools()).tools}
    assert "search_documents" not in tools


async def test_a_question_is_followed_to_its_end_with_news(start: Starter) -> None:
    heard: list[str] = []

    async def progress(_: float, __: float | None, message: str | None) -> None:
        heard.append(message or "")

    async with mcp_of(await start()) as mcp:
        question = {"question": "Who leads?", "agents": ["sql"]}
        result = await mcp.call_tool("ask", question, progress_callback=progress)
    assert result.structured_content["answer"] == "Acme leads [1]."
    assert heard[0] == f"Run {RUN_ID} is accepted"
    assert any(line.startswith("Plan of 2 steps. sql: Find the customers") for line in heard)


def test_an_action_whose_outcome_is_unknown_says_so() -> None:
    approval = Approval(approval_id="a", kind=ApprovalKind.APPROVAL_KIND_OUTCOME_UNKNOWN)
    assert "it is unknown whether it was done" in approval_shown(approval)
    approval.kind = ApprovalKind.APPROVAL_KIND_PROPOSED
    assert "it is unknown" not in approval_shown(approval)
