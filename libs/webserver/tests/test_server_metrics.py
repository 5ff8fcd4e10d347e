"""Requests of HTTP servers are counted, hostile ones too."""

from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

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
