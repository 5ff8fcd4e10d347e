"""What `make check` finds wrong with alerts, rules, dashboards and the page of metrics."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
METRICS = {"bos_runs_total": frozenset({"outcome"}), "bos_runs_active": frozenset()}


def loaded(path: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str((ROOT / path).parent))
    spec = importlib.util.spec_from_file_location(f"checked_{Path(path).stem}", ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def alerts(monkeypatch: pytest.MonkeyPatch) -> Any:
    return loaded("deploy/observability/check_alerts.py", monkeypatch)


@pytest.fixture
def grafana(monkeypatch: pytest.MonkeyPatch) -> Any:
    return loaded("deploy/grafana/generate.py", monkeypatch)


def alert(**changes: Any) -> dict[str, Any]:
    annotations = {"summary": "It is down.", "runbook_url": "docs/operations/runbook.md#bosdown"}
    whole = {"alert": "BosDown", "labels": {"severity": "page"}, "annotations": annotations}
    return {**whole, **changes}


def case(*samples: object, expr: str = 'ALERTS{alertname="BosDown"}') -> dict[str, Any]:
    test = {"expr": expr, "exp_samples": list(samples)}
    return {"promql_expr_test": [test]}


def test_alert_with_heading_and_both_cases_is_in_order(alerts: Any) -> None:
    cases = [case("one"), case(), case(1, expr="bos:down:ratio")]
    assert list(alerts.faults([alert()], "### BosDown\n", cases)) == []


@pytest.mark.parametrize(
    ("changes", "runbook", "cases", "fault"),
    [
        ({"labels": {"severity": "loud"}}, "### BosDown", [case(1), case()], "severity"),
        ({"annotations": {}}, "### BosDown", [case(1), case()], "no summary"),
        ({}, "## Bos down", [case(1), case()], "no heading"),
        ({}, "### BosDown", [case(1)], "quiet case"),
        ({}, "### BosDown", [case()], "firing"),
        ({}, "### BosDown", [case(1, expr="bos:down:ratio"), case()], "firing"),
        ({}, "### BosDown\n### BosUp", [case(1), case()], "no alert BosUp"),
    ],
)
def test_what_an_alert_lacks_is_found(
    changes: dict[str, Any], runbook: str, cases: list[Any], fault: str, alerts: Any
) -> None:
    found = list(alerts.faults([alert(**changes)], runbook, cases))
    assert any(fault in each for each in found), found


@pytest.mark.parametrize(
    "expr",
    [
        'sum by (outcome) (rate(bos_runs_total{outcome!="failed"}[5m]))',
        "sum(bos_runs_active) / on () bos:questions:error_budget",
        'count(up{job="bos"} == 0) or vector(0)',
    ],
)
def test_queries_of_known_metrics_and_labels_are_in_order(expr: str, grafana: Any) -> None:
    recorded = frozenset({"bos:questions:error_budget"})
    assert list(grafana.faults_of_query(expr, METRICS, recorded)) == []


@pytest.mark.parametrize(
    ("expr", "fault"),
    [
        ("rate(bos_runs_ended_total[5m])", "no metric bos_runs_ended_total"),
        ("bos:questions:ratio", "no metric bos:questions:ratio"),
        ('bos_runs_total{status="failed"}', "bos_runs_total has no label status"),
        ("sum by (agent) (bos_runs_total)", "no metric has the label agent"),
        ("sum(bos_runs_active", "parentheses do not match"),
    ],
)
def test_what_is_wrong_with_a_query_is_found(expr: str, fault: str, grafana: Any) -> None:
    assert fault in list(grafana.faults_of_query(expr, METRICS, frozenset()))


def test_panel_without_unit_or_description_is_found(grafana: Any) -> None:
    panels = sys.modules["panels"]
    bad = panels.Panel("Runs", "", "furlongs", (panels.Query("sum(bos_runs_active)"),))
    board = panels.Dashboard("one", "One", "A board.", (panels.Row("Row", (bad,)),))
    found = list(grafana.faults(board, METRICS, frozenset()))
    assert found == ["Runs: unit 'furlongs'", "Runs: no description"]


def test_metrics_of_go_source_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = loaded("libs/chassis/metrics_reference.py", monkeypatch)
    source = """
        a: prometheus.NewCounterVec(prometheus.CounterOpts{
            Name: "bos_rest_requests_total",
            Help: "Requests answered, by HTTP status",
        }, []string{"route", "code"}),
        b: prometheus.NewGauge(prometheus.GaugeOpts{
            Name: "bos_rest_in_flight", Help: "Requests being handled",
        }),
    """
    assert [(row.name, row.kind, row.labels) for row in reference.of_go(source)] == [
        ("bos_rest_requests_total", "counter", ("route", "code")),
        ("bos_rest_in_flight", "gauge", ()),
    ]
