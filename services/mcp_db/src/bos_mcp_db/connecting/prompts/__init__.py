"""Prompt of ``bos connect``; its system message is the file beside this module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bos_llm import Message, system, user
from bos_llm.prompts import UNTRUSTED_NOTICE, mark_untrusted, prompt_file
from bos_mcp_db.backends.backend import TableInfo
from bos_mcp_db.connecting.texts import is_plain, one_line

MAX_COLUMNS: Final = 80
_MAX_TYPE_CHARS = 40
_METADATA = prompt_file(__name__, "metadata")


def metadata_messages(tables: Sequence[TableInfo]) -> list[Message]:
    """The messages of the call that describes these tables; no cell of theirs is in it."""
    described = "\n\n".join(map(_table, tables))
    return [
        system(_METADATA.fill(untrusted_notice=UNTRUSTED_NOTICE)),
        user(f"### Tables\n{mark_untrusted(described)}"),
    ]


def _table(table: TableInfo) -> str:
    lines = [f"{table.kind} {table.name}{_comment(table.comment)}"]
    lines += [
        f"  {column.name} {one_line(column.type, _MAX_TYPE_CHARS)}{_comment(column.comment)}"
        for column in table.columns[:MAX_COLUMNS]
        if is_plain(column.name)
    ]
    if table.primary_key:
        lines.append(f"  key: {_names(table.primary_key)}")
    for key in table.foreign_keys:
        lines.append(f"  {_names(key.columns)} -> {key.table} ({_names(key.references)})")
    return "\n".join(lines)


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(one_line, names))


def _comment(text: str) -> str:
    comment = one_line(text)
    return f" -- {comment}" if comment else ""
