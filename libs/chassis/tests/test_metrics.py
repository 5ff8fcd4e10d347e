"""Metrics of every service: what is counted, and that callers cannot make series."""

import asyncio
import re
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry import trace
from prometheus_client import CollectorRegistry

from bos_chassis.auth.callers import Principal, set_caller
from bos_chassis.log_fields import log_fields, user_digest
from bos_chassis.metrics import OTHER, BoundedLabel, DiskMetrics, current_exemplar, exemplar_of
from bos_chassis.settings import TelemetrySettings
from bos_chassis.telemetry import Telemetry, setup_telemetry

SERVICE = "bos.test.v1.EchoService"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
HOSTILE = ["x" * 65, "a b", 'a"} 1\nbos_runs_total 9', "käse", "a\x00b"]


def read(port: int | None, accept: str) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=10) as reply:
        return str(reply.read().decode())


def test_label_admits_values_up_to_its_limit_and_no_more() -> None:
    assert BoundedLabel(10).value("x" * 64) == "x" * 64
    label = BoundedLabel(3, known=("sql",))
    assert [label.value(name) for name in ("sql", "web", "mail")] == ["sql", "web", "mail"]
    assert label.value("charts") == OTHER
    assert [label.value(name) for name in ("mail", "sql")] == ["mail", "sql"]


@pytest.mark.parametrize("text", HOSTILE)
def test_values_that_are_no_names_count_as_other(text: str) -> None:
    assert BoundedLabel(10).value(text) == OTHER


async def test_methods_that_do_not_exist_make_no_series(start: Any, echo: Any) -> None:
    running = await start()
    await running.stub.get(echo())
    async with grpc.aio.insecure_channel(running.server.address) as channel:
        for number in range(20):
            with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
                await channel.unary_unary(f"/{SERVICE}/Made{number}")(b"")
    (handled,) = running.telemetry.rpc_metrics.handled.collect()
    methods = {sample.labels["grpc_method"] for sample in handled.samples}
    assert "Get" in methods
    assert not any(method.startswith("Made") for method in methods)


async def test_callers_count_calls_by_code_and_their_time(start: Any, echo: Any) -> None:
    async def refuses(request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.NOT_FOUND, "no")

    running = await start(put=refuses)
    await running.stub.get(echo())
    with pytest.raises(grpc.aio.AioRpcError):
        await running.stub.put(echo())
    registry, service = running.client_telemetry.registry, running.client_telemetry.service
    for method, code in (("Get", "OK"), ("Put", "NOT_FOUND")):
        labels = {"service": service, "grpc_service": SERVICE, "grpc_method": method}
        handled = "bos_rpc_client_handled_total"
        assert registry.get_sample_value(handled, {**labels, "grpc_code": code}) == 1
        assert registry.get_sample_value("bos_rpc_client_duration_seconds_count", labels) == 1
        seconds = registry.get_sample_value("bos_rpc_client_duration_seconds_sum", labels)
        assert seconds > 0


async def test_openmetrics_alone_carries_trace_of_call(start: Any, echo: Any) -> None:
    running = await start(metrics_port=0)
    await running.stub.get(echo())
    port = running.server.metrics_port
    text = await asyncio.to_thread(read, port, OPENMETRICS)
    pattern = r'bos_rpc_server_duration_seconds_bucket\{.*\} 1\.0 # \{trace_id="([0-9a-f]{32})"\}'
    (traced,) = set(re.findall(pattern, text))
    spans = [trace.format_trace_id(span.context.trace_id) for span in running.telemetry.spans]
    assert traced in spans
    assert "trace_id" not in await asyncio.to_thread(read, port, "text/plain")


def test_exemplars_are_of_recorded_traces_alone() -> None:
    assert current_exemplar() is None
    assert exemplar_of(None) is None
    with Telemetry.for_tests().tracer.start_as_current_span("work") as span:
        recorded = trace.format_trace_id(span.get_span_context().trace_id)
        assert current_exemplar() == exemplar_of(span) == {"trace_id": recorded}
    with (
        setup_telemetry("sql", TelemetrySettings()) as telemetry,
        telemetry.tracer.start_as_current_span("work"),
    ):
        assert current_exemplar() is None


def test_disks_of_folders_are_reported_and_other_stores_left_out(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    disks = DiskMetrics.of(registry)
    assert DiskMetrics.of(registry) is disks
    disks.watch("documents", "index", tmp_path)
    disks.watch("documents", "files", tmp_path.as_uri())
    disks.watch("documents", "elsewhere", "s3://bucket/folder")
    disks.watch("documents", "later", tmp_path / "not made")
    free, size = registry.collect()
    assert {sample.labels["store"] for sample in free.samples} == {"index", "files"}
    assert all(sample.value > 0 for sample in size.samples)


def test_log_lines_carry_run_and_digest_of_user_but_not_user() -> None:
    telemetry = Telemetry.for_tests()
    log = telemetry.logger("bos.test")
    log.info("outside")
    set_caller(Principal("ann@example.org", "run-1", "", "run_token"), None)
    try:
        log.info("inside")
        log.info("of another", run="run-2")
        with log_fields("bob@example.org", "run-3"):
            log.info("driven")
    finally:
        set_caller(None, None)
    log.info("afterwards")
    lines = {line["event"]: line for line in telemetry.logs}
    assert (lines["inside"]["run"], lines["of another"]["run"]) == ("run-1", "run-2")
    assert lines["inside"]["user_digest"] == user_digest("ann@example.org")
    assert lines["driven"]["run"] == "run-3"
    assert lines["driven"]["user_digest"] == user_digest("bob@example.org")
    for event in ("outside", "afterwards"):
        assert not {"run", "user_digest"} & lines[event].keys()
    assert "example.org" not in repr(telemetry.logs)
