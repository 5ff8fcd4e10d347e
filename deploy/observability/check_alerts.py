"""``make check``: every alert has a severity, a heading in the runbook, and a test of each side."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy/observability/prometheus"
RUNBOOK = "docs/operations/runbook.md"
_SEVERITIES = frozenset({"page", "ticket"})


def alerts_of(documents: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The alerts of rule files."""
    groups = [group for document in documents for group in document["groups"]]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def faults(
    alerts: Sequence[Mapping[str, Any]], runbook: str, cases: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """What is missing of which alert, and headings of the runbook that no alert has."""
    headings = set(re.findall(r"^### (Bos\w+)$", runbook, re.MULTILINE))
    fires, quiet = set(), set()
    for case in cases:
        for test in case.get("promql_expr_test", ()):
            # None in tests of what is recorded.
            names = re.findall(r'alertname="(\w+)"', test["expr"])
            (fires if test["exp_samples"] else quiet).update(names)
    for alert in alerts:
        name, annotations = alert["alert"], alert.get("annotations", {})
        if alert.get("labels", {}).get("severity") not in _SEVERITIES:
            yield f"{name}: its severity is none of {', '.join(sorted(_SEVERITIES))}"
        if not annotations.get("summary", "").endswith("."):
            yield f"{name}: no summary"
        if annotations.get("runbook_url") != f"{RUNBOOK}#{name.lower()}" or name not in headings:
            yield f"{name}: no heading ### {name} in {RUNBOOK} that runbook_url links"
        if name not in fires or name not in quiet:
            yield f"{name}: wants a firing and a quiet case in tests/"
    yield from (f"{RUNBOOK}: no alert {each}" for each in sorted(headings - _names(alerts)))


def _names(alerts: Sequence[Mapping[str, Any]]) -> set[str]:
    return {alert["alert"] for alert in alerts}


def _documents(folder: str) -> list[Any]:
    return [yaml.safe_load(f.read_text("utf-8")) for f in sorted(PROMETHEUS.glob(folder))]


def main() -> int:
    """Print what is missing; 1 if anything is."""
    alerts = alerts_of(_documents("rules/*.yaml"))
    cases = [case for document in _documents("tests/*.yaml") for case in document["tests"]]
    found = list(faults(alerts, (ROOT / RUNBOOK).read_text("utf-8"), cases))
    print("\n".join(found) if found else f"{len(alerts)} alerts: each in the runbook and tested")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
