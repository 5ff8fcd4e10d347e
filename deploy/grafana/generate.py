"""Writes Grafana's dashboards, and checks them: names, labels, units, descriptions.

::

    .venv/bin/python deploy/grafana/generate.py
    .venv/bin/python deploy/grafana/generate.py --check

A query may name metrics of the reference page and recorded rules, and of a metric only the labels
that it has.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from boards import BOARDS
from panels import model

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from panels import Dashboard

ROOT = Path(__file__).resolve().parents[2]
DASHBOARDS = Path(__file__).parent / "dashboards"
REFERENCE = ROOT / "docs/reference/metrics.md"
RULES = ROOT / "deploy/observability/prometheus/rules"
UNITS = frozenset({"s", "none", "short", "percentunit", "reqps", "ops", "bytes", "currencyUSD"})
_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", re.MULTILINE)
_METRIC = re.compile(r"\b((?:bos|process)[:_][a-z0-9_:]+|up|ALERTS)\b(?:\{([^}]*)\})?")
_BY = re.compile(r"\b(?:by|on) \(([^)]*)\)")
_OF_PROMETHEUS = frozenset({"instance", "job", "le", "severity", "alertstate", "alertname"})
_OUTSIDE = frozenset(
    {
        "up",
        "ALERTS",
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_max_fds",
    }
)
"""Metrics of Prometheus itself, and of its client libraries."""


def known(reference: str) -> dict[str, frozenset[str]]:
    """Labels of each time series by its name, from the reference page."""
    found: dict[str, frozenset[str]] = {}
    for name, kind, cell in _ROW.findall(reference):
        labels = frozenset(re.findall(r"`(\w+)`", cell))
        if kind == "histogram":
            found |= {f"{name}_{part}": labels for part in ("bucket", "sum", "count")}
        else:
            found[name] = labels
    return found


def recorded(rules: Path) -> frozenset[str]:
    """Names of recorded rules."""
    return frozenset(
        rule["record"]
        for file in rules.glob("*.yaml")
        for group in yaml.safe_load(file.read_text("utf-8"))["groups"]
        for rule in group["rules"]
        if "record" in rule
    )


def faults_of_query(
    expr: str, metrics: Mapping[str, frozenset[str]], names: frozenset[str]
) -> Iterator[str]:
    """What is wrong with a query: unknown metrics and labels, parentheses that do not match."""
    labels: set[str] = set(_OF_PROMETHEUS)
    for name, matchers in _METRIC.findall(expr):
        own = metrics.get(name, frozenset())
        labels |= own
        if name not in metrics and name not in names and name not in _OUTSIDE:
            yield f"no metric {name}"
        matched = set(re.findall(r"(\w+)\s*[=!]", matchers))
        yield from (f"{name} has no label {each}" for each in matched - own - _OF_PROMETHEUS)
    for listed in _BY.findall(expr):
        used = {each.strip() for each in listed.split(",") if each.strip()}
        yield from (f"no metric has the label {each}" for each in sorted(used - labels))
    if any(expr.count(a) != expr.count(b) for a, b in ("()", "[]", "{}")):
        yield "parentheses do not match"


def faults(
    board: Dashboard, metrics: Mapping[str, frozenset[str]], names: frozenset[str]
) -> Iterator[str]:
    """What is wrong with a dashboard."""
    titles = [panel.title for panel in board.panels]
    yield from (f"{title}: twice" for title in sorted({t for t in titles if titles.count(t) > 1}))
    for panel in board.panels:
        if panel.unit not in UNITS:
            yield f"{panel.title}: unit {panel.unit!r}"
        if not panel.description.endswith("."):
            yield f"{panel.title}: no description"
        if not panel.queries:
            yield f"{panel.title}: no query"
        for query in panel.queries:
            for fault in faults_of_query(query.expr, metrics, names):
                yield f"{panel.title}: {fault} in {query.expr}"


def render(board: Dashboard) -> str:
    """The file of a dashboard."""
    return json.dumps(model(board), indent=2) + "\n"


def check() -> list[str]:
    """Everything that is wrong, drift included."""
    metrics, names = known(REFERENCE.read_text("utf-8")), recorded(RULES)
    found = [f"{each.name}: {fault}" for each in BOARDS for fault in faults(each, metrics, names)]
    expected = {f"{each.name}.json": render(each) for each in BOARDS}
    present = {path.name: path.read_text("utf-8") for path in DASHBOARDS.glob("*.json")}
    found += [
        f"dashboards/{name} is out of date; write it anew with deploy/grafana/generate.py"
        for name in sorted(expected.keys() | present.keys())
        if expected.get(name) != present.get(name)
    ]
    return found


def main(arguments: list[str]) -> int:
    """Write the dashboards, or check them with ``--check``; 1 if anything is wrong."""
    if arguments != ["--check"]:
        DASHBOARDS.mkdir(exist_ok=True)
        for path in DASHBOARDS.glob("*.json"):
            path.unlink()
        for each in BOARDS:
            (DASHBOARDS / f"{each.name}.json").write_text(render(each), encoding="utf-8")
    found = check()
    print("\n".join(found) if found else f"{len(BOARDS)} dashboards: as they should be")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
