"""What a model adds to a drafted file: only about tables and fields that exist, all to check."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from bos_llm import NoReply, attempt
from bos_mcp_db.connecting.draft import JoinDraft, MetricDraft, Words, can_refer, declared_pairs
from bos_mcp_db.connecting.prompts import metadata_messages
from bos_mcp_db.connecting.replies import SchemaWords
from bos_mcp_db.connecting.texts import MAX_COMMENT_CHARS, is_plain, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from bos_llm import Model
    from bos_mcp_db.backends.backend import TableInfo
    from bos_mcp_db.connecting.draft import Draft

MAX_CALLS: Final = 20
_TABLES_PER_CALL = 8
_COLUMNS_PER_CALL = 160
_CALL_S = 120.0
_MAX_TOKENS = 4_000
_MAX_SYNONYMS = 8
_MAX_SYNONYM_CHARS = 60
_GUESS = "the model's words"
_METRIC_NAME = re.compile(r"[^\W\d][\w ]{1,58}\w")
_AGGREGATES: Final = {
    "sum": "SUM({})",
    "avg": "AVG({})",
    "min": "MIN({})",
    "max": "MAX({})",
    "count": "COUNT({})",
    "count_distinct": "COUNT(DISTINCT {})",
}


async def add_words(
    draft: Draft, tables: Sequence[TableInfo], model: Model, progress: Callable[[str], None]
) -> str:
    """Add what the model says of ``tables``; returns why that is not all of it, or nothing.

    Comments of the database stay. Tables beyond ``MAX_CALLS`` calls are left as they are.
    """
    batches = list(_batches(tables))
    done = 0
    for batch in batches[:MAX_CALLS]:
        progress(f"Asking {model.config.model} about tables {done + 1} to {done + len(batch)} ...")
        done += len(batch)
        try:
            reply = await attempt(
                model,
                lambda batch=batch: metadata_messages(batch),  # type: ignore[misc]
                SchemaWords,
                within_s=_CALL_S,
                max_tokens=_MAX_TOKENS,
            )
        except NoReply as failure:
            return failure.message
        merge(draft, batch, reply.value)
    if len(batches) > MAX_CALLS:
        return f"It was asked about the first {done} tables alone."
    return ""


def merge(draft: Draft, tables: Sequence[TableInfo], said: SchemaWords) -> None:
    """Add a reply to ``draft``, as far as it is about fields of ``tables``."""
    known = {table.name: table for table in tables}
    for words in said.tables:
        if (table := known.get(words.table)) is None:
            continue
        drafted = draft.tables[table.name]
        _add(
            drafted.words, words.description, words.synonyms, is_comment=bool(table.comment.strip())
        )
        commented = {column.name: bool(column.comment.strip()) for column in table.columns}
        for each in words.fields:
            if each.field not in commented or not is_plain(each.field):
                continue
            field = drafted.fields.get(each.field, Words())
            _add(field, each.description, each.synonyms, is_comment=commented[each.field])
            if field.description or field.synonyms:
                drafted.fields[each.field] = field
    fields = {
        f"{table.name}.{column.name}"
        for table in tables
        for column in table.columns
        if can_refer(table.name, column.name)
    }
    for metric in said.metrics:
        name = one_line(metric.name, 60)
        if metric.field in fields and _METRIC_NAME.fullmatch(name):
            draft.add_metric(
                MetricDraft(
                    name=name,
                    formula=_AGGREGATES[metric.aggregate].format(metric.field),
                    time=metric.time if metric.time in fields else "",
                    description=one_line(metric.description),
                    synonyms=tuple(_synonyms(metric.synonyms)),
                    check=f"{_GUESS}; is this the number, and are there rows to leave out?",
                )
            )
    declared = declared_pairs(tables)
    for join in said.joins:
        pair = {each.rpartition(".")[0] for each in (join.left, join.right)}
        if {join.left, join.right} <= fields and frozenset(pair) not in declared:
            draft.add_join(
                JoinDraft(
                    join.left,
                    join.right,
                    one_line(join.description),
                    check=f"{_GUESS}; no key of the database says so",
                )
            )


def _add(words: Words, description: str, synonyms: Iterable[str], *, is_comment: bool) -> None:
    """Add a description where people wrote none, and synonyms."""
    said = one_line(description, MAX_COMMENT_CHARS)
    if said and not is_comment:
        words.description, words.check = said, _GUESS
    if found := list(_synonyms(synonyms)):
        words.synonyms, words.check = found, _GUESS


def _synonyms(said: Iterable[str]) -> Iterator[str]:
    found = dict.fromkeys(one_line(each, _MAX_SYNONYM_CHARS) for each in said)
    yield from [each for each in found if each][:_MAX_SYNONYMS]


def _batches(tables: Sequence[TableInfo]) -> Iterator[Sequence[TableInfo]]:
    """Tables in groups that fit into one call and its reply."""
    batch: list[TableInfo] = []
    columns = 0
    for table in tables:
        if batch and (
            len(batch) == _TABLES_PER_CALL or columns + len(table.columns) > _COLUMNS_PER_CALL
        ):
            yield batch
            batch, columns = [], 0
        batch.append(table)
        columns += len(table.columns)
    if batch:
        yield batch
