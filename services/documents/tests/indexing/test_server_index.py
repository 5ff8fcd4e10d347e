"""Failures of a Qdrant server, shown by a server that answers as it is scripted to."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from index_cases import DOCUMENT, MODEL, chunk, chunk_id
from pydantic import SecretStr

from bos_documents.index import encoding
from bos_documents.index.port import IndexFilter, Legs
from bos_documents.index.server import Layout, ServerIndex, connect
from bos_errors import BosError, FailedPrecondition, Unavailable

PLANTED = "zyxplanted"


@dataclass
class Server:
    """Knows collections by name; the next answers may be scripted by method and path ending."""

    url: str = ""
    collections: set[str] = field(default_factory=set)
    seen: list[tuple[str, str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    statuses: dict[str, list[int]] = field(default_factory=dict)
    create_and_hang: bool = False
    hang: bool = False

    async def answer(self, request: web.Request) -> web.Response:
        text = await request.text()
        self.seen.append((request.method, request.path, json.loads(text) if text else None))
        self.keys.add(request.headers.get("api-key", ""))
        if self.hang:
            await asyncio.Event().wait()
        for ending, statuses in self.statuses.items():
            if statuses and f"{request.method} {request.path}".endswith(ending):
                status = statuses.pop(0)
                return web.json_response({"status": {"error": "scripted"}}, status=status)
        return await self.serve(request)

    async def serve(self, request: web.Request) -> web.Response:
        parts = request.path.strip("/").split("/")
        if parts == ["collections"]:
            named = [{"name": name} for name in sorted(self.collections)]
            return self.says({"collections": named})
        name, rest = parts[1], parts[2:]
        if rest == ["exists"]:
            return self.says({"exists": name in self.collections})
        if not rest and request.method == "PUT":
            self.collections.add(name)
            if self.create_and_hang:
                return web.json_response({"status": {"error": "timeout"}}, status=500)
            return self.says(True)
        if name not in self.collections:
            return web.json_response({"status": {"error": "Not found"}}, status=404)
        if not rest:
            self.collections.discard(name)
            return self.says(True)
        if rest[-1] == "query":
            return self.says({"points": []})
        if rest[-1] == "count":
            return self.says({"count": 3})
        return self.says({"operation_id": 1, "status": "completed"})

    def says(self, result: Any) -> web.Response:
        return web.json_response({"result": result, "status": "ok", "time": 0.0})

    def index(
        self,
        *,
        layout: Layout = "collection_per_user",
        replicas: int = 1,
        timeout_s: float = 30,
    ) -> ServerIndex:
        client = connect(self.url, SecretStr("key-1"), timeout_s=timeout_s)
        return ServerIndex(client, layout=layout, replicas=replicas, timeout_s=timeout_s)

    def requests(self, ending: str) -> list[Any]:
        return [body for method, path, body in self.seen if f"{method} {path}".endswith(ending)]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


async def search(index: ServerIndex) -> Legs:
    return await index.search(
        "ann", MODEL, dense=(1.0, 0.0, 0.0, 0.0), text="word", filter=IndexFilter(), limit=3
    )


@pytest.mark.requirement("G-08")
async def test_collection_is_named_after_the_user_and_made_once(server: Server) -> None:
    index = server.index(replicas=2)
    await index.upsert("ann-1", MODEL, [chunk(1)])
    planted = {"document_type": PLANTED, "topics": (PLANTED,), "section": PLANTED}
    await index.upsert("ann-1", MODEL, [chunk(2, PLANTED, **planted)])

    (name,) = server.collections
    assert name.startswith("user_ann-1_documents_")
    (made,) = server.requests(f"PUT /collections/{name}")
    assert made["vectors"] == {"dense": {"size": 4, "distance": "Cosine"}}
    assert (made["replication_factor"], made["write_consistency_factor"]) == (2, 1)
    assert made["sparse_vectors"] == {"sparse": {"modifier": "idf"}}
    fields = [body["field_name"] for body in server.requests("/index")]
    assert fields == ["document", "type", "topics", "section", "date"]
    assert server.keys == {"key-1"}
    assert PLANTED not in json.dumps(server.seen), "no word of a document is sent"
    await index.close()


async def test_tenant_layout_has_a_key_in_every_request(server: Server) -> None:
    index = server.index(layout="tenant_key")
    owner = {"key": "user", "match": {"value": encoding.safe_name("ann")}}
    await index.upsert("ann", MODEL, [chunk(1)])
    await search(index)
    await index.count("ann", MODEL)
    await index.delete_chunks("ann", MODEL, [chunk_id(1)])
    await index.delete_document("ann", DOCUMENT)
    await index.delete_model("ann", MODEL)
    await index.delete_user("ann")

    assert server.requests("/points")[0]["points"][0]["payload"]["user"] == owner["match"]["value"]
    filtered = [
        *server.requests("/points/query"),
        *server.requests("/points/count"),
        *server.requests("/points/delete"),
    ]
    assert len(filtered) == 7
    assert all(body["filter"]["must"][0] == owner for body in filtered)
    assert server.collections
    await index.close()


async def test_creation_that_failed_is_repeated_or_taken_as_done(server: Server) -> None:
    index = server.index()
    server.statuses = {encoding.model_suffix(MODEL): [500]}
    with pytest.raises(Unavailable):
        await index.upsert("ann", MODEL, [chunk(1)])
    server.create_and_hang = True  # it fails, and happened
    await index.upsert("ann", MODEL, [chunk(1)])
    assert len(server.requests("/points")) == 1
    server.collections.clear()  # it went away, and is made again
    await index.upsert("ann", MODEL, [chunk(1)])
    assert len(server.collections) == 1
    await index.close()


@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        (401, FailedPrecondition, "INDEX_REFUSED"),
        (400, FailedPrecondition, "INDEX_REJECTED"),
        (429, Unavailable, "INDEX_FAILED"),
        (500, Unavailable, "INDEX_FAILED"),
    ],
)
async def test_http_status_decides_the_error(
    server: Server, status: int, kind: type[BosError], reason: str
) -> None:
    index = server.index()
    await index.upsert("ann", MODEL, [chunk(1)])
    server.statuses = {"/query": [status, status], "/count": [status], "/delete": [status]}

    for call in (
        search(index),
        index.count("ann", MODEL),
        index.delete_document("ann", DOCUMENT),
    ):
        with pytest.raises(kind) as caught:
            await call
        assert type(caught.value) is kind
        assert caught.value.reason == reason
        assert "scripted" not in caught.value.message
    await index.close()


async def test_server_that_hangs_is_given_up(server: Server) -> None:
    index = server.index(timeout_s=0.2)
    server.hang = True

    with pytest.raises(Unavailable) as caught:
        await index.count("ann", MODEL)
    assert caught.value.reason == "INDEX_TIMEOUT"
    await index.close()


async def test_server_that_is_not_there_is_unavailable(unused_tcp_port: int) -> None:
    client = connect(f"http://127.0.0.1:{unused_tcp_port}", None)
    index = ServerIndex(client)

    with pytest.raises(Unavailable) as caught:
        await index.count("ann", MODEL)
    assert caught.value.reason == "INDEX_UNREACHABLE"
    await index.close()


@pytest.mark.process
@pytest.mark.parametrize(
    ("module", "loaded"),
    [("bos_documents.service", False), ("bos_documents.index.server", True)],
)
def test_client_of_a_server_is_loaded_only_where_there_is_one(module: str, loaded: bool) -> None:
    program = f"import sys, {module}; print('qdrant_client' in sys.modules)"
    command = [sys.executable, "-c", program]
    assert subprocess.check_output(command, text=True, timeout=100).strip() == str(loaded)
