"""Traces of runs as the real Jaeger has them, behind the collector: `make trial NAME=jaeger`.

It is built from source for ten minutes, so neither `make test` nor CI has it.
"""

import asyncio
import json
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gateway_harness.harness import open_harness
from gateway_harness.traced import OWN, RUN, Traced, taken_over

from bos_gateway.service import migrate_store
from bos_postgres import create_database
from bos_testkit.postgres import PostgresServer
from bos_testkit.processes import free_port

from .real_collector import real_collector, running_program

_LONGEST_S = 120.0
_PAUSE_S = 0.2

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]


class Jaeger:
    """A running store of traces, asked as Grafana asks it."""

    def __init__(self, url: str, store: str) -> None:
        self.url = url
        self.store = store
        """Address that takes OTLP over gRPC."""

    async def get(self, path: str, **query: str) -> Any:
        """What it answers, as JSON."""

        def read() -> Any:
            asked = f"{self.url}/api/{path}?{urllib.parse.urlencode(query)}"
            with urllib.request.urlopen(asked, timeout=30) as reply:
                return json.load(reply)["data"]

        return await asyncio.to_thread(read)

    async def trace_of(self, run_id: str) -> dict[str, Any]:
        """The trace of a run, found by its id as an SRE would look for it."""
        asked = {"service": "gateway", "operation": RUN}
        tags = json.dumps({"bos.run.id": run_id})
        async with asyncio.timeout(_LONGEST_S):
            while True:
                if found := await self.get("traces", **asked, tags=tags):
                    (trace,) = found
                    return dict(trace)
                await asyncio.sleep(_PAUSE_S)


@pytest.fixture
async def jaeger(tmp_path: Path) -> AsyncIterator[Jaeger]:
    """As its image runs it, without a configuration of ours, but for the ports."""
    ports = {name: free_port() for name in ("otlp", "otlp_http", "http", "grpc", "health", "own")}
    places = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    given = {
        "receivers.otlp.protocols.grpc.endpoint": places["otlp"],
        "receivers.otlp.protocols.http.endpoint": places["otlp_http"],
        "extensions.jaeger_query.http.endpoint": places["http"],
        "extensions.jaeger_query.grpc.endpoint": places["grpc"],
        "extensions.healthcheckv2.http.endpoint": places["health"],
    }
    options = [f"--set={name}={value}" for name, value in given.items()]
    url = f"http://{places['http']}"
    log = tmp_path / "jaeger.log"
    async with running_program("jaeger", *options, healthy=f"{url}/api/services", log=log):
        yield Jaeger(url, places["otlp"])


async def test_a_run_taken_over_after_kill_9_is_one_trace_in_the_store(
    postgres_server: PostgresServer, tmp_path: Path, jaeger: Jaeger
) -> None:
    dsn = await create_database(postgres_server.dsn(), "traces_in_jaeger")
    await migrate_store(dsn)
    collecting = real_collector(tmp_path, store=jaeger.store)
    async with collecting as collector, open_harness(dsn) as harness:
        async with taken_over(Traced(harness, collector)) as run_id:
            trace = await jaeger.trace_of(run_id)
        sent = {span.span_id for span in collector.spans if span.trace_id == trace["traceID"]}
    spans = {span["spanID"]: span for span in trace["spans"]}
    assert len(spans) == len(trace["spans"]), "none twice"
    assert sent <= spans.keys()
    own = [span for span in trace["spans"] if span["operationName"] == OWN]
    assert len(own) == 2
    parents = {
        reference["spanID"]
        for span in trace["spans"]
        for reference in span["references"]
        if reference["refType"] == "CHILD_OF" and span["operationName"] == OWN
    }
    assert [spans[each]["operationName"] for each in parents] == [RUN]
    assert "gateway" in await jaeger.get("services")
