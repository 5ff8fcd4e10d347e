"""The answer in words, from a limited preview (SPEC D-30, T-06, T-07)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bos_chassis.values import render_value, value_to_json
from bos_sql.prompts import interpret_messages, json_text
from bos_sql.replies import ResultInterpretation

if TYPE_CHECKING:
    from bos.common.v1 import Row, Table, Value
    from bos_sql.execute import QueryResult
    from bos_sql.work import Work

_MAX_PREVIEW_CHARS = 4_500
"""Below the 5000 characters of SPEC S-07, so that the preview ends with a whole row."""

_MAX_CELL_CHARS = 200
_MAX_SPOKEN_COLUMNS = 8
_MAX_SUGGESTIONS = 5
_NUMBERS = frozenset({"int64_value", "decimal_value", "bool_value", "null_value", None})


@dataclass(frozen=True, slots=True)
class Interpretation:
    """The answer for people."""

    answer: str
    highlights: tuple[str, ...] = ()
    followups: tuple[str, ...] = ()


async def interpret(work: Work, result: QueryResult) -> Interpretation:
    """Word the result; without the model's help in one plain sentence."""
    preview, shown = preview_text(result.table, work.settings.preview_rows)
    stats = (
        f"{result.table.row_count} rows, the first {shown} shown, "
        f"{'more exist' if result.table.truncated else 'no more exist'}"
    )
    messages = interpret_messages(work.task, preview, stats, work.assumptions)
    reply = await work.ask.ask_if_possible(messages, ResultInterpretation)
    if reply is None or not reply.answer.strip():
        return Interpretation(_with_assumptions(work, plain_answer(result.table)))
    return Interpretation(
        _with_assumptions(work, reply.answer.strip()),
        tuple(reply.highlights[:_MAX_SUGGESTIONS]),
        tuple(reply.followups[:_MAX_SUGGESTIONS]),
    )


def preview_text(table: Table, max_rows: int) -> tuple[str, int]:
    """The first rows as JSON objects, one a line, in column order; and how many they are."""
    names = [column.name for column in table.columns]
    lines: list[str] = []
    size = 0
    for row in table.rows[:max_rows]:
        line = _row_text(names, row)
        size += len(line) + 1
        if size > _MAX_PREVIEW_CHARS:
            break
        lines.append(line)
    return "\n".join(lines) or "(no rows)", len(lines)


def plain_answer(table: Table) -> str:
    """The result in one sentence, made without a model."""
    if not table.rows:
        return "The query found no rows."
    if len(table.rows) == 1:
        cells = zip(table.columns, table.rows[0].values, strict=True)
        spoken = [f"{column.name}: {_spoken(cell)}" for column, cell in cells]
        return ", ".join(spoken[:_MAX_SPOKEN_COLUMNS]) + "."
    names = ", ".join(column.name for column in table.columns[:_MAX_SPOKEN_COLUMNS])
    more = " More exist." if table.truncated else ""
    return f"The query found {len(table.rows)} rows with {names}.{more}"


def _with_assumptions(work: Work, answer: str) -> str:
    """DEC-02: what nobody was asked about any more is said."""
    if not work.told_assumptions:
        return answer
    return (
        f"{answer} This assumes: {'; '.join(each.rstrip('.') for each in work.told_assumptions)}."
    )


def _row_text(names: list[str], row: Row) -> str:
    cells = zip(names, row.values, strict=True)
    return "{" + ", ".join(f"{json_text(name)}: {_cell(cell)}" for name, cell in cells) + "}"


def _cell(value: Value) -> str:
    if value.WhichOneof("kind") in _NUMBERS:
        return render_value(value)
    if value.WhichOneof("kind") in {"list_value", "map_value"}:
        return json_text(value_to_json(value))[:_MAX_CELL_CHARS]
    if value.WhichOneof("kind") == "double_value":
        return render_value(value)
    return json_text(render_value(value)[:_MAX_CELL_CHARS])


def _spoken(value: Value) -> str:
    return render_value(value)[:_MAX_CELL_CHARS]
