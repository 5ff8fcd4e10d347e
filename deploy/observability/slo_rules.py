"""Writes recording rules and burn-rate alerts of the service level objectives.

::

    .venv/bin/python deploy/observability/slo_rules.py
    .venv/bin/python deploy/observability/slo_rules.py --check

Each objective gets the ratio of bad events over seven windows, and two alerts. One is paged when a
fiftieth of the error budget of 30 days burns in an hour (14.4 times as fast as allowed), or a
twentieth in six; the other is a ticket for a tenth in a day or in three. Both need a short window
to burn as well, so that they end soon after the cause.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

RULES = Path(__file__).parent / "prometheus/rules/slo.yaml"
RUNBOOK = "docs/operations/runbook.md#"
WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
# Factor, long window, short window.
PAGE = ((14.4, "1h", "5m"), (6.0, "6h", "30m"))
TICKET = ((3.0, "1d", "2h"), (1.0, "3d", "6h"))
HEADER = "# Written by deploy/observability/slo_rules.py; `make check` compares.\n"


@dataclass(frozen=True, slots=True)
class Objective:
    """What share of events must be good, over 30 days."""

    name: str
    """In the names of rules."""
    title: str
    """In the names of alerts."""
    target: float
    bad: str
    """Rate of bad events; ``WINDOW`` stands for the window."""
    total: str
    """Rate of all events."""
    summary: str


_REST = "sum(rate(bos_rest_requests_total[WINDOW]))"
_WELL = 'outcome=~"succeeded|partially_succeeded"'
_FULL = 'sum(rate(bos_runs_refused_total{reason="replica_full"}[WINDOW]))'
OBJECTIVES = (
    Objective(
        "questions",
        "Questions",
        0.99,
        f'sum(rate(bos_runs_total{{outcome="failed"}}[WINDOW])) + {_FULL}',
        f"sum(rate(bos_runs_total[WINDOW])) + {_FULL}",
        "Questions fail, or are refused as all gateways are full.",
    ),
    Objective(
        "latency",
        "Latency",
        0.95,
        f"sum(rate(bos_run_duration_seconds_count{{{_WELL}}}[WINDOW])) - "
        f'sum(rate(bos_run_duration_seconds_bucket{{{_WELL}, le="30.0"}}[WINDOW]))',
        f"sum(rate(bos_run_duration_seconds_count{{{_WELL}}}[WINDOW]))",
        "Questions that are answered take longer than 30 s.",
    ),
    Objective(
        "approvals",
        "Approvals",
        0.95,
        'sum(rate(bos_approvals_total{outcome=~"timed_out|expired"}[WINDOW]))',
        "sum(rate(bos_approvals_total[WINDOW]))",
        "Approval requests run out without a decision.",
    ),
    Objective(
        "rest",
        "Rest",
        0.999,
        # A status has no series before its first answer; until then the share of bad ones is 0.
        f'(sum(rate(bos_rest_requests_total{{code=~"5.."}}[WINDOW])) or 0 * {_REST})',
        _REST,
        "REST answers with 5xx.",
    ),
)


def ratio(objective: Objective, window: str) -> str:
    """Name of the recorded ratio of bad events."""
    return f"bos:{objective.name}:error_ratio_rate{window}"


def document() -> dict[str, Any]:
    """All rules, as Prometheus reads them."""
    groups = [
        {"name": f"bos-slo-{each.name}", "rules": [*_recorded(each), *_alerts(each)]}
        for each in OBJECTIVES
    ]
    return {"groups": groups}


def _recorded(objective: Objective) -> list[dict[str, Any]]:
    budget = {
        "record": f"bos:{objective.name}:error_budget",
        "expr": f"vector({round(1 - objective.target, 6)})",
    }
    return [budget] + [
        {
            "record": ratio(objective, window),
            # Without events there is no ratio, and nothing burns.
            "expr": f"({objective.bad}) / (({objective.total}) > 0)".replace("WINDOW", window),
        }
        for window in WINDOWS
    ]


def _alerts(objective: Objective) -> list[dict[str, Any]]:
    return [
        _alert(objective, "BudgetBurnsFast", "page", PAGE, "2m"),
        _alert(objective, "BudgetBurns", "ticket", TICKET, "15m"),
    ]


def _alert(
    objective: Objective, kind: str, severity: str, burns: tuple[Any, ...], wait: str
) -> dict[str, Any]:
    name = f"Bos{objective.title}{kind}"
    budget = 1 - objective.target
    pairs = [
        f"({ratio(objective, long)} > {factor * budget:.5g} and "
        f"{ratio(objective, short)} > {factor * budget:.5g})"
        for factor, long, short in burns
    ]
    return {
        "alert": name,
        "expr": " or ".join(pairs),
        "for": wait,
        "labels": {"severity": severity, "slo": objective.name},
        "annotations": {
            "summary": objective.summary,
            "runbook_url": f"{RUNBOOK}{name.lower()}",
        },
    }


def render() -> str:
    """The rules as YAML."""
    return HEADER + yaml.safe_dump(document(), sort_keys=False, width=110)


def main(arguments: list[str]) -> int:
    """Write the rules, or compare them with ``--check``; 1 if they differ."""
    text = render()
    if arguments != ["--check"]:
        RULES.write_text(text, encoding="utf-8")
    elif not RULES.is_file() or RULES.read_text(encoding="utf-8") != text:
        print(f"{RULES} is out of date; write it anew with deploy/observability/slo_rules.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
