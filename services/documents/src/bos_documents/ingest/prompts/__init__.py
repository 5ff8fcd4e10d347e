"""Prompt of the call that describes a document; the system message is the file beside this one."""

from __future__ import annotations

from typing import Final

from bos_documents.ingest.rules import Excerpt, one_line
from bos_llm import Message, system, user
from bos_llm.prompts import UNTRUSTED_NOTICE, mark_untrusted, prompt_file

_DESCRIBE = prompt_file(__name__, "describe")
_MAX_TEXT_CHARS: Final = 6_000
_MAX_SECTIONS: Final = 30
_MAX_SECTION_CHARS: Final = 120


def description_messages(excerpt: Excerpt) -> list[Message]:
    """The messages of the call; all of the document is fenced, its name too."""
    sections = "\n".join(
        f"- {one_line(each)[:_MAX_SECTION_CHARS]}" for each in excerpt.sections[:_MAX_SECTIONS]
    )
    content = (
        f"Name: {one_line(excerpt.name)}\nTitle: {one_line(excerpt.title)}\n"
        f"Headings:\n{sections}\n\nBeginning:\n{excerpt.text[:_MAX_TEXT_CHARS]}"
    )
    return [
        system(_DESCRIBE.fill(untrusted_notice=UNTRUSTED_NOTICE)),
        user(f"### Document\n{mark_untrusted(content)}"),
    ]
