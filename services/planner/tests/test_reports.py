"""Plans of reports: several queries, a chart, composed as a whole."""

from typing import Any

import pytest

from bos.agent.v1 import AgentCard
from bos.planner.v1 import Intent
from bos_chassis.values import from_value
from bos_planner.draft import Bounds, Draft, draft_from_reply
from bos_planner.reply import PlannerReply
from bos_plans import Selection

pytestmark = pytest.mark.requirement("D-01", "D-32", "T-08")

QUESTION = "Give me a report on sales last year"
CARDS = {
    "sql": AgentCard(name="sql", description="x", capabilities=["database lookup"]),
    "charts": AgentCard(
        name="charts", description="x", capabilities=["bar, pie and scatter charts, histograms"]
    ),
    "computation": AgentCard(name="computation", description="x"),
}


def report(*steps: dict[str, Any], intent: str = "ANALYTICS_REPORT", **changes: Any) -> Draft:
    bounds = Bounds(**{"cards": CARDS, "disabled": (), "max_steps": 20, **changes})
    reply = PlannerReply.model_validate({"intent": intent, "confidence": 0.9, "steps": steps})
    return draft_from_reply(reply, QUESTION, Selection(("sql",)), bounds, origin="model")


def step(step_id: str, agent: str = "sql", **more: Any) -> dict[str, Any]:
    return {"step_id": step_id, "agent": agent, "task": f"Totals of {step_id}.", **more}


def drawn(step_id: str, of: str) -> dict[str, Any]:
    return step(
        step_id, "charts", sub_task_input=[{"name": "rows", "value": f"@{{outputs.{of}.rows}}"}]
    )


def test_charts_wait_for_their_own_query_alone() -> None:
    made = report(step("trend"), step("groups"), drawn("line", "trend"), drawn("bars", "groups"))
    assert made.intent.intent == Intent.INTENT_ANALYTICS_REPORT
    assert {each.step_id: list(each.depends_on) for each in made.plan.steps} == {
        "trend": [],
        "groups": [],
        "line": ["trend"],
        "bars": ["groups"],
    }


def test_a_chart_is_added_for_the_first_query() -> None:
    made = report(step("trend"), step("groups"))
    *_, chart = made.plan.steps
    assert [each.step_id for each in made.plan.steps] == ["trend", "groups", "trend_chart"]
    assert (chart.agent, list(chart.depends_on)) == ("charts", ["trend"])
    assert from_value(chart.sub_task_input["rows"]) == "@{outputs.trend.rows}"
    assert "Totals of trend." in chart.task
    assert list(made.decision.chosen_agents) == ["sql", "charts"]


def test_no_chart_is_added_where_none_is_wanted_or_possible() -> None:
    no_agent = {"cards": {"sql": CARDS["sql"]}}
    for changes in ({"intent": "DATA_QA"}, {"disabled": ("charts",)}, no_agent, {"max_steps": 2}):
        made = report(step("trend"), step("groups"), **changes)
        assert [each.step_id for each in made.plan.steps] == ["trend", "groups"], changes
    made = report(step("sum", "computation"))
    assert [each.step_id for each in made.plan.steps] == ["sum"], "no query, no chart"


def test_no_step_of_a_report_is_the_final_answer() -> None:
    steps = (step("trend"), {**drawn("line", "trend"), "is_final_answer": True})
    assert not any(each.is_final_answer for each in report(*steps).plan.steps)
    assert any(each.is_final_answer for each in report(*steps, intent="DATA_QA").plan.steps)
