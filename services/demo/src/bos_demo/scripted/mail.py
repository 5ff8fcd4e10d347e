"""Scripted replies of the mail agent's model: the action, the mail's words, the result in words.

A summary answers only where the prompt holds the words that it states, so a search that finds
another mail leaves the model without a reply. Figures in a mail are captured from the prompt.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bos_testkit.scripted_model.replies import fixture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bos_demo.questions import MailStep
    from bos_testkit.scripted_model.replies import Fixture

_SLOT = re.compile(r"\{(\w+)(?:@(\d+))?\}")


def mail_replies(question_id: str, step: MailStep) -> Iterator[Fixture]:
    """Yield the replies of the mail agent's model for one step of the question."""
    name = f"{question_id}/{step.id}"
    section = f"### Task\n{step.task}"
    if step.action is not None:
        yield fixture(f"{name}: MailAction", [section], schema="MailAction", json=step.action)
    if step.writes is not None:
        captures: dict[str, str] = {}

        def slot(match: re.Match[str]) -> str:
            key, row = match[1], int(match[2] or 1)
            captures[f"{key}_{row}"] = _cell(key, row)
            return f"${{{key}_{row}}}"

        body = _SLOT.sub(slot, step.writes.body)
        yield fixture(
            f"{name}: MailText",
            [section],
            schema="MailText",
            json={"subject": step.writes.subject, "body": body},
            capture=captures,
        )
    yield fixture(
        f"{name}: MailSummary",
        [f"{section}\n\n### Action\n", *step.reads],
        schema="MailSummary",
        json={"result": step.answer},
    )


def _cell(column: str, row: int) -> str:
    """Pattern of a cell of the n-th row among the results of earlier steps."""
    return rf'(?s)### Results of earlier steps(?:.*?"{column}":){{{row}}}\s*"?([^",}}]*)'
