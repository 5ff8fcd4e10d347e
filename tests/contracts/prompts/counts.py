"""What the demo questions cost in model calls, characters and tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from .asking import Asked

Table = dict[str, "Counts"]
"""By question id, in the order in which they are asked."""

PROMISED: Final[Mapping[str, tuple[int, int]]] = {
    "top-five-customers": (3, 3500),
    "top-five-customers-share": (4, 5500),
}
"""Calls in a row and tokens without schema that no `make prompts` raises, by question id."""
_MD_HEAD = """\
# Model calls of the demo questions

Written by `make prompts` from what the assembled product sends to the scripted model, with the
form of each reply beside the prompt; tokens are its words and punctuation marks. Calls beside a
run, such as memory's, are in every figure but "in a row".

"""


@dataclass(frozen=True, slots=True)
class Counts:
    """The figures of one question."""

    calls: int
    in_a_row: int
    prompt_characters: int
    reply_characters: int
    prompt_tokens: int
    reply_tokens: int

    @property
    def tokens(self) -> int:
        """Prompts and replies together."""
        return self.prompt_tokens + self.reply_tokens

    @classmethod
    def of(cls, asked: Asked) -> Counts:
        """Count what one question took."""
        calls = [call for _, call in asked.path]
        return cls(
            calls=len(calls),
            in_a_row=asked.calls_in_a_row,
            prompt_characters=sum(len(call.prompt) for call in calls),
            reply_characters=sum(len(call.reply) for call in calls),
            prompt_tokens=sum(call.prompt_tokens for call in calls),
            reply_tokens=sum(call.reply_tokens for call in calls),
        )


def table(asked: Sequence[Asked]) -> Table:
    """The figures of all questions."""
    return {each.question.id: Counts.of(each) for each in asked}


def as_markdown(questions: Table) -> str:
    """The committed page of figures."""
    head = ("question", "calls", "in a row", "characters: prompts", "replies")
    head += ("tokens: prompts", "replies", "together")
    names = Counts.__dataclass_fields__
    total = Counts(*(sum(getattr(each, name) for each in questions.values()) for name in names))
    rows = {**questions, f"**all {len(questions)}**": total}
    return "\n".join(
        [
            f"{_MD_HEAD}| " + " | ".join(head) + " |",
            "|---" + "|---:" * (len(head) - 1) + "|",
            *(f"| {name} | {_cells(counts)} |" for name, counts in rows.items()),
            "",
        ]
    )


def _cells(counts: Counts) -> str:
    values = (
        *(counts.calls, counts.in_a_row, counts.prompt_characters, counts.reply_characters),
        *(counts.prompt_tokens, counts.reply_tokens, counts.tokens),
    )
    return " | ".join(f"{value:,}" for value in values)
