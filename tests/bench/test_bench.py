"""`make bench` measures and reports what it promises; no test asserts speed."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
APPEND = {"events_per_s", "cpu_us", "events_per_statement", "throughput_ratio"}
RUN = {"runs_per_s", "p50_ms", "p95_ms", "cpu_ms", "added_p50_ms", "cpu_ratio", "statements"}
WAYS = ("separate", "standalone", "openai", "aiohttp", "http")
DIAMOND = {f"{way}_{what}" for way in WAYS for what in ("runs_per_s", "p50_ms", "cpu_ms")}
REST = {"rest_cpu_ms", "p50_ratio"}
EXPECTED: dict[str, dict[str, set[str]]] = {
    "diamond": {"0 ms a call": DIAMOND, "50 ms a call": DIAMOND, "memory": set()},
    "log": {"append": APPEND, "accept": {"runs_per_s", "cpu_us", "runs_per_statement"}},
    "run": {
        "five steps": RUN,
        "five steps, 200 rows each": RUN,
        "log": {"writer_statements", "all_transactions"},
    },
    "rest": {
        "ListAgents": REST,
        "five steps, streamed": REST,
        "streams that wait": {"rest_kib_each"},
    },
    "approval": {
        "decision to effect, over another gateway": {
            "p50_ms",
            "p95_ms",
            "answered_p50_ms",
            "over_notify_ratio",
            "over_execute_ratio",
        }
    },
    "guard": {"a query of 20 lines": {"check_us", "check_over_parse_ratio"}},
    "sandbox": {
        "cold": {"start_ms", "first_program_ms"},
        "warm": {"p50_ms", "cpu_ms", "over_bare_call_ratio"},
        "process": {"p50_ms", "p95_ms"},  # where the kernel offers that tier
    },
    "model": {"one text call": {"bos_cpu_ms", "openai_cpu_ms", "cpu_over_openai_ratio"}},
}


def run(name: str, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(HERE / name), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=500,
    )


@pytest.mark.timeout(600)
def test_quick_bench_measures_all_parts_with_any_configuration(tmp_path: Path) -> None:
    figures = tmp_path / "figures" / "bench.json"
    # A developer's own settings must not change what is measured.
    settings = {"BOS_GATEWAY_MAX_STEPS": "1", "BOS_MODEL": "other"}
    done = run("bench.py", "--quick", "--json", figures, **settings)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    assert "Traceback" not in done.stderr
    document = json.loads(figures.read_text(encoding="utf-8"))
    assert document["quick"] is True
    assert document["machine"]["cpus"] >= 1
    assert document["parts"].keys() == EXPECTED.keys()
    for part, tables in EXPECTED.items():
        assert document["parts"][part].keys() == tables.keys()
        for table, names in tables.items():
            for case, measured in document["parts"][part][table].items():
                assert names <= measured.keys(), f"{part}, {table}, {case}"
                assert all(math.isfinite(value) for value in measured.values())
                assert all(name in done.stdout for name in names)


def test_unknown_part_is_refused_with_the_usage() -> None:
    done = run("bench.py", "--only", "nothing")
    assert (done.returncode, "usage:" in done.stderr) == (2, True)


@pytest.mark.timeout(600)
def test_no_statement_of_the_gateways_reads_more_the_longer_the_past_is() -> None:
    done = run("engine_scale.py", "--check", "--runs", "20000", "--waiting", "4000")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert " plans of " in done.stdout


@pytest.mark.timeout(600)
def test_load_shows_capacity_with_clients_that_cancel_and_reconnect(tmp_path: Path) -> None:
    figures = tmp_path / "load.json"
    options = ("--seconds", "1", "--replicas", "1", "--at-once", "4", "--json", figures)
    done = run("load.py", *options)
    assert done.returncode == 0, done.stderr[-2000:]
    (case,) = json.loads(figures.read_text())
    assert case["runs"] > 0
    assert case["gateway_cpu_ms_per_run"] > 0
    assert all(case["rss_mib"])
