"""Requests of HTTP servers are counted, hostile ones too, and have spans below those of callers."""

import asyncio
import urllib.request
from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_testkit.waiting import eventually
from bos_webserver import WebServerSettings, http_server
from bos_webserver.metrics import HttpServerMetrics, Measured


async def _answers(scope: Any, receive: Any, send: Any) -> None:
    status = 404 if scope["path"] == "/none" else 200
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def _breaks(scope: Any, receive: Any, send: Any) -> None:
    raise ConnectionError


async def _asked(app: Any, registry: CollectorRegistry, path: str, method: str = "GET") -> None:
    async def nothing(*_: object) -> None: ...

    scope = {"type": "http", "path": path, "method": method}
    await Measured(app, "protocols", registry)(scope, nothing, nothing)


def _count(registry: CollectorRegistry, labels: Mapping[str, str]) -> float | None:
    return registry.get_sample_value(
        "bos_http_server_requests_total", {"service": "protocols", **labels}
    )


async def test_requests_are_counted_by_code_and_method() -> None:
    registry = CollectorRegistry()
    await _asked(_answers, registry, "/")
    await _asked(_answers, registry, "/none", "POST")
    assert _count(registry, {"method": "GET", "code": "200"}) == 1
    assert _count(registry, {"method": "POST", "code": "404"}) == 1
    of = {"service": "protocols", "method": "GET"}
    assert registry.get_sample_value("bos_http_server_duration_seconds_count", of) == 1


async def test_request_without_an_answer_counts_as_aborted() -> None:
    registry = CollectorRegistry()
    with pytest.raises(ConnectionError):
        await _asked(_breaks, registry, "/")
    assert _count(registry, {"method": "GET", "code": "499"}) == 1


async def test_paths_and_made_up_methods_make_no_series() -> None:
    registry = CollectorRegistry()
    for number in range(50):
        await _asked(_answers, registry, f"/{number}", f"METHOD{number}")
    assert _count(registry, {"method": "other", "code": "200"}) == 50
    (requests, _) = HttpServerMetrics.of(registry).collect()
    assert len([each for each in requests.samples if each.name.endswith("_total")]) == 1


TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CALLER = f"00-{TRACE_ID}-b7ad6b7169203331-01"


async def answer(request: Request) -> PlainTextResponse:
    return PlainTextResponse(request.path_params.get("id", "well"))


APP = Starlette(routes=[Route("/things/{id}", answer), Route("/healthz", answer)])


def measured(telemetry: Telemetry) -> list[str]:
    """Trace ids beside the durations of requests."""
    return [
        sample.exemplar.labels["trace_id"]
        for metric in telemetry.registry.collect()
        if metric.name == "bos_http_server_duration_seconds"
        for sample in metric.samples
        if sample.exemplar
    ]


@pytest.mark.parametrize(("untraced", "spans"), [(("/healthz",), ["GET /things/{id}"]), (None, [])])
async def test_requests_have_spans_below_those_of_callers(
    untraced: tuple[str, ...] | None, spans: list[str]
) -> None:
    telemetry, settings = Telemetry.for_tests("protocols"), ServerSettings(port=0, grace_s=0.1)
    limits = WebServerSettings().connection_limits(10)

    def get(port: int, path: str) -> None:
        url = f"http://127.0.0.1:{port}{path}"
        request = urllib.request.Request(url, headers={"traceparent": CALLER})
        urllib.request.urlopen(request, timeout=30).close()

    async with http_server(APP, settings, limits, telemetry, untraced=untraced) as port:
        for path in ("/things/7", "/healthz"):
            await asyncio.to_thread(get, port, path)
        counted = "bos_http_server_duration_seconds_count"
        labels = {"service": "protocols", "method": "GET"}
        # The answer is there before what is behind it is counted.
        await eventually(lambda: telemetry.registry.get_sample_value(counted, labels) == 2)
    assert [span.name for span in telemetry.spans] == spans
    assert measured(telemetry) == [TRACE_ID] * len(spans)
