"""Drafted metadata: from comments, keys and names alone; a model may add to it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bos_mcp_db.backends.backend import TableColumn, TableInfo
from bos_mcp_db.connecting.texts import is_plain, one_line, words
from bos_mcp_db.names import split_table

MAX_METRICS: Final = 40
MAX_JOINS: Final = 100
_NUMERIC = re.compile(r"(?i)^(?:numeric|decimal|money|smallmoney|real|float|double|dec\b|number)")
_WHOLE = re.compile(r"(?i)^(?:big|small|tiny|medium)?int|^int|^serial")
_DATE = re.compile(r"(?i)^(?:date|timestamp|datetime|smalldatetime)")
_ADDED_UP: Final = frozenset(
    {
        *("amount", "amounts", "cost", "costs", "fee", "fees", "payment", "payments", "qty"),
        *("quantity", "revenue", "sales", "subtotal", "tax", "total", "turnover", "value"),
    }
)
# What is of one piece, or no amount at all, is not added up.
_NO_MEASURE: Final = frozenset(
    {
        *("avg", "average", "days", "key", "max", "min", "no", "number", "per", "percent"),
        *("price", "rate", "ratio", "terms", "unit"),
    }
)
# Formulas and joins of the file are written without quotes.
_REFERENCE = re.compile(r"[^\W\d]\w*")
_TABLE_REFERENCE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)?")


@dataclass(slots=True)
class Words:
    """What a table or field means; ``check`` says why a person should look at it."""

    description: str = ""
    synonyms: list[str] = field(default_factory=list)
    check: str = ""


@dataclass(slots=True)
class TableDraft:
    """A table and those of its fields about which something is said."""

    words: Words
    fields: dict[str, Words] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetricDraft:
    """An unconfirmed metric."""

    name: str
    formula: str
    time: str = ""
    description: str = ""
    synonyms: tuple[str, ...] = ()
    check: str = ""


@dataclass(frozen=True, slots=True)
class JoinDraft:
    """A join that no key declares."""

    left: str
    right: str
    description: str = ""
    check: str = ""


@dataclass(slots=True)
class Draft:
    """The content of a metadata file."""

    tables: dict[str, TableDraft]
    metrics: list[MetricDraft]
    joins: list[JoinDraft]

    def to_check(self) -> list[str]:
        """What a person should look at, in the order of the file."""
        found = []
        for name, table in self.tables.items():
            if table.words.check:
                found.append(f"{name}: {table.words.check}")
            found += [
                f"{name}.{key}: {each.check}" for key, each in table.fields.items() if each.check
            ]
        found += [f"metric {each.name}: {each.check}" for each in self.metrics]
        return found + [f"join {each.left} = {each.right}: {each.check}" for each in self.joins]

    def add_metric(self, metric: MetricDraft) -> None:
        """Add a metric, unless there are enough, or one of this name or formula."""
        taken = {_phrase(name) for each in self.metrics for name in (each.name, *each.synonyms)}
        same = any(each.formula == metric.formula for each in self.metrics)
        if not _phrase(metric.name) or _phrase(metric.name) in taken or same:
            return
        if len(self.metrics) < MAX_METRICS:
            taken.add(_phrase(metric.name))
            synonyms = []
            for each in metric.synonyms:
                if (phrase := _phrase(each)) and phrase not in taken:
                    taken.add(phrase)
                    synonyms.append(each)
            self.metrics.append(
                MetricDraft(
                    metric.name,
                    metric.formula,
                    metric.time,
                    metric.description,
                    tuple(synonyms),
                    metric.check,
                )
            )

    def add_join(self, join: JoinDraft) -> None:
        """Add a join, unless there are enough, or these tables are joined already."""
        pair = {_table_of(join.left), _table_of(join.right)}
        known = any({_table_of(each.left), _table_of(each.right)} == pair for each in self.joins)
        if not known and len(pair) == 2 and len(self.joins) < MAX_JOINS:
            self.joins.append(join)


def draft(tables: Sequence[TableInfo]) -> Draft:
    """Draft descriptions and joins without a model.

    Descriptions are the comments of the database; joins are those that equal names suggest and no
    key declares.
    """
    made = Draft({table.name: _table_draft(table) for table in tables}, [], [])
    for join in _joins_by_name(tables):
        made.add_join(join)
    return made


def add_totals(made: Draft, tables: Sequence[TableInfo]) -> None:
    """Add totals of columns that look like amounts, as far as there is no metric of them."""
    for table in tables:
        # A view shows again what its tables hold.
        for metric in _totals(table) if table.kind == "table" else ():
            made.add_metric(metric)


def declared_pairs(tables: Iterable[TableInfo]) -> set[frozenset[str]]:
    """Pairs of tables that a foreign key joins."""
    return {frozenset({t.name, key.table}) for t in tables for key in t.foreign_keys}


def can_refer(table: str, column: str) -> bool:
    """Whether a formula or join of the file can name this field, unquoted."""
    return bool(_TABLE_REFERENCE.fullmatch(table) and _REFERENCE.fullmatch(column))


def time_of(table: TableInfo) -> tuple[str, bool]:
    """The field that dates the rows of a table, and whether it is the only one; empty: none."""
    dates = [
        column.name
        for column in table.columns
        if _DATE.match(column.type) and can_refer(table.name, column.name)
    ]
    dates.sort(key=_housekeeping)  # stable: the first one that is no stamp of the application's
    return (f"{table.name}.{dates[0]}" if dates else ""), len(dates) == 1


def _housekeeping(name: str) -> bool:
    return not {"created", "updated", "modified", "deleted", "inserted", "due"}.isdisjoint(
        words(name)
    )


def _table_draft(table: TableInfo) -> TableDraft:
    said = one_line(table.comment)
    own = Words(said) if said else Words(check="nothing says what a row is: describe it")
    return TableDraft(
        own,
        {
            column.name: Words(comment)
            for column in table.columns
            if is_plain(column.name) and (comment := one_line(column.comment))
        },
    )


def _joins_by_name(tables: Sequence[TableInfo]) -> Iterable[JoinDraft]:
    """Columns called like the only key column of another table, and typed like it."""
    declared = declared_pairs(tables)
    keys: dict[str, list[tuple[TableInfo, TableColumn]]] = {}
    for table in tables:
        if len(table.primary_key) != 1:
            continue
        key = next((each for each in table.columns if each.name in table.primary_key), None)
        if key is None:  # a column that the login may not read
            continue
        for name in _key_names(table, key.name):
            keys.setdefault(name, []).append((table, key))
    for table in tables:
        for column in table.columns:
            targets = keys.get(column.name.casefold(), [])
            if len(targets) != 1:  # a name that several keys have says nothing
                continue
            ((target, key),) = targets
            if (
                target.name != table.name
                and frozenset({table.name, target.name}) not in declared
                and _kind(column.type) == _kind(key.type)
                and can_refer(table.name, column.name)
                and can_refer(target.name, key.name)
            ):
                yield JoinDraft(
                    f"{table.name}.{column.name}",
                    f"{target.name}.{key.name}",
                    check="the names agree; no key of the database says so",
                )


def _key_names(table: TableInfo, key: str) -> set[str]:
    """What columns are called that point at this key: its own name, or ``customer_id``."""
    name, (_, bare) = key.casefold(), split_table(table.name.casefold(), "")
    if name != "id":
        return {name}
    return {f"{bare}_id", f"{bare.removesuffix('s')}_id"}


def _kind(declared: str) -> str:
    if _WHOLE.match(declared):
        return "integer"
    return "number" if _NUMERIC.match(declared) else declared.partition("(")[0].strip().casefold()


def _totals(table: TableInfo) -> Iterable[MetricDraft]:
    _, bare = split_table(table.name, "")
    key = {*table.primary_key, *(name for each in table.foreign_keys for name in each.columns)}
    for column in table.columns:
        said = set(words(column.name))
        is_number = _NUMERIC.match(column.type) or _WHOLE.match(column.type)
        if (
            not is_number
            or column.name in key
            or said.isdisjoint(_ADDED_UP)
            or not said.isdisjoint(_NO_MEASURE)
            or not can_refer(table.name, column.name)
        ):
            continue
        time, sure = time_of(table)
        yield MetricDraft(
            name="_".join([*_total_of(column.name), "of", *words(bare)]),
            formula=f"SUM({table.name}.{column.name})",
            time=time,
            check="a guess from the column's name"
            + ("" if sure or not time else "; several dates, is this the one that counts?"),
        )


def _total_of(column: str) -> list[str]:
    said = words(column)
    return said if said[0] == "total" else ["total", *said]


def _table_of(reference: str) -> str:
    return reference.rpartition(".")[0]


def _phrase(name: str) -> tuple[str, ...]:
    """Words of a name as far as names must differ: the file is refused where two are the same.

    Beginnings of words, because the agent compares their stems; short words are stop words there.
    """
    return tuple(word[:4] for word in words(name) if len(word) > 3)
