"""Tool and arguments of a step: from the plan if it has them, else from the model."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, get_args

from bos_chassis.values import render_value, to_value
from bos_errors import InvalidArgument
from bos_files.replies import OperationName
from bos_files.tables import table_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bos_agentkit.programs.variables import Variable
    from bos_files.replies import FileOperation

OPERATIONS: Final[tuple[str, ...]] = get_args(OperationName)
_SHORT: Final = {
    "list": "list_files",
    "read": "read_file",
    "write": "write_file",
    "create_pdf": "create_pdf_from_text",
    "download": "download_file",
    "rename": "rename_file",
    "delete": "delete_file",
}
_REQUIRED: Final = {
    "list_files": (),
    "read_file": ("name",),
    "write_file": ("name", "text"),
    "create_pdf_from_text": ("text",),
    "write_xlsx": ("rows",),
    "write_csv": ("rows",),
    "download_file": ("url",),
    "rename_file": ("name", "new_name"),
    "delete_file": ("name",),
}
_SPELLINGS: Final = {
    "filename": "name",
    "file_name": "name",
    "output_filename": "name",
    "path": "name",
    "content": "text",
    "data": "rows",
    "fonts": "font",
}
_NAMES: Final = {
    "create_pdf_from_text": "document.pdf",
    "write_xlsx": "table.xlsx",
    "write_csv": "table.csv",
}
_MAX_TABLE_ROWS: Final = 2_000
"""Of a table in a text."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that a step makes."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)


def planned_call(tool_name: str, arguments: Mapping[str, Any]) -> Call | None:
    """The call that a plan already says in full; None where the model has to say it.

    A plan says it by the tool's name and its arguments, by ``operation`` and ``params``, or by a
    ``url`` alone, which is to be downloaded.

    Raises:
        InvalidArgument: the operation is none, or its parameters are no map.
    """
    if "operation" in arguments:
        tool, given = _enveloped(arguments)
    elif tool_name:
        tool, given = tool_name, dict(arguments)
    elif set(arguments) & {"url"}:
        tool, given = "download_file", dict(arguments)
    else:
        return None
    given = {_SPELLINGS.get(name, name): value for name, value in given.items()}
    if tool in _NAMES:
        given.setdefault("name", _NAMES[tool])
    missing = [name for name in _REQUIRED.get(tool, ()) if given.get(name) in (None, "")]
    if missing and "operation" in arguments:
        raise InvalidArgument.field(f"params.{missing[0]}", f"is needed by {tool}")
    return None if missing else Call(tool, given)


def _enveloped(arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    wanted = str(arguments["operation"]).strip().lower()
    tool = _SHORT.get(wanted, wanted)
    if tool not in OPERATIONS:
        raise InvalidArgument.field("operation", f"must be one of {', '.join(OPERATIONS)}")
    params = arguments.get("params")
    if isinstance(params, str):
        try:
            params = json.loads(params)
        except (ValueError, RecursionError):
            params = None
    if params is None and "params" not in arguments:
        params = {name: value for name, value in arguments.items() if name != "operation"}
    if not isinstance(params, dict):
        raise InvalidArgument.field("params", "must be a map of the operation's parameters")
    return tool, dict(params)


def chosen_call(operation: FileOperation, variables: Iterable[Variable]) -> Call:
    """The call that the model's reply means, with the values of the variable that it names.

    Raises:
        InvalidArgument: it names no variable that there is, or lacks what its operation needs.
    """
    tool = operation.operation
    named = {each.name: each.value for each in variables}
    if operation.source and operation.source not in named:
        raise InvalidArgument.field("source", f"must be one of {', '.join(named) or 'none'}")
    value = named.get(operation.source)
    name = operation.name.strip() or _NAMES.get(tool, "")
    match tool:
        case "list_files":
            arguments: dict[str, Any] = {}
        case "write_xlsx" | "write_csv":
            if value is None:
                raise InvalidArgument.field("source", "must name the variable with the rows")
            arguments = {"name": name, "rows": _rows_of(value), "columns": operation.columns}
            if tool == "write_xlsx" and operation.title:
                arguments["sheet"] = operation.title
        case "create_pdf_from_text":
            text = _with_value(operation.text, value, operation.columns)
            arguments = {"name": name, "title": operation.title, "text": text}
        case "write_file":
            arguments = {"name": name, "text": _with_value(operation.text, value, ())}
        case "download_file":
            arguments = {"url": operation.url, **({"name": name} if name else {})}
        case "rename_file":
            arguments = {"name": name, "new_name": operation.new_name.strip()}
        case _:
            arguments = {"name": name}
    missing = [each for each in _REQUIRED[tool] if arguments.get(each) in (None, "")]
    if missing:
        raise InvalidArgument.field(missing[0], f"is needed by {tool}")
    return Call(tool, arguments)


def _rows_of(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = value["rows"] if isinstance(value.get("rows"), list) else [value]
    return value if isinstance(value, list) else [value]


def _with_value(text: str, value: Any, columns: Iterable[str]) -> str:
    """The model's text, and below it the value that it named: a text, or rows as a table."""
    if value is None:
        return text
    if isinstance(value, str):
        added = value
    else:
        try:
            names, rows = table_of(_rows_of(value), list(columns))
            added = markdown_table(names, rows)
        except InvalidArgument:
            added = render_value(to_value(value))
    return f"{text}\n\n{added}" if text.strip() else added


def markdown_table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Rows as a Markdown table, numbers to the right."""
    names, body = list(columns), [list(row) for row in rows][:_MAX_TABLE_ROWS]
    right = [
        bool(body) and all(isinstance(row[i], int | float) or _is_decimal(row[i]) for row in body)
        for i in range(len(names))
    ]
    lines = [_line(names), _line(["--:" if each else ":--" for each in right], escape=False)]
    lines += [_line([_cell(value) for value in row]) for row in body]
    return "\n".join(lines)


def _is_decimal(value: Any) -> bool:
    return type(value).__name__ == "Decimal"


def _cell(value: Any) -> str:
    return "" if value is None else render_value(to_value(value))


def _line(cells: Iterable[str], *, escape: bool = True) -> str:
    texts = (" ".join(_escaped(cell).split()) if escape else cell for cell in cells)
    return f"| {' | '.join(texts)} |"


def _escaped(cell: str) -> str:
    for character in "\\`*_[]<>|~#":
        cell = cell.replace(character, f"\\{character}")
    return cell
