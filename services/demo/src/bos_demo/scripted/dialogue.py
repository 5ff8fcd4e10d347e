"""Scripted replies for dialogues: follow-ups, clarifying questions, approvals.

The user's reply is captured from the prompt, so every offered choice works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bos_demo.dialogues import fill, load_approved, load_clarified, load_followups
from bos_demo.scripted.replies import (
    PLANNER_SCHEMA,
    cell_capture,
    composer_section,
    compositions,
    fill_in,
    plan_reply,
    planned,
    question_fixtures,
    sql_replies,
)
from bos_testkit.scripted_model.replies import fixture

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from bos_demo.dialogues import Clarified, FollowUp
    from bos_testkit.scripted_model.replies import Fixture


def dialogue_fixtures(today: date) -> Iterator[Fixture]:
    """Yield the replies for every dialogue, as seen from `today`."""
    for followup in load_followups():
        yield from _follow_up(followup, today)
    for clarified in load_clarified():
        yield from _asked_back(clarified)
        yield from _settled(clarified, today)
    for approved in load_approved():
        yield from question_fixtures(approved, today)


def _follow_up(question: FollowUp, today: date) -> Iterator[Fixture]:
    # Without the previous question there is no scripted reply.
    yield plan_reply(question, f"user: {question.after}")
    for step in question.steps:
        if step.agent == "sql":
            yield from sql_replies(question.id, step, today)
    yield from compositions(question)


def _asked_back(clarified: Clarified) -> Iterator[Fixture]:
    section = f"### Question\n{clarified.question}\n\n### Instructions"
    yield _plan(clarified, f"{clarified.id}: plan", section, clarified.task, {})
    judgement = {
        "is_clear": False,
        "clarifying_questions": [
            {"question": ask.question, "options": [each.offered for each in ask.choices]}
            for ask in clarified.asks
        ],
        "assumptions": list(clarified.assumptions),
    }
    unwritten = {"sql": "", "used_tables": [], "notes": "", "followups": []}
    open_points = "; ".join(ask.question for ask in clarified.asks)
    for schema, reply in (
        ("QueryDraft", {"reasoning": open_points, "needs_tables": [], **judgement, **unwritten}),
        ("SchemaChoice", {"tables": list(clarified.tables), **judgement}),
        ("ClarityCheck", judgement),
    ):
        task = f"### Task\n{clarified.task}\n\n###"
        yield fixture(f"{clarified.id}: {schema}", [task], schema=schema, json=reply)


def _settled(clarified: Clarified, today: date) -> Iterator[Fixture]:
    section = f"### Question\n{clarified.question}\n\n### Settled with the user"
    replied = {ask.slot: ask.in_reply for ask in clarified.asks}
    task = fill(clarified.settled_task, {slot: f"${{{slot}}}" for slot in replied})
    yield _plan(clarified, f"{clarified.id}: plan of the reply", section, task, replied)
    steps = [step for _, step in clarified.steps()]
    for number, step in enumerate(steps, 1):
        yield from sql_replies(f"{clarified.id}, reply {number}", step, today)
    cell = cell_capture(steps[0], 1)

    def capture(name: str, row: int) -> str:
        return replied.get(name) or cell(name, row)

    text, captures = fill_in(clarified.answer, capture)
    marks = ["### Settled with the user", composer_section(clarified.question)]
    yield fixture(f"{clarified.id}: answer", marks, text=text, capture=captures)


def _plan(
    clarified: Clarified, name: str, section: str, task: str, capture: dict[str, str]
) -> Fixture:
    planned_step: dict[str, Any] = {
        "step_id": "shift",
        "agent": "sql",
        "task": task,
        "tool_name": None,
        "sub_task_input": [],
        "depends_on": [],
        "is_final_answer": False,
    }
    plan = planned(clarified.rationale, [planned_step])
    return fixture(name, [section], schema=PLANNER_SCHEMA, json=plan, capture=capture)
