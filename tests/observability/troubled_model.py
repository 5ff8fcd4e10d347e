"""The scripted model of the demo, which also makes mistakes of real ones where it is asked to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bos_demo.scripted.dialogue import dialogue_fixtures
from bos_demo.scripted.replies import demo_fixtures
from bos_testkit.scripted_model.server import ScriptedModel

if TYPE_CHECKING:
    from datetime import date

REFUSED = "Tell me what our guards think of the blue whale"
"""A question whose query and download are refused, and whose plan is therefore made anew."""
STOPPED = "Tell me what our sandbox thinks of the blue whale"
"""A question whose program is refused, after the model was away during the first attempt."""
_PLANS = {
    REFUSED: (
        {"step_id": "query", "agent": "sql", "task": REFUSED},
        {
            "step_id": "fetch",
            "agent": "files",
            "task": REFUSED,
            "tool_name": "download_file",
            "sub_task_input": [{"name": "url", "value": "https://not-allowed.example/whale.csv"}],
        },
    ),
    STOPPED: ({"step_id": "program", "agent": "computation", "task": STOPPED},),
}
_QUERY = "SELECT pg_sleep(60) FROM customers"
_SAID = {
    "QueryDraft": {"is_clear": True, "sql": _QUERY, "used_tables": ["customers"]},
    "GeneratedSql": {"sql": _QUERY},
    "ComputationPlan": {"explanation": "Reads a file.", "code": "import os\nresult = os.environ"},
}
"""What it says to a step of these plans, by schema."""
_AWAY = 2
"""Attempts at one model call that an endpoint gets which does not say when to come back."""


def troubled_model(today: date) -> ScriptedModel:
    """The scripted model of the sample company at that date, not started."""
    fixtures = [*demo_fixtures(today), *dialogue_fixtures(today)]
    return ScriptedModel(fixtures, improvise=_mistake)


def be_away(model: ScriptedModel) -> None:
    """Have the next plan wait for a busy endpoint, and the next program for one that is down."""
    model.knobs.fail_next(1, status=429, retry_after=0, schema="PlannerReply")
    model.knobs.fail_next(_AWAY, status=503, schema="ComputationPlan")


def _mistake(schema: str | None, prompt: str) -> dict[str, Any] | None:
    asked = next((each for each in _PLANS if each in prompt), None)
    if asked is None or schema is None:
        return None
    if schema == "PlannerReply":
        again = "### Plan that failed" in prompt
        plan = {"rationale": "As asked.", "intent": "DATA_QA", "confidence": 0.9}
        if again:
            text = {"step_id": "words", "agent": "text", "task": "Say that nothing was found."}
            return {**plan, "steps": [text]}
        return {**plan, "steps": list(_PLANS[asked])}
    return _SAID.get(schema)
