"""`make bench NAME=paths` runs and reports what it promises; no test asserts speed."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

BENCH = Path(__file__).parent / "bench.py"
APPEND = {"events_per_s", "cpu_us", "events_per_statement", "throughput_ratio"}
RUN = {"runs_per_s", "p50_ms", "p95_ms", "cpu_ms", "added_p50_ms", "cpu_ratio", "statements"}
WAYS = ("separate", "standalone", "openai", "aiohttp", "http")
DIAMOND = {f"{way}_{what}" for way in WAYS for what in ("runs_per_s", "p50_ms", "cpu_ms")}
EXPECTED = {
    "log": {
        "append": APPEND,
        "accept": {"runs_per_s", "cpu_us", "runs_per_statement"},
    },
    "run": {
        "five steps": RUN,
        "five steps, 200 rows each": RUN,
        "log": {"writer_statements", "all_transactions"},
    },
    "rest": {
        "ListAgents": {"rest_cpu_ms", "p50_ratio"},
        "five steps, streamed": {"rest_cpu_ms", "p50_ratio"},
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


def bench(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(BENCH), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=280,
    )


def test_quick_bench_measures_parts_with_any_configuration(tmp_path: Path) -> None:
    figures = tmp_path / "figures" / "bench.json"
    parts = ",".join(EXPECTED)
    # A developer's own settings must not change what is measured.
    done = bench(
        "--quick",
        "--only",
        parts,
        "--json",
        str(figures),
        BOS_GATEWAY_MAX_STEPS="1",
        BOS_MODEL="other",
    )
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
                for name in names:
                    assert name in done.stdout


def test_one_part_can_be_measured_alone(tmp_path: Path) -> None:
    figures = tmp_path / "bench.json"
    done = bench("--quick", "--only", "guard", "--json", str(figures))
    assert done.returncode == 0, done.stderr
    assert list(json.loads(figures.read_text(encoding="utf-8"))["parts"]) == ["guard"]


def test_the_diamond_is_measured_and_drawn(tmp_path: Path) -> None:
    figures, picture = tmp_path / "bench.json", tmp_path / "bench.svg"
    done = bench("--quick", "--only", "diamond", "--json", str(figures), "--picture", str(picture))
    assert done.returncode == 0, done.stderr
    cases = json.loads(figures.read_text(encoding="utf-8"))["parts"]["diamond"]["0 ms a call"]
    assert all(case.keys() >= DIAMOND for case in cases.values())
    drawn = ElementTree.parse(picture).getroot()
    texts = [text for element in drawn.iter() if (text := element.text)]
    assert "bare loop, openai package" in texts
    assert any("gateway" in text for text in texts), "processor time by service"


@pytest.mark.parametrize("arguments", [("--only", "nothing"), ("--fast",)])
def test_wrong_option_is_explained(arguments: tuple[str, ...]) -> None:
    done = bench(*arguments)
    assert done.returncode == 2
    assert "usage:" in done.stderr
