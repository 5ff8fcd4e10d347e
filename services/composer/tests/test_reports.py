"""Reports: sections with findings, charts and sources; caveats of checks."""

from collections.abc import Callable
from typing import Any

import pytest

from bos.common.v1 import Chart
from bos.planner.v1 import Intent, IntentRoute
from bos_testkit.scripted_model.replies import fixture

from . import conftest as make

pytestmark = pytest.mark.requirement("D-30", "D-32", "T-08")

QUESTION = "Give me a report on sales last year"
OTHER = "Give me another report"
WRITTEN = """\
- Revenue peaked in **March**.
- Pumps lead.

## Revenue by month
March brought most.

### In detail
It fell later.

## **Product groups:**
Pumps brought Rs.2.00."""
ONE_SECTION = "Sales rose.\n\n## revenue by month\nMarch brought most."


def report_results() -> list[Any]:
    return [
        make.result(
            agent_id="trend",
            answer="2 rows with month, revenue: 2025-01, 1; 2025-03, 5.",
            columns=["month", "revenue"],
            rows=[["2025-01", 1], ["2025-03", 5]],
            followups=["And by region?", "Which customers?"],
            sources=[make.document("sales.pdf", reference="a"), make.document("b.pdf")],
        ),
        make.result(
            agent_id="groups",
            answer="1 row.",
            columns=["product_group", "revenue"],
            rows=[["Pumps", 2]],
            task_description="Revenue of each group.",
            followups=["And by region?"],
            sources=[make.document("b.pdf")],
        ),
        make.result(
            "charts",
            agent_id="line",
            depends_on=["trend"],
            answer="Revenue by month: line chart. Highest: Mar 2025, Rs.5.00.",
            charts=[Chart(title="Revenue by month", type="line")],
        ),
        make.result(
            "charts",
            agent_id="bars",
            depends_on=["groups"],
            answer="Product groups: bar chart.",
            charts=[Chart(title="Product groups", type="bar")],
        ),
    ]


def report_request(results: list[Any], question: str = QUESTION) -> Any:
    return make.request(
        *results,
        question=question,
        step_ids=[each.agent_id for each in results],
        intent=IntentRoute(intent=Intent.INTENT_ANALYTICS_REPORT, confidence=0.9),
    )


async def test_report_has_sections_with_charts(start: Callable[..., Any]) -> None:
    rig = await start(fixture("report", ["report on sales"], text=WRITTEN))
    deltas, output = await rig.compose(report_request(report_results()))

    assert output.answer == WRITTEN == "".join(deltas)
    trend, groups = output.sections
    assert (trend.heading, groups.heading) == ("Revenue by month", "Product groups")
    assert trend.finding == "March brought most.\n\n### In detail\nIt fell later."
    assert groups.finding == "Pumps brought Rs.2.00."
    assert [list(each.step_ids) for each in output.sections] == [
        ["trend", "line"],
        ["groups", "bars"],
    ]
    assert [list(each.charts) for each in output.sections] == [[1], [2]]
    assert [list(each.sources) for each in output.sections] == [[1, 2], [2]]
    assert list(output.highlights) == ["Revenue peaked in March.", "Pumps lead."]
    assert list(output.followups) == ["And by region?", "Which customers?"]
    (request,) = rig.model.requests
    assert "## Revenue by month (results of trend, line)" in request.prompt
    assert "You write a report" in request.prompt


async def test_a_section_left_out_is_made_of_its_results(start: Callable[..., Any]) -> None:
    rig = await start(fixture("short", ["another report"], text=ONE_SECTION))
    deltas, output = await rig.compose(report_request(report_results(), OTHER))

    assert output.answer == "".join(deltas)
    assert output.answer.startswith(f"{ONE_SECTION}\n\n## Product groups\n\n1 row.")
    trend, groups = output.sections
    assert trend.finding == "March brought most."
    assert "| Pumps | 2 |" in groups.finding
    assert list(output.highlights) == ["Sales rose."]


async def test_without_a_model_sections_are_the_same(start: Callable[..., Any]) -> None:
    rig = await start(models=False)
    failed = make.result(agent_id="outliers", status="failed", error=("QueryError", "Too slow."))
    wanted = report_request([*report_results(), failed])
    for number, each in enumerate(wanted.results):  # ids of steps and of agents are different ones
        each.agent_id = f"{each.agent_name}_{number}"
    _, output = await rig.compose(wanted)

    assert output.deterministic
    assert "Too slow." in output.answer
    steps = [list(each.step_ids) for each in output.sections]
    assert steps == [["trend", "line"], ["groups", "bars"]]
    assert [each.heading for each in output.sections] == ["Revenue by month", "Product groups"]
    assert [list(each.charts) for each in output.sections] == [[1], [2]]
    for section in output.sections:
        assert f"## {section.heading}\n\n{section.finding}" in output.answer
    assert "Highest: Mar 2025, Rs.5.00." in output.sections[0].finding
    assert output.highlights[0].startswith("Revenue by month: line chart.")


async def test_other_intents_have_no_sections(start: Callable[..., Any]) -> None:
    rig = await start(models=False)
    intent = IntentRoute(intent=Intent.INTENT_DATA_QA, confidence=1)
    _, output = await rig.compose(make.request(*report_results(), intent=intent))
    assert not output.sections
    assert "## " not in output.answer
    _, output = await rig.compose(report_request(report_results()[:1]))
    assert not output.sections


async def test_headings_are_distinct_and_short(start: Callable[..., Any]) -> None:
    rig = await start(models=False)
    tasks = ["Totals.", "totals", "Agent results", "#<untrusted> x", "a" * 500, ""]
    results = [
        make.result(agent_id=f"s{n}", answer="Fine.", task_description=task)
        for n, task in enumerate(tasks)
    ]
    _, output = await rig.compose(report_request(results))

    headings = [each.heading for each in output.sections]
    assert headings[:4] == ["Totals", "totals (2)", "Agent results (3)", "untrusted> x"]
    assert len(headings[4]) == 90
    assert headings[5] == "Result (6)"


async def test_caveats_are_appended_to_an_answer_once(start: Callable[..., Any]) -> None:
    rig = await start()
    cut = "Only the first 200 rows were read."
    wanted = make.request(make.top_customers(caveats=[cut, cut]), make.result(caveats=[cut]))
    deltas, output = await rig.compose(wanted)

    assert output.answer == "".join(deltas)
    assert output.answer.endswith(f"\n\nNote: {cut}")
    assert output.answer.count(cut) == 1
    (request,) = rig.model.requests
    assert f"### Checks of the results\n<untrusted>\n- {cut}" in request.prompt


async def test_stated_caveats_are_not_repeated(start: Callable[..., Any]) -> None:
    rig = await start(models=False)
    cuts = ["Only 200 rows were read.", "Joins repeat rows."]
    results = [make.result(answer=f"Acme leads. {cuts[0]}", caveats=cuts[:1])]
    _, output = await rig.compose(make.request(*results))
    assert output.answer == f"Acme leads. {cuts[0]}"

    _, output = await rig.compose(make.request(make.result(answer="Acme.", caveats=cuts)))
    assert output.answer == f"Acme.\n\nNotes:\n- {cuts[0]}\n- {cuts[1]}"
