"""Bounded views of tables and values, for answers and prompts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from bos.agent.v1 import AgentResult
from bos.common.v1 import Table, Value, ValueMap
from bos_chassis.values import from_value
from bos_composer.numbers import NumberFormat, plain
from bos_llm.fallback import plain_sentence

MAX_COLUMNS = 12
MAX_CELL_CHARS = 120
MAX_VALUES = 40
_MAX_LISTED_ROWS = 20
_MAX_LISTING_CHARS = 4_000
# Phrases with which agents join a list of rows. Whole phrases: "no value" stands for an empty cell,
# "no revenue" is a statement.
_LISTING_PHRASES = re.compile(
    r"""\b(?P<count>\d{1,9})[ ]rows?\b (?:[ ]with\b)?
      | \band[ ](?P<left>\d{1,9})[ ]more\b (?:[ ](?:columns?|rows?)\b)?
      | \b(?:[Mm]ore[ ]rows|no[ ]more)[ ]exist\b (?:[ ]than[ ]were[ ]read\b)?
      | \bno[ ]value\b
      | \bAssumed:
      | \band\b""",
    re.VERBOSE,
)
_LETTER = re.compile(r"[^\W\d_]")
_SAID = re.compile(r"[\w%]")
_NO_SINGLE_VALUE = (None, "null_value", "list_value", "bytes_value")
_EMPTY_TEXT = Value(string_value="")
_NUMERIC = ("int64_value", "double_value", "decimal_value")
# Fields on how a result was computed or stored, which no answer needs.
_WORKINGS = frozenset(
    {"code", "execution_stats", "exit_code", "explanation", "query", "sql", "stderr", "units"}
)
_WORKINGS_OF_TABLES = frozenset({"row_count", "truncated"})
_WORKINGS_PREFIX = "sql_"


def markdown(table: Table, numbers: NumberFormat, *, max_rows: int) -> str:
    """The first rows as a Markdown table, and a line on the omitted ones."""
    columns = table.columns[:MAX_COLUMNS]
    lines = [_line([column.name for column in columns]), _line(["---"] * len(columns))]
    for row in table.rows[:max_rows]:
        # Not strict: a malformed row must not prevent the answer.
        cells = zip(columns, row.values, strict=False)
        lines.append(
            _line([_cell(numbers.cell(each.name, value, each.unit)) for each, value in cells])
        )
    hidden = len(table.rows) - max_rows
    notes = [
        f"{hidden} more rows" if hidden > 0 else "",
        f"{len(table.columns) - MAX_COLUMNS} more columns"
        if len(table.columns) > MAX_COLUMNS
        else "",
        "the source has more than was returned" if table.truncated else "",
    ]
    left_out = ", ".join(note for note in notes if note)
    return "\n".join([*lines, *([f"({left_out})"] if left_out else [])])


def values(result: AgentResult) -> list[tuple[str, Value]]:
    """The result's scalar values by name, sorted; at most ``MAX_VALUES``.

    Values inside maps have names as in references: ``result.total``. Programs, queries and other
    fields on how the result was computed are left out.
    """
    leaves = _leaves(result.data, "")
    found = ((name, value) for name, value in leaves if not _is_working(result, name))
    return list(islice(found, MAX_VALUES))


def units(result: AgentResult) -> dict[str, str]:
    """Declared units of the result's values by name."""
    declared = (
        result.data.fields["units"].map_value if "units" in result.data.fields else ValueMap()
    )
    named = {column.name: column.unit for column in result.table.columns}
    return named | {name: unit.string_value for name, unit in declared.fields.items()}


def restated(result: AgentResult) -> bool:
    """Whether the answer only restates the table or :func:`values`.

    Agents word a result like this, without a model call, if no user will read their answer.
    """
    return _lists_table(result) or _states_values(result)


def _lists_table(result: AgentResult) -> bool:
    """Whether the answer consists of cells and names of the table only.

    One other word or number is enough to keep it: "Acme did not pay 500" says more than the cells.
    """
    table = result.table
    if not table.rows or not 0 < len(result.answer.strip()) <= _MAX_LISTING_CHARS:
        return False
    most = max(len(table.rows), table.row_count, len(table.columns))

    def counted(phrase: re.Match[str]) -> str:
        count = int(phrase["count"] or phrase["left"] or 0)
        return " " if count <= most else phrase[0]

    cells = [plain(cell) for row in table.rows[:_MAX_LISTED_ROWS] for cell in row.values]
    # Longer cells are truncated in the table.
    known = [cell for cell in cells if len(cell) <= MAX_CELL_CHARS]
    known += [column.name for column in table.columns]
    known += [*result.assumptions, *result.caveats]
    # Order matters: texts may contain words of a phrase, and phrases digits of a number.
    numbers = {text for text in known if not _LETTER.search(text)}
    left = _without(" ".join(result.answer.split()), {*known} - numbers)
    left = _without(_LISTING_PHRASES.sub(counted, left), numbers)
    return not _SAID.search(left)


def _without(text: str, known: set[str]) -> str:
    """Remove the texts of ``known``, the longest first; 5 does not match in -5 and 0.5."""
    lines = {" ".join(each.split()).rstrip(".") for each in known} - {""}
    if not lines:
        return text
    either = "|".join(map(re.escape, sorted(lines, key=len, reverse=True)))
    return re.sub(rf"(?<![\w.-])(?:{either})(?!\w|[.,]\d)", " ", text)


def _states_values(result: AgentResult) -> bool:
    """Whether it only restates a program's result, which is shown as values in full."""
    fields = result.data.fields
    if "result" not in fields or not _is_single(fields["result"]):
        return False
    printed = fields["stdout"].string_value if "stdout" in fields else ""
    files = f"\n\nFiles: {', '.join(file.name for file in result.files)}"  # listed by themselves
    stated = result.answer.removesuffix(files)
    return stated == plain_sentence(from_value(fields["result"]), printed)


def is_number(value: Value) -> bool:
    """Whether the value is a number of any kind."""
    return value.WhichOneof("kind") in _NUMERIC


def _is_single(value: Value) -> bool:
    """Whether it is a number or a small map, whose values are all listed."""
    if value.WhichOneof("kind") != "map_value":
        return is_number(value)
    fields = value.map_value.fields
    kinds = {each.WhichOneof("kind") for each in fields.values()}
    return 0 < len(fields) <= MAX_VALUES // 2 and kinds.isdisjoint({*_NO_SINGLE_VALUE, "map_value"})


def _is_working(result: AgentResult, name: str) -> bool:
    head = name.partition(".")[0]
    in_table = result.HasField("table") and head in _WORKINGS_OF_TABLES
    return head in _WORKINGS or head.startswith(_WORKINGS_PREFIX) or in_table


def _leaves(data: ValueMap, prefix: str) -> Iterator[tuple[str, Value]]:
    for name in sorted(data.fields):
        value = data.fields[name]
        if value.WhichOneof("kind") == "map_value":
            yield from _leaves(value.map_value, f"{prefix}{name}.")
        elif value.WhichOneof("kind") not in _NO_SINGLE_VALUE and value != _EMPTY_TEXT:
            yield f"{prefix}{name}", value


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) <= MAX_CELL_CHARS else line[: MAX_CELL_CHARS - 1] + "…"
