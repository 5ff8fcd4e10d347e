"""Every query of every panel returns data from a product under load, or says when it would."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from .measured_harness import ROOT, MeasuredHarness

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

CONDITIONAL = yaml.safe_load(Path(__file__).with_name("conditional_panels.yaml").read_text("utf-8"))
INTERVALS = {"$__rate_interval": "10m", "$__range": "10m"}


@dataclass(frozen=True)
class Asked:
    """One query of one panel."""

    panel: str
    """``dashboard/title``."""
    ref: str
    expr: str

    @property
    def name(self) -> str:
        return f"{self.panel}/{self.ref}"


def queries() -> list[Asked]:
    return [
        Asked(f"{file.stem}/{panel['title']}", target["refId"], target["expr"])
        for file in sorted((ROOT / "deploy/grafana/dashboards").glob("*.json"))
        for panel in json.loads(file.read_text("utf-8"))["panels"]
        for target in panel.get("targets", ())
    ]


QUERIES = queries()


@pytest.mark.requirement("O-09", "P-11")
@pytest.mark.parametrize("asked", QUERIES, ids=lambda each: each.name)
async def test_query_returns_data_or_is_conditional(asked: Asked, harness: MeasuredHarness) -> None:
    expr = asked.expr
    for variable, interval in INTERVALS.items():
        expr = expr.replace(variable, interval)
    found = await harness.prometheus.query(expr)  # also of conditional ones: Prometheus takes them
    numbers = [each for each in found if not math.isnan(float(each["value"][1]))]
    assert numbers or asked.name in CONDITIONAL, f"no data: {expr}"


async def test_conditional_queries_exist_and_say_their_condition() -> None:
    assert CONDITIONAL.keys() <= {each.name for each in QUERIES}
    assert [name for name, condition in CONDITIONAL.items() if not str(condition).strip()] == []
    assert len(CONDITIONAL) < len(QUERIES) / 3
