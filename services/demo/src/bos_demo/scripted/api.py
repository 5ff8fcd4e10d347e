"""Scripted replies of the api_docs agent's model: the planned call, and the response in words.

Values in an answer are captured from the prompt, which holds the real response.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bos_testkit.scripted_model.replies import fixture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bos_demo.questions import ApiStep
    from bos_testkit.scripted_model.replies import Fixture

_SLOT = re.compile(r"\{(\w+)(?:@(\d+))?\}")


def api_replies(question_id: str, step: ApiStep) -> Iterator[Fixture]:
    """Yield the replies of the api_docs agent's model for one step of the question."""
    if not step.path:
        return  # a list of endpoints takes no model
    yield fixture(
        f"{question_id}/{step.id}: ApiCallPlan",
        [f"### Task\n{step.task}"],
        schema="ApiCallPlan",
        json={
            "make_request": True,
            "api": "company",
            "method": step.method,
            "path": step.path,
            "path_params": _named(step.path_params),
            "query_params": _named(step.query_params),
            "json_body": step.json_body,
            "reason": "This endpoint does what the task asks for.",
        },
    )
    captures: dict[str, str] = {}

    def slot(match: re.Match[str]) -> str:
        name, row = match[1], int(match[2] or 1)
        captures[f"{name}_{row}"] = _field_capture(name, row)
        return f"${{{name}_{row}}}"

    yield fixture(
        f"{question_id}/{step.id}: ApiSummary",
        [f"### Task\n{step.task}\n\n### Call"],
        schema="ApiSummary",
        json={"answer": _SLOT.sub(slot, step.answer)},
        capture=captures,
    )


def api_answer_capture(position: int) -> str:
    """Pattern of the answer of the n-th result of the agent in the composer's prompt."""
    return (
        rf"(?s:(?:.*?Agent: api_docs \| ){{{position}}})"
        r"status: [\w ,]+\. Answer: (.+?) Error: (?:none|[A-Z])"
    )


def _named(given: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in given.items()]


def _field_capture(name: str, row: int) -> str:
    """Pattern of a field of the n-th object that has it: the prompt ends with JSON."""
    return rf'(?s)(?:.*?"{name}":){{{row}}}\s*"?([^",}}\]]*)'
