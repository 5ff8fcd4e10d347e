"""What the demo questions cost in model calls, characters and tokens, and what they may cost."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from .asking import Asked

Table = dict[str, "Counts"]
"""By question id, in the order in which they are asked."""

PROMISED: Final[Mapping[str, tuple[int, int]]] = {
    "top-five-customers": (3, 3500),
    "top-five-customers-share": (4, 5500),
}
"""Calls in a row and tokens without schema that no `make prompts` raises, by question id."""
_MARGIN: Final = 0.02
_ROUND_TO: Final = 50
_TOML_HEAD = """\
# Model calls, characters and tokens of every demo question, as the scripted model counts them, and
# what they may come to. Written by `make prompts`; the tests beside it fail when one is exceeded.
"""
_MD_HEAD = """\
# Model calls of the demo questions

Written by `make prompts` from what the assembled product sends to the scripted model; tokens are
its words and punctuation marks. Calls beside a run, such as memory's, are in every figure but "in
a row".
"""
_TITLES: Final[Mapping[str, str]] = {
    "schema_apart": "Form of the reply beside the prompt (openai, azure)",
    "schema_in_prompt": "Form of the reply in the prompt as well (every other provider)",
}


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


@dataclass(frozen=True, slots=True)
class Budget:
    """What one question may take at most."""

    calls: int
    in_a_row: int
    tokens: int

    @classmethod
    def of(cls, mode: str, question: str, counts: Counts) -> Budget:
        """What was measured and a little more; what is promised where it is."""
        tokens = math.ceil(counts.tokens * (1 + _MARGIN) / _ROUND_TO) * _ROUND_TO
        in_a_row = counts.in_a_row
        if question in PROMISED and mode == "schema_apart":
            in_a_row, tokens = PROMISED[question]
        return cls(counts.calls, in_a_row, tokens)

    def exceeded_by(self, counts: Counts) -> Iterator[str]:
        """Each figure that is too high, with the budget beside it."""
        for name, limit in asdict(self).items():
            found = getattr(counts, name)
            if found > limit:
                yield f"{name.replace('_', ' ')}: {found}, and the budget is {limit}"


def table(asked: Sequence[Asked]) -> Table:
    """The figures of all questions."""
    return {each.question.id: Counts.of(each) for each in asked}


def as_toml(tables: Mapping[str, Table]) -> str:
    """The committed file: figures and budgets of every mode."""
    lines = [_TOML_HEAD]
    for mode, questions in tables.items():
        for question, counts in questions.items():
            lines.append(f"[{mode}.{question}]")
            lines += [f"{name} = {value}" for name, value in asdict(counts).items()]
            budget = asdict(Budget.of(mode, question, counts))
            inside = ", ".join(f"{name} = {value}" for name, value in budget.items())
            lines.append(f"budget = {{ {inside} }}\n")
    return "\n".join(lines)


def from_toml(path: Path) -> dict[str, dict[str, tuple[Counts, Budget]]]:
    """What is committed, by mode and question id; empty if nothing is."""
    if not path.exists():
        return {}
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    return {
        mode: {
            question: (
                Counts(**{name: value for name, value in entry.items() if name != "budget"}),
                Budget(**entry["budget"]),
            )
            for question, entry in questions.items()
        }
        for mode, questions in found.items()
    }


def as_markdown(tables: Mapping[str, Table]) -> str:
    """The same figures for people."""
    parts = [_MD_HEAD]
    for mode, questions in tables.items():
        parts.append(f"\n## {_TITLES[mode]}\n\n")
        head = ("question", "calls", "in a row", "characters: prompts", "replies")
        head += ("tokens: prompts", "replies", "together", "budget")
        parts.append("| " + " | ".join(head) + " |\n")
        parts.append("|---" + "|---:" * (len(head) - 1) + "|\n")
        for question, counts in questions.items():
            budget = Budget.of(mode, question, counts).tokens
            parts.append(f"| {question} | {_cells(counts)} | {budget:,} |\n")
        total = Counts(
            *(
                sum(getattr(each, name) for each in questions.values())
                for name in Counts.__dataclass_fields__
            )
        )
        parts.append(f"| **all {len(questions)}** | {_cells(total)} | |\n")
    return "".join(parts)


def _cells(counts: Counts) -> str:
    values = (
        *(counts.calls, counts.in_a_row, counts.prompt_characters, counts.reply_characters),
        *(counts.prompt_tokens, counts.reply_tokens, counts.tokens),
    )
    return " | ".join(f"{value:,}" for value in values)
