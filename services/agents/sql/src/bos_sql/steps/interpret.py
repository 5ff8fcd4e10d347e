"""Answer from a result: by the model where it is final, else a plain sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bos.common.v1 import Row, Table, Value
from bos_agentkit import mark_untrusted
from bos_chassis.values import render_value, value_to_json
from bos_sql.prompts import interpret_messages, json_text
from bos_sql.steps.execute import QueryResult
from bos_sql.steps.filters import describe_filters
from bos_sql.steps.replies import ResultInterpretation
from bos_sql.steps.step_state import StepState

_MAX_PREVIEW_CHARS = 4_500
"""Below the 5000 characters of a prompt's source text: the preview ends with a whole row."""

_MAX_CELL_CHARS = 200
_MAX_LISTED_CELL_CHARS = 80
_MAX_STATED_COLUMNS = 8
_MAX_STATED_ROWS = 3
_MAX_SUGGESTIONS = 5
_NUMBERS = frozenset({"int64_value", "decimal_value", "bool_value", "null_value", None})


@dataclass(frozen=True, slots=True)
class Interpretation:
    """Answer with highlights and follow-up questions."""

    answer: str
    highlights: tuple[str, ...] = ()
    followups: tuple[str, ...] = ()


async def interpret(
    work: StepState, result: QueryResult, caveats: Sequence[str] = ()
) -> Interpretation:
    """Write the answer: by the model if it is shown to the user unchanged, else a plain sentence.

    Where the composer writes the answer, another model call could only add wrong numbers.
    ``caveats`` are appended to either.
    """
    filters = describe_filters(result.query.sql, work.overview.dialect)
    plain = Interpretation(
        _with_remarks(work, plain_answer(result.table, filters), caveats),
        (),
        tuple(work.followups),
    )
    if not work.task.input.is_final_answer:
        return plain
    preview, shown = preview_text(result.table, work.settings.preview_rows)
    stats = (
        f"{result.table.row_count} rows, the first {shown} shown, "
        f"{'more exist' if result.table.truncated else 'no more exist'}"
    )
    if not result.table.rows and filters:
        stats += f"; looked for:\n{mark_untrusted(filters)}"
    messages = interpret_messages(work.task, preview, stats, work.assumptions)
    reply = await work.model.optional(messages, ResultInterpretation, form_in="system")
    if reply is None or not reply.answer.strip():
        return plain
    return Interpretation(
        _with_remarks(work, reply.answer.strip(), caveats),
        tuple(reply.highlights[:_MAX_SUGGESTIONS]),
        tuple(reply.followups[:_MAX_SUGGESTIONS]),
    )


def preview_text(table: Table, max_rows: int) -> tuple[str, int]:
    """First rows as JSON objects, one per line, in column order; and their number."""
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


def plain_answer(table: Table, filters: str = "") -> str:
    """Result in one or two sentences, without a model.

    Args:
        table: The result.
        filters: Filters of the query, stated where it found no rows or only empty cells.
    """
    looked_for = f" ({filters})" if filters else ""
    if not table.rows:
        return f"No rows match{looked_for}: no data was found."
    cut = " More rows exist than were read." if table.truncated else ""
    omitted = len(table.columns) - _MAX_STATED_COLUMNS
    others = f", and {omitted} more column{'s' if omitted > 1 else ''}" if omitted > 0 else ""
    names = ", ".join(column.name for column in table.columns[:_MAX_STATED_COLUMNS]) + others
    if len(table.rows) == 1:
        if has_no_values(table):
            return f"There is no value for {names}{looked_for}: no data was found.{cut}"
        return f"{_row_in_words(table, table.rows[0], named=True)}{others}.{cut}"
    first = "; ".join(_row_in_words(table, row) for row in table.rows[:_MAX_STATED_ROWS])
    left = len(table.rows) - _MAX_STATED_ROWS
    more = f"; and {left} more" if left > 0 else ""
    return f"{len(table.rows)} rows with {names}: {first}{more}.{cut}"


def has_no_values(table: Table) -> bool:
    """Whether a result has no rows, or a single one of empty cells; a 0 is a value."""
    return not table.rows or (
        len(table.rows) == 1
        and all(cell.WhichOneof("kind") in (None, "null_value") for cell in table.rows[0].values)
    )


def _row_in_words(table: Table, row: Row, *, named: bool = False) -> str:
    cells = zip(table.columns, row.values, strict=True)
    longest = _MAX_CELL_CHARS if named else _MAX_LISTED_CELL_CHARS
    parts = [(column.name, _value_in_words(cell, longest)) for column, cell in cells]
    parts = parts[:_MAX_STATED_COLUMNS]
    return ", ".join(f"{name}: {cell}" if named else cell for name, cell in parts)


def _with_remarks(work: StepState, answer: str, caveats: Sequence[str]) -> str:
    """Append the assumptions and the caveats."""
    assumed = "; ".join(each.rstrip(".") for each in work.stated_assumptions)
    remarks = [f"Assumed: {assumed}."] if assumed else []
    return " ".join([answer, *remarks, *caveats])


def _row_text(names: list[str], row: Row) -> str:
    cells = zip(names, row.values, strict=True)
    return "{" + ", ".join(f"{json_text(name)}: {_cell(cell)}" for name, cell in cells) + "}"


def _cell(value: Value) -> str:
    if value.WhichOneof("kind") in _NUMBERS:
        return render_value(value)
    if value.WhichOneof("kind") in {"list_value", "map_value"}:
        return _cut(json_text(value_to_json(value)), _MAX_CELL_CHARS)
    if value.WhichOneof("kind") == "double_value":
        return render_value(value)
    return json_text(_cut(render_value(value), _MAX_CELL_CHARS))


def _value_in_words(value: Value, longest: int) -> str:
    if value.WhichOneof("kind") in (None, "null_value"):
        return "no value"
    return _cut(" ".join(render_value(value).split()), longest)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"
