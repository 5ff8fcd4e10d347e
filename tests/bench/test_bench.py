"""`make bench` measures and reports what it promises; no test asserts speed."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EXPECTED = {
    "rest": {
        "ListAgents": {"rest_cpu_ms", "p50_ratio"},
        "five steps, streamed": {"rest_cpu_ms", "p50_ratio"},
        "streams that wait": {"rest_kib_each"},
    },
}
"""One part; the others are measured by hand."""


def run(name: str, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(HERE / name), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=500,
    )


@pytest.mark.timeout(600)
def test_quick_bench_measures_and_reports_with_any_configuration(tmp_path: Path) -> None:
    figures = tmp_path / "figures" / "bench.json"
    # A developer's own settings must not change what is measured.
    settings = {"BOS_GATEWAY_MAX_STEPS": "1", "BOS_MODEL": "other"}
    done = run("bench.py", "--quick", "--only", *EXPECTED, "--json", figures, **settings)
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


@pytest.mark.timeout(600)
def test_no_statement_of_the_gateways_reads_more_the_longer_the_past_is() -> None:
    done = run("engine_scale.py", "--check", "--runs", "20000", "--waiting", "4000")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert " plans of " in done.stdout
