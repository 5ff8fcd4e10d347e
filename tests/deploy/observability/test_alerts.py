"""Rules and configuration of Prometheus, as promtool checks and tests them."""

import subprocess
from pathlib import Path

import pytest
from prometheus_server import PROMETHEUS


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ("promtool", *map(str, arguments)),
        cwd=PROMETHEUS,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )


def test_configuration_and_rules_are_valid() -> None:
    for arguments in (
        ("check", "config", PROMETHEUS / "prometheus.yaml"),
        ("check", "rules", *sorted((PROMETHEUS / "rules").glob("*.yaml"))),
    ):
        checked = promtool(*arguments)
        assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("file", ["alerts.yaml", "slo.yaml"])
def test_alerts_fire_when_they_should_and_only_then(file: str) -> None:
    tested = promtool("test", "rules", PROMETHEUS / "tests" / file)
    assert tested.returncode == 0, tested.stdout


def test_promtool_notices_an_alert_that_does_not_fire(tmp_path: Path) -> None:
    rules = (PROMETHEUS / "rules/alerts.yaml").read_text("utf-8")
    (tmp_path / "rules").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "rules/alerts.yaml").write_text(rules.replace("== 0", "== 7"))
    cases = (PROMETHEUS / "tests/alerts.yaml").read_text("utf-8")
    (tmp_path / "tests/alerts.yaml").write_text(cases)
    tested = promtool("test", "rules", tmp_path / "tests/alerts.yaml")
    assert tested.returncode != 0
    assert "BosTargetDown" in tested.stdout
