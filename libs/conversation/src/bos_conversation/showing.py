"""Answers, tables, files, approvals and clarifying questions as Markdown.

The same message always gives the same text: an endpoint without a store compares the text that a
client sends back with what it would show now.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from bos.common.v1 import Artefact, Clarification, Table
from bos.gateway.v1 import Approval, ApprovalKind, OrchestratorResponse
from bos_client.text import as_it_is, files_of, one_line, value_text
from bos_errors import FailedPrecondition

MAX_TABLE_ROWS = 100
"""Rows of a table shown; the whole one is at ``/v1/runs/{run_id}``."""
_MAX_CELL_CHARS = 500
_MAX_NAME_CHARS = 200
_BACKTICKS = re.compile(r"`{3,}")
# What Markdown and HTML would take for marks in a cell or a name that others wrote.
_MARKS = re.compile(r"([\\`*_{}\[\]()<>#|!~&])")
_REPLY = (
    "Reply **yes** to have exactly this done, **no** to have nothing done, or say what to do in "
    "its place."
)
_BEFORE = (
    "You approved this before; it is unknown whether it was done: approving does it again, and "
    "denying leaves it at that."
)
_AGAIN = (
    "You approved this before; it is unknown whether it was done: **yes** does it again, and "
    "**no** leaves it at that."
)


def answer_text(response: OrchestratorResponse, public_url: str) -> str:
    """The answer of a run that has ended, with its table and links to its files.

    Args:
        response: Of the run.
        public_url: Where the caller reaches Bos; empty leaves addresses relative.
    """
    parts = [response.answer]
    if response.HasField("clarification"):
        parts = [clarification_text(response.clarification)]
    elif response.HasField("error") and not response.answer:
        parts = [response.error.message]
    if response.HasField("data") and response.data.columns:
        parts.append(table_text(response.data))
    parts.append(file_links(response.run_id, files_of(response), public_url))
    return "\n\n".join(part for part in parts if part)


def table_text(table: Table, max_rows: int = MAX_TABLE_ROWS) -> str:
    """The first rows of a table in Markdown's form, and how many there are beyond."""
    head = [[_cell(column.name) for column in table.columns], ["---"] * len(table.columns)]
    body = [[_cell(value_text(value)) for value in row.values] for row in table.rows[:max_rows]]
    lines = ["| " + " | ".join(cells) + " |" for cells in (*head, *body)]
    left = len(table.rows) - len(body)
    if left > 0:
        lines += ["", f"{left} more rows are in the run's response."]
    if table.truncated:
        lines += ["", "The source has more rows than were returned."]
    return "\n".join(lines)


def file_links(run_id: str, files: list[Artefact], public_url: str) -> str:
    """A list of links to the files of a run; they ask for the caller's key."""
    return "\n".join(
        f"- [{_escaped(one_line(file.name, _MAX_NAME_CHARS))}]"
        f"({public_url}/v1/runs/{quote(run_id)}/files/{quote(file.digest.removeprefix('sha256:'))})"
        for file in files
    )


def approval_text(approval: Approval) -> str:
    """What would be done, exactly as the gateway displays it, and how to decide by a reply.

    Raises:
        FailedPrecondition: the gateway does not say how to show all of it.
    """
    unknown = approval.kind == ApprovalKind.APPROVAL_KIND_OUTCOME_UNKNOWN
    return f"{_shown(approval)}\n\n{_AGAIN if unknown else _REPLY}"


def approval_shown(approval: Approval) -> str:
    """What would be done, exactly as the gateway displays it; raises as :func:`approval_text`."""
    unknown = approval.kind == ApprovalKind.APPROVAL_KIND_OUTCOME_UNKNOWN
    return f"{_shown(approval)}\n\n{_BEFORE}" if unknown else _shown(approval)


def _shown(approval: Approval) -> str:
    if len(approval.display.actions) != len(approval.actions):
        raise FailedPrecondition(
            "This action cannot be shown here; decide it in the console or by `bos approvals`.",
            reason="APPROVAL_NOT_SHOWN",
        )
    shown: list[str] = []
    for action in approval.display.actions:
        shown.append(f"{as_it_is(action.title)}  ({as_it_is(action.tool)})")
        shown += [f"  {as_it_is(note)}" for note in action.notes]
        for argument in action.arguments:
            shown.append(f"  {as_it_is(argument.label)} ({as_it_is(argument.type)}):")
            shown += [f"    {as_it_is(line)}" for line in argument.lines]
    heading = f"Before this is done, it needs your approval ({approval.approval_id}):"
    return "\n\n".join([heading, _fenced("\n".join(shown))])


def clarification_text(clarification: Clarification) -> str:
    """Questions back to the user, with the answers that they suggest."""
    lines: list[str] = []
    for asked in clarification.questions:
        lines.append(one_line(asked.question))
        lines += [f"- {one_line(option)}" for option in asked.options]
    if clarification.assumptions:
        lines.append("Without an answer it is assumed:")
        lines += [f"- {one_line(each)}" for each in clarification.assumptions]
    return "\n".join(lines)


def _fenced(text: str) -> str:
    """``text`` in a fence that nothing in it ends."""
    longest = max((len(found) for found in _BACKTICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _cell(text: str) -> str:
    return _escaped(one_line(text, _MAX_CELL_CHARS))


def _escaped(text: str) -> str:
    return _MARKS.sub(r"\\\1", text)
