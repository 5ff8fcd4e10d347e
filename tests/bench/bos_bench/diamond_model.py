"""``python -m bos_bench.diamond_model``: the scripted model of the diamond, a process of its own.

It answers each line on its standard input with a line of JSON: ``latency SECONDS`` sets how long
every call takes, ``bodies`` returns the last request of each kind, by the name of its fixture.
"""

import asyncio
import json
import sys
from typing import Any

from bos_bench.one_call import NAMES
from bos_testkit.scripted_model.replies import Fixture, fixture
from bos_testkit.scripted_model.server import ScriptedModel

PLAN, ANSWER = "plan", "answer"
QUESTION = "What did our best customers bring last quarter, and what was left of it?"
_TASKS = {
    "sales": "Find the revenue of the five best customers.",
    "costs": "Find the costs of the five best customers.",
    "margin": "Work out what was left of the revenue.",
}
_NEEDS = {"margin": ("sales", "costs")}
_REPLY = (
    "The {name} of the five best customers came to 612,000 EUR in the last quarter, which is 41 % "
    "of the total; Acme Industries alone stands for 182,340 EUR of it, more than ever before."
)
_ANSWER = (
    "The five best customers brought 612,000 EUR last quarter, 41 % of the total. Of that, 182,340 "
    "EUR were left after costs, most of them with Acme Industries, which was also the customer "
    "that grew most. Costs rose by 3 %."
)


def _plan() -> dict[str, Any]:
    return {
        "intent": "DATA_QA",
        "intent_reason": "The question is about figures of the company.",
        "intent_confidence": 0.9,
        "agents": list(NAMES),
        "rationale": "Revenue and costs side by side, then what is left.",
        "confidence": 0.9,
        "entities": [{"name": "date_range", "value": "last quarter"}],
        "steps": [
            {
                "step_id": name,
                "agent": name,
                "task": _TASKS[name],
                "tool_name": None,
                "sub_task_input": [
                    {"name": one, "value": f"@{{outputs.{one}.{one}}}"}
                    for one in _NEEDS.get(name, ())
                ],
                "depends_on": list(_NEEDS.get(name, ())),
                "is_final_answer": False,
            }
            for name in NAMES
        ],
    }


def _fixtures() -> list[Fixture]:
    agents = [
        fixture(name, ["Answer the task.", _TASKS[name]], text=_REPLY.format(name=name))
        for name in NAMES
    ]
    return [
        fixture(PLAN, [], schema="PlannerReply", json=_plan()),
        # More needles than an agent's: its prompt holds what they were asked.
        fixture(ANSWER, ["You write the final answer", "### Rules", QUESTION], text=_ANSWER),
        *agents,
        fixture("anything", [], text=_ANSWER),
    ]


async def main() -> None:
    """Serve until the input ends, however that comes about."""
    async with ScriptedModel(_fixtures()) as model:
        print(json.dumps({"base_url": model.base_url}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            command, _, argument = line.strip().partition(" ")
            answer: Any = None
            if command == "latency":
                model.knobs.latency_s = answer = float(argument)
            elif command == "bodies":
                answer = {one.fixture: one.body for one in model.requests if one.fixture}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
