"""Prompts of memory's model calls; the system messages are the files beside this module."""

from __future__ import annotations

from collections.abc import Sequence

from bos.common.v1 import LongTermMemory
from bos_llm import Message, system, user
from bos_llm.prompts import UNTRUSTED_NOTICE, mark_untrusted, prompt_file
from bos_memory.facts import as_stored
from bos_memory.texts import cut

_FACTS = prompt_file(__name__, "facts")
_SUMMARY = prompt_file(__name__, "summary")
_MAX_QUESTION_CHARS = 4_000
_MAX_MESSAGE_CHARS = 2_000


def extraction_messages(question: str, known: LongTermMemory) -> list[Message]:
    """The messages of the call that extracts facts."""
    facts, preferences = as_stored(known)
    lines = [f"{name}: {value}" for name, value in {**facts, **preferences}.items()]
    before = f"### Known\n{mark_untrusted(chr(10).join(lines))}\n\n" if lines else ""
    asked = mark_untrusted(cut(question, _MAX_QUESTION_CHARS))
    return [
        system(_FACTS.fill()),
        user(f"{before}### Question to look through\n{asked}"),
    ]


def summary_messages(former: str, turns: Sequence[tuple[str, str]]) -> list[Message]:
    """The messages of the call that extends a summary."""
    said = "\n\n".join(
        f"Question: {cut(question, _MAX_MESSAGE_CHARS)}\nAnswer: {cut(answer, _MAX_MESSAGE_CHARS)}"
        for question, answer in turns
    )
    before = f"### Summary so far\n{mark_untrusted(former)}\n\n" if former else ""
    return [
        system(_SUMMARY.fill(untrusted_notice=UNTRUSTED_NOTICE)),
        user(f"{before}### New turns\n{mark_untrusted(said)}"),
    ]
