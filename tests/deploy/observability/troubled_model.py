"""The scripted model of the demo, which also makes mistakes of real ones where it is asked to."""

from datetime import date
from typing import Any

from bos_demo.scripted.dialogue import dialogue_fixtures
from bos_demo.scripted.replies import demo_fixtures
from bos_testkit.scripted_model.server import ScriptedModel

TROUBLE = "Tell me what goes wrong with the blue whale"
"""A question whose query, program and download are refused, one step of which is attempted again,
and whose plan is made anew."""
_COUNT = "Count the customers for the blue whale"
_PROGRAM = "import os\nresult = os.environ"
# In this order, as the question stands in both prompts.
_QUERIES = {
    _COUNT: "SELECT count(*) AS customers FROM customers",
    TROUBLE: "SELECT pg_sleep(60) FROM customers",
}
_NOT_ALLOWED = "https://not-allowed.example/whale.csv"


def troubled_model(today: date, unreachable: str) -> ScriptedModel:
    """The scripted model of the sample company, not started.

    Args:
        today: The company's today.
        unreachable: Origin that the files agent may call, and where nothing listens.
    """

    def mistake(schema: str | None, prompt: str) -> dict[str, Any] | None:
        if schema == "QueryDraft":
            return next((_draft(sql) for task, sql in _QUERIES.items() if task in prompt), None)
        if schema != "PlannerReply" or TROUBLE not in prompt:
            return None
        if "### Plan that failed" in prompt:
            return _plan(_step("words", "text", "Say that the whale was not found."))
        return _plan(
            _step("query", "sql", TROUBLE),
            _step("program", "computation", TROUBLE, "run_program", code=_PROGRAM),
            _step("refused", "files", TROUBLE, "download_file", url=_NOT_ALLOWED),
            _step("away", "files", TROUBLE, "download_file", url=f"{unreachable}/whale.csv"),
            _step("count", "sql", _COUNT),
            # A column that the query does not have: another plan could mend that.
            _step("lost", "text", TROUBLE, text="@{outputs.count.whales}"),
        )

    fixtures = [*demo_fixtures(today), *dialogue_fixtures(today)]
    return ScriptedModel(fixtures, improvise=mistake)


def _draft(sql: str) -> dict[str, Any]:
    return {"is_clear": True, "sql": sql, "used_tables": ["customers"]}


def _plan(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"rationale": "As asked.", "intent": "DATA_QA", "confidence": 0.9, "steps": list(steps)}


def _step(
    step_id: str, agent: str, task: str, tool: str | None = None, **inputs: str
) -> dict[str, Any]:
    given = [{"name": name, "value": value} for name, value in inputs.items()]
    named = {"step_id": step_id, "agent": agent, "task": task}
    return {**named, "tool_name": tool, "sub_task_input": given}
