"""Metrics of a real standalone: names, reference and exemplars, by promtool and Prometheus."""

import asyncio
import re
import subprocess
import time

import pytest

from .measured_harness import ROOT, MeasuredHarness, read

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", re.MULTILINE)
PARTS = re.compile(r"_(bucket|sum|count|created)$")


@pytest.mark.parametrize("part", ["metrics", "rest_metrics"])
async def test_promtool_finds_nothing_wrong_with_the_metrics(
    harness: MeasuredHarness, part: str
) -> None:
    text = await asyncio.to_thread(read, getattr(harness, part))
    checked = await asyncio.to_thread(
        subprocess.run,
        ("promtool", "check", "metrics"),
        input=text,
        text=True,
        capture_output=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


async def test_every_series_stands_in_the_reference_with_its_labels(
    harness: MeasuredHarness,
) -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text("utf-8")
    listed = {name: set(re.findall(r"`(\w+)`", cell)) for name, _, cell in ROW.findall(page)}
    seen = {}
    for part in (harness.metrics, harness.rest_metrics):
        text = await asyncio.to_thread(read, part)
        for name, labels in re.findall(r"^(bos_\w+)(?:\{(.*)\})? ", text, re.MULTILINE):
            if name not in listed and name.endswith("_created"):
                name = name.removesuffix("_created")
                name = name if name in listed else f"{name}_total"
            plain = name if name in listed else PARTS.sub("", name)
            seen[plain] = set(re.findall(r'(\w+)="', labels)) - {"le"}
    assert {name: listed.get(name) for name in seen} == seen
    assert len(seen) > 50


async def test_latencies_carry_trace_ids(harness: MeasuredHarness) -> None:
    text = await asyncio.to_thread(read, harness.metrics, OPENMETRICS)
    for metric in ("bos_run_duration_seconds", "bos_rpc_server_duration_seconds"):
        pattern = rf'^{metric}_bucket\{{.*\}} \S+ # \{{trace_id="[0-9a-f]{{32}}"\}}'
        assert re.search(pattern, text, re.MULTILINE), metric
    now = time.time()
    for metric in ("bos_step_duration_seconds_bucket", "bos_rest_request_duration_seconds_bucket"):
        found = await harness.prometheus.api(
            "query_exemplars", query=metric, start=str(now - 3600), end=str(now + 60)
        )
        assert any(each["exemplars"] for each in found), metric


async def test_rules_are_evaluated_without_errors(harness: MeasuredHarness) -> None:
    groups = (await harness.prometheus.api("rules"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) > 50
    assert [rule["name"] for rule in rules if rule["health"] == "err"] == []


@pytest.mark.requirement("P-05", "P-11")
async def test_every_service_counts_its_calls_by_outcome_and_time(harness: MeasuredHarness) -> None:
    of_grpc, of_http = "bos_rpc_server", "bos_http_server"
    for series in (
        f"{of_grpc}_handled_total or {of_http}_requests_total",
        f"{of_grpc}_duration_seconds_count or {of_http}_duration_seconds_count",
    ):
        counted = await harness.prometheus.query(f"count by (service) ({series})")
        names = {each["metric"]["service"] for each in counted}
        assert names >= harness.standalone.addresses.keys() - {"rest"}
    for series in ("bos_rest_requests_total", "bos_rest_request_duration_seconds_count"):
        assert await harness.prometheus.query(f"sum({series}) > 0")
