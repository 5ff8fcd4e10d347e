"""Requests have spans where a server has tracing, and what is measured names their trace."""

import asyncio
import urllib.request

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_testkit.waiting import eventually
from bos_webserver import WebServerSettings, http_server

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
