"""Draft to the YAML file of ``BOS_SQL_METADATA_PATH``; each part to confirm has a comment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import yaml  # type: ignore[import-untyped]

from bos_mcp_db.connecting.draft import Draft, MetricDraft, TableDraft, Words
from bos_mcp_db.connecting.texts import one_line

MAX_BYTES: Final = 1_000_000
"""What the sql agent reads."""

_HEAD = """\
# Drafted by `bos connect`{source}. Lines marked "check:" are guesses: correct or
# remove them, then the mark. A metric with `enforced: false` is a hint for the model; without that
# line, every question that names it gets exactly this number.
"""


def metadata_yaml(draft: Draft, *, by_model: bool) -> str:
    """Text of the file. Names and comments of the database are values in it, never syntax."""
    source = " with a model" if by_model else " from comments, keys and names"
    lines = [_HEAD.format(source=source)]
    lines.append("tables:" if draft.tables else "tables: {}")
    for name, table in draft.tables.items():
        lines += _table(name, table)
    if draft.metrics:
        lines += ["", "metrics:"]
        for metric in draft.metrics:
            lines += _metric(metric)
    if draft.joins:
        lines += ["", "joins:"]
        for join in draft.joins:
            lines.append(f"  - on: {_text(f'{join.left} = {join.right}')}{_check(join.check)}")
            lines += _description("    ", join.description)
    return "\n".join(lines) + "\n"


def _table(name: str, table: TableDraft) -> Iterable[str]:
    yield f"  {_text(name)}:{'' if _says(table) else ' {}'}{_check(table.words.check)}"
    yield from _words("    ", table.words)
    if table.fields:
        yield "    fields:"
        for key, field in table.fields.items():
            yield f"      {_text(key)}:{_check(field.check)}"
            yield from _words("        ", field)


def _says(table: TableDraft) -> bool:
    return bool(table.words.description or table.words.synonyms or table.fields)


def _metric(metric: MetricDraft) -> Iterable[str]:
    yield f"  {_text(metric.name)}:{_check(metric.check)}"
    yield f"    formula: {_text(metric.formula)}"
    if metric.time:
        yield f"    time: {_text(metric.time)}"
    yield from _description("    ", metric.description)
    yield from _synonyms("    ", metric.synonyms)
    yield "    enforced: false"


def _words(indent: str, words: Words) -> Iterable[str]:
    yield from _description(indent, words.description)
    yield from _synonyms(indent, words.synonyms)


def _description(indent: str, text: str) -> Iterable[str]:
    if text:
        yield f"{indent}description: {_text(text)}"


def _synonyms(indent: str, synonyms: Sequence[str]) -> Iterable[str]:
    if synonyms:
        yield f"{indent}synonyms: [{', '.join(map(_text, synonyms))}]"


def _check(why: str) -> str:
    return f"  # check: {one_line(why)}" if why else ""


def _text(text: str) -> str:
    """``text`` as a scalar on one line, quoted where YAML would read it otherwise."""
    dumped = yaml.safe_dump([text], default_flow_style=True, allow_unicode=True, width=float("inf"))
    return str(dumped).strip()[1:-1]
