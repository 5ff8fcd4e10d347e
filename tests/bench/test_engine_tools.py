"""Benches of the run engine: plans are checked here; `make bench NAME=engine` measures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(HERE / name), *arguments], capture_output=True, text=True, timeout=220
    )


@pytest.mark.timeout(600)
def test_no_statement_of_the_gateways_reads_more_the_longer_the_past_is() -> None:
    done = run("engine_scale.py", "--check", "--runs", "20000", "--waiting", "4000")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert " plans of " in done.stdout


def test_product_code_is_counted_at_commits_and_now() -> None:
    done = run("engine_count.py", "--at", "HEAD")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["HEAD", "work"]


PYTHON = '''"""A docstring
of two lines."""

# A comment.
from x import y  # code, with a comment

SQL = """
SELECT 1
"""
z: int = 1
"""An attribute's."""


def f() -> None:
    """One line."""
    return y(
        1
    )
'''


def test_what_counts_as_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    import engine_count

    found = engine_count.count("x.py", PYTHON)
    # from, SQL (3), z, def, return (3)
    assert (found.python, found.docstrings, found.sql) == (9, 4, 0)
    sql = engine_count.count("x.sql", "-- no\n\nCREATE TABLE a ( -- code\n  b int\n);\n")
    assert (sql.sql, sql.code) == (3, 3)
    assert (found + sql).code == 12


@pytest.mark.timeout(300)
def test_load_shows_capacity_and_memory_with_clients_that_cancel_and_reconnect(
    tmp_path: Path,
) -> None:
    figures = tmp_path / "load.json"
    done = run(
        "load.py", *("--seconds", "1"), *("--replicas", "1"), *("--at-once", "4"), "--json", figures
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (case,) = json.loads(figures.read_text())
    assert case["runs"] > 0
    assert case["gateway_cpu_ms_per_run"] > 0
    assert all(case["rss_mib"])
