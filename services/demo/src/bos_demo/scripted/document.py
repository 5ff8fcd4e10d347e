"""Scripted replies of the rag agent's model: which passages help, and the answer that cites them.

The number of a passage is captured from the prompt by its document, section and words, so a passage
that the search did not find leaves the model without a reply.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bos_testkit.scripted_model.replies import fixture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bos_demo.questions import CitedPassage, RagStep
    from bos_testkit.scripted_model.replies import Fixture

_MARKER = re.compile(r"\[(\d)\]")


def rag_replies(question_id: str, step: RagStep) -> Iterator[Fixture]:
    """Yield the replies of the rag agent's model for one step of the question."""
    section = f"### Task\n{step.task}"  # the last one of the prompt
    numbers = range(1, len(step.passages) + 1)
    yield fixture(
        f"{question_id}/{step.id}: Ranking",
        [section],
        schema="Ranking",
        json={"ranked_indices": [f"${{p{number}}}" for number in numbers]},
        capture={f"p{n}": _placed(each) for n, each in enumerate(step.passages, 1)},
    )
    yield fixture(
        f"{question_id}/{step.id}: DocumentAnswer",
        [section],
        schema="DocumentAnswer",
        json={
            "found": True,
            "answer": _MARKER.sub(r"[${p\1}]", step.answer),
            "quotations": [
                {"passage": f"${{p{number}}}", "quote": passage.quote}
                for number, passage in zip(numbers, step.passages, strict=True)
            ],
        },
        capture={f"p{n}": _worded(each) for n, each in enumerate(step.passages, 1)},
    )


def _placed(passage: CitedPassage) -> str:
    """Pattern of a passage's number by the line above its text: document, page, section, date."""
    place = rf"[^\n]*{re.escape(passage.section)}" if passage.section else ""
    return rf"\nPassage (\d+)\n<untrusted>\n\({re.escape(passage.document)}{place}[^\n]*\)\n"


def _worded(passage: CitedPassage) -> str:
    """Pattern of a passage's number by its words, which lines may divide anywhere."""
    words = r"\s+".join(map(re.escape, passage.quote.split()))
    text = r"(?:(?!</untrusted>)[\s\S])*?"
    return rf"{_placed(passage)}{text}{words}"
