"""Scripted replies of the web agent's model: how to search, and the answer that cites pages.

The number of a page is captured from the prompt by its path and words, so a page that the search
did not find, or that could not be read, leaves the model without a reply.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bos_testkit.scripted_model.replies import fixture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bos_demo.questions import CitedPage, WebStep
    from bos_testkit.scripted_model.replies import Fixture

_MARKER = re.compile(r"\[(\d)\]")


def web_replies(question_id: str, step: WebStep) -> Iterator[Fixture]:
    """Yield the replies of the web agent's model for one step of the question."""
    section = f"### Task\n{step.task}"  # the last one of the prompt
    numbers = range(1, len(step.pages) + 1)
    yield fixture(
        f"{question_id}/{step.id}: SearchStrategy",
        [section],
        schema="SearchStrategy",
        json={
            "query": step.query,
            "search_type": step.search_type,
            "time_range": step.time_range,
        },
    )
    worded = {
        "found": True,
        "answer": _MARKER.sub(r"[${p\1}]", step.answer),
        "quotations": [
            {"page": f"${{p{number}}}", "quote": page.quote}
            for number, page in zip(numbers, step.pages, strict=True)
        ],
        "open_pages": [],
    }
    capture = {f"p{n}": _worded(each) for n, each in enumerate(step.pages, 1)}
    if step.opens:
        # From excerpts alone it asks for the pages; with them it answers.
        yield fixture(
            f"{question_id}/{step.id}: WebAnswer, excerpts",
            [section],
            schema="WebAnswer",
            json={
                "found": False,
                "answer": "",
                "quotations": [],
                "open_pages": [f"${{p{number}}}" for number in numbers],
            },
            capture={f"p{n}": _placed(each) for n, each in enumerate(step.pages, 1)},
        )
    yield fixture(
        f"{question_id}/{step.id}: WebAnswer",
        [section, *(["whole page\n<untrusted>"] if step.opens else [])],
        schema="WebAnswer",
        json=worded,
        capture=capture,
    )


def _placed(page: CitedPage) -> str:
    """Pattern of a page's number by the line above its text: title, address, date."""
    address = rf"https?://[^\s/]+{re.escape(page.path)}(?=[,)\n])"
    return rf"\nPage (\d+), (?:whole page|excerpt)\n<untrusted>\n\([^\n]*?{address}[^\n]*\)\n"


def _worded(page: CitedPage) -> str:
    """Pattern of a page's number by its words, which lines may divide anywhere."""
    words = r"\s+".join(map(re.escape, page.quote.split()))
    text = r"(?:(?!</untrusted>)[\s\S])*?"
    return rf"{_placed(page)}{text}{words}"
