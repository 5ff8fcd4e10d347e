"""Turns the demo questions into replies of the scripted model, one per model call.

Numbers and names in a reply are never written down: they are captured from the prompt, in which
the agents have put the real result. Where a prompt's format matters, one of the two `_…_capture`
functions below knows it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from bos_demo.questions import load_questions
from bos_testkit.model_fixtures import fixture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import date

    from bos_demo.questions import ComputationStep, Question, SqlStep
    from bos_testkit.model_fixtures import Fixture

CONFIDENCE = 0.93
_SLOT = re.compile(r"\{(\w+)(?:@(\d+))?\}")


def demo_fixtures(today: date, questions: Sequence[Question] = ()) -> tuple[Fixture, ...]:
    """Return the replies for every demo question (or for `questions`), as seen from `today`."""
    return tuple(
        reply
        for question in questions or load_questions()
        for reply in question_fixtures(question, today)
    )


def question_fixtures(question: Question, today: date) -> Iterator[Fixture]:
    """Yield the replies of planner, agents and composer for one question."""
    yield _plan(question)
    for step in question.steps:
        if step.agent == "sql":
            yield from _sql_replies(question, step, today)
        else:
            yield from _computation_replies(question, step)
    yield _composition(question)


def _plan(question: Question) -> Fixture:
    steps = [
        {
            "step_id": step.id,
            "agent": step.agent,
            "task": step.task,
            "tool_name": None,
            "sub_task_input": [{"name": k, "value": v} for k, v in step.inputs.items()],
            "depends_on": list(question.depends_on(step)),
            "is_final_answer": False,
        }
        for step in question.steps
    ]
    plan = {
        "intent": question.intent,
        "intent_reason": question.rationale,
        "intent_confidence": CONFIDENCE,
        "agents": list(question.agents),
        "rationale": question.rationale,
        "confidence": CONFIDENCE,
        "entities": [],
        "steps": steps,
    }
    # The whole section of the planner's prompt: a question that merely contains this one, or an
    # agent's card that quotes it, is another prompt.
    section = f"### Question\n{question.question}\n\n### Context keys"
    return fixture(f"{question.id}: plan", [section], schema="PlannerReply", json=plan)


def _sql_replies(question: Question, step: SqlStep, today: date) -> Iterator[Fixture]:
    def reply(schema: str, json: dict[str, Any], **more: Any) -> Fixture:
        name = f"{question.id}/{step.id}: {schema}"
        return fixture(name, [step.task], schema=schema, json=json, **more)

    yield reply(
        "SchemaChoice",
        {
            "tables": list(step.tables),
            "is_clear": True,
            "clarifying_questions": [],
            "assumptions": [],
        },
    )
    yield reply(
        "GeneratedSql",
        {
            "sql_postgres": step.query("postgres", today),
            "sql_server": step.query("tsql", today),
            "sql_sqlite": step.query("sqlite", today),
            "used_tables": list(step.tables),
            "notes": "",
            "assumptions": [],
        },
    )
    yield reply(
        "QueryReview",
        {"is_correct": True, "corrected_sql": None, "reason": "It answers the task."},
    )
    answer, capture = _fill_in(step.answer, _row_capture)
    yield reply(
        "ResultInterpretation",
        {"answer": answer, "highlights": [], "followups": []},
        capture=capture,
    )


def _computation_replies(question: Question, step: ComputationStep) -> Iterator[Fixture]:
    name = f"{question.id}/{step.id}"
    yield fixture(
        f"{name}: ComputationPlan",
        [step.task],
        schema="ComputationPlan",
        json={"code": step.program, "explanation": step.task, "inputs": list(step.inputs)},
    )
    answer, capture = _fill_in(step.answer, _result_capture)
    yield fixture(
        f"{name}: ComputationSummary",
        [step.task],
        schema="ComputationSummary",
        json={"answer": answer, "table": None},
        capture=capture,
    )


def _composition(question: Question) -> Fixture:
    """The composer repeats what the agents answered, in plan order."""
    slots = [f"answer_{n}" for n in range(1, len(question.steps) + 1)]
    return fixture(
        f"{question.id}: answer",
        [question.question],
        text=" ".join(f"${{{slot}}}" for slot in slots) or question.reply,
        capture={slot: _answer_capture(n) for n, slot in enumerate(slots, 1)},
    )


def _fill_in(template: str, capture: Callable[[str, int], str]) -> tuple[str, dict[str, str]]:
    """Return `template` for a fixture, and the captures that its slots need."""
    captures: dict[str, str] = {}

    def slot(match: re.Match[str]) -> str:
        name, row = match[1], int(match[2] or 1)
        captures[f"{name}_{row}"] = capture(name, row)
        return f"${{{name}_{row}}}"

    return _SLOT.sub(slot, template), captures


def _row_capture(column: str, row: int) -> str:
    """Where an interpretation prompt holds a cell: rows are JSON objects, one after another."""
    return rf'(?s)(?:.*?"{column}":){{{row}}}\s*"?([^",}}]*)'


def _result_capture(field: str, _: int) -> str:
    """Where a summary prompt holds a field of the result: JSON, after the program if any."""
    return rf'(?s).*"{field}":\s*"?([^",}}]*)'


def _answer_capture(position: int) -> str:
    """Where the composer's prompt holds the answer of the n-th agent (SPEC K-02)."""
    return (
        rf"(?:(?s:.*?)Agent: \S+ \| status: ){{{position}}}"
        r"[^\n]*?Answer: ([^\n]*?) *(?:Error:|\n|$)"
    )
