"""A real standalone under demo load, and a real Prometheus that reads it and runs the rules."""

import asyncio
import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from prometheus_server import Prometheus, running_prometheus

from bos_chassis.settings import TelemetrySettings
from bos_chassis.telemetry import setup_telemetry
from bos_client import BosClient
from bos_client.workspace import WorkspaceClient
from bos_demo.company import DEFAULT_TODAY
from bos_demo.dialogues import load_approved
from bos_demo.questions import load_every_question
from bos_standalone.service import Standalone, serve_all
from bos_standalone.settings import StandaloneSettings
from bos_testkit.processes import free_port
from bos_testkit.scripted_model.server import ScriptedModel

from .troubled_model import TROUBLE, troubled_model

ROOT = Path(__file__).parents[3]
_SETTINGS = re.compile(r"BOS_|OPENAI_|AZURE_|OTEL_|.*_MODEL|.*_TEMPERATURE")
_EACH_KIND = 2
"""Questions of each set of agents."""
_ROUNDS = 2
"""Rates want series that grow while they are read."""
_AT_ONCE = 3
_PRICES = {"scripted": {"input": 1, "output": 2}}
_TALK = ("What can you help me with?", "Write me a poem about the sea") * 2
"""Turns of one conversation, which is summarised meanwhile."""


@dataclass(frozen=True)
class MeasuredHarness:
    """Where the parts are."""

    standalone: Standalone
    metrics: str
    """URL of the metrics of all Python services."""
    rest_metrics: str
    prometheus: Prometheus


def read(url: str, accept: str = "text/plain") -> str:
    """What a metrics endpoint says in the format asked for."""
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return str(reply.read().decode())


@asynccontextmanager
async def measured_harness(folder: Path) -> AsyncIterator[MeasuredHarness]:
    """Start both, and ask demo questions until Prometheus has seen them; stopped with the block."""
    ports = free_port(), free_port()
    unreachable = f"http://127.0.0.1:{free_port()}"
    loopback = ["127.0.0.0/8"]
    remote = {"away": {"url": unreachable, "networks": loopback, "reads": True}}
    with pytest.MonkeyPatch.context() as patch, _trace_sink() as traces:
        for name in [name for name in os.environ if _SETTINGS.match(name)]:
            patch.delenv(name)
        patch.setenv("BOS_SERVER_METRICS_PORT", str(ports[0]))
        patch.setenv("BOS_REST_METRICS_ADDRESS", f"127.0.0.1:{ports[1]}")
        patch.setenv("BOS_OTLP_ENDPOINT", traces)
        patch.setenv("BOS_MODEL", "scripted")
        patch.setenv("BOS_MODEL_PRICES", json.dumps(_PRICES))
        patch.setenv("BOS_A2A_SERVERS", json.dumps(remote))
        patch.setenv("BOS_FILES_HTTP_INTERNAL_ORIGINS", json.dumps({unreachable: loopback}))
        patch.setenv("OPENAI_API_KEY_FILE", str(folder / "model-key"))
        (folder / "model-key").write_text("key-of-the-scripted-model\n")
        patch.chdir(folder)
        model = troubled_model(DEFAULT_TODAY, unreachable)
        settings = StandaloneSettings.load(data_dir=folder / "data")
        with setup_telemetry("standalone", TelemetrySettings.load(log_level="error")) as telemetry:
            async with (
                _named(model, patch),
                serve_all(settings, telemetry) as standalone,
                running_prometheus(folder, ports[:2]) as prometheus,
            ):
                harness = MeasuredHarness(
                    standalone,
                    f"http://127.0.0.1:{ports[0]}/metrics",
                    f"http://127.0.0.1:{ports[1]}/metrics",
                    prometheus,
                )
                await _load(harness, model)
                yield harness


@asynccontextmanager
async def _named(model: ScriptedModel, patch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """The model of all services, as a configured one."""
    async with model:
        patch.setenv("OPENAI_BASE_URL", model.base_url)
        yield


@contextmanager
def _trace_sink() -> Iterator[str]:
    """A collector that takes spans and keeps none: with one, traces are recorded."""
    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: b"")
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {"Export": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


async def _load(harness: MeasuredHarness, model: ScriptedModel) -> None:
    standalone = harness.standalone
    assert standalone.documents is not None
    assert await standalone.documents.ready(400)
    asked = 0
    async with WorkspaceClient(standalone.addresses["files"], api_key=standalone.api_key) as files:
        await files.upload("figures.csv", b"region,total\nnorth,4321\n")
    async with BosClient(standalone.target, api_key=standalone.api_key) as bos:
        for _ in range(_ROUNDS):
            questions = _questions(standalone)
            places = asyncio.Semaphore(_AT_ONCE)
            async with asyncio.TaskGroup() as tasks:
                for question in questions:
                    tasks.create_task(_ask(bos, standalone, question, places))
            await asyncio.to_thread(_over_http, standalone)
            asked += len(questions)
            await harness.prometheus.until(f"sum(bos_runs_total) >= {asked}")
        model.knobs.fail_next(status=429, retry_after=0, schema="PlannerReply")
        for question in (TROUBLE, *_TALK):
            conversation = "talk" if question in _TALK else ""
            await _ask(bos, standalone, question, places, conversation)
        run = await bos.submit(load_approved()[0].question, context=standalone.context)
        assert run.run_id
        for expr in _SHOWN:
            await harness.prometheus.until(expr)


_SHOWN = (
    "bos:questions:error_ratio_rate5m + on () bos:rest:error_ratio_rate5m",
    "sum(bos_gateway_approvals_waiting) > 0",
    "sum(bos_memory_summaries_total) > 0",
)
"""What comes a while after its cause."""


def _questions(standalone: Standalone) -> list[str]:
    """Some questions of each set of agents, and one whose program has to be approved."""
    found: dict[tuple[str, ...], list[str]] = {}
    for each in load_every_question():
        if standalone.addresses.keys() >= {*each.agents}:
            found.setdefault(tuple(each.agents), []).append(each.question)
    approved = [each.question for each in load_approved()][:1]
    return [one for several in found.values() for one in several[:_EACH_KIND]] + approved


async def _ask(
    bos: BosClient,
    standalone: Standalone,
    question: str,
    places: asyncio.Semaphore,
    conversation: str = "",
) -> None:
    async with places, asyncio.timeout(240):
        stream = bos.ask_stream(
            question, context=standalone.context, trace=True, conversation_id=conversation
        )
        async for event in stream:
            if event.HasField("approval_requested"):
                await bos.approve(event.approval_requested.approval.approval_id)


def _over_http(standalone: Standalone) -> None:
    """Requests to REST and the protocols service, good ones and bad ones."""
    key = {"Authorization": f"Bearer {standalone.api_key}"}
    plain = {"Content-Type": "application/json"}
    log_in = json.dumps({"username": "unknown", "password": "not the password"}).encode()
    unknown = json.dumps({"refresh_token": "not a token"}).encode()
    requests: list[tuple[str, bytes | None, dict[str, str]]] = [
        ("/v1/runs", None, key),
        ("/v1/models", None, key),
        ("/v1/else", None, key),
        ("/v1/sessions:logIn", log_in, plain),
        ("/v1/sessions:refresh", unknown, plain),
    ]
    for path, data, headers in requests:
        request = urllib.request.Request(standalone.rest_url + path, data, headers)
        try:
            urllib.request.urlopen(request, timeout=30).close()
        except urllib.error.HTTPError as error:
            error.close()
