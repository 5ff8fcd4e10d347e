"""Catalogue of a database: tables, fields, joins and metrics, and their text in prompts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bos_agentkit.ranking import words

_MAX_SHOWN_VALUES = 6
_MAX_SHOWN_VALUE_CHARS = 30
_MAX_SHOWN_COMMENT_CHARS = 120
_TYPE_DETAILS = re.compile(r"\s*\([^()]*\)|\s+without time zone$")
_SHORT_TYPES = {
    "integer": "int",
    "character varying": "text",
    "varchar": "text",
    "character": "text",
    "double precision": "double",
    "timestamp with time zone": "timestamptz",
}
_SHORT_KEYS = {"primary key": "pk"}


@dataclass(frozen=True, slots=True)
class Field:
    """A column."""

    name: str
    type: str
    key: str = ""
    """``primary key``, ``unique`` or empty."""
    nullable: bool = False
    comment: str = ""
    values: tuple[str, ...] = ()
    """Frequent values; untrusted data."""
    synonyms: tuple[str, ...] = ()
    unit: str = ""
    """Unit that the curated metadata declares."""

    @property
    def text(self) -> str:
        """Text of the field, one line."""
        parts = [f"{self.name} {self.type}".rstrip()]
        parts += [self.key] if self.key else []
        parts += ["may be NULL"] if self.nullable else []
        text = ", ".join(parts) + _about(self.comment, self.synonyms)
        if self.values:
            text += f" (e.g. {', '.join(map(repr, self.values))})"
        return text

    def shown(
        self, reference: str = "", *, asked: Collection[str] = (), briefly: bool = False
    ) -> str:
        """Text of the field in prompts, short because every call pays for it.

        Args:
            reference: The column that it references, as ``table.column``.
            asked: Words of the question; other synonyms are left out.
            briefly: Without comment and values.
        """
        kind = _TYPE_DETAILS.sub("", self.type.casefold())
        parts = [f"{self.name} {_SHORT_TYPES.get(kind, kind)}".rstrip()]
        parts += [_SHORT_KEYS[self.key]] if self.key in _SHORT_KEYS else []
        parts += [f"-> {reference}"] if reference else []
        parts += ["null"] if self.nullable else []
        # The reference or the table explains a key.
        is_key = bool(reference) or self.key == "primary key"
        if not briefly and not is_key and (about := self._about_shown(asked)):
            parts.append(f"({about})")
        return " ".join(parts)

    def _about_shown(self, asked: Collection[str]) -> str:
        comment = self.comment[:_MAX_SHOWN_COMMENT_CHARS].strip()
        synonyms = _mentioned_synonyms(self.synonyms, asked)
        # Values that the comment already names, or that are nearly unique, add nothing.
        values = [each for each in self.values if each.casefold() not in comment.casefold()]
        if self.key or any(len(each) > _MAX_SHOWN_VALUE_CHARS for each in values):
            values = []
        listed = ", ".join(map(repr, values[:_MAX_SHOWN_VALUES]))
        parts = (comment, synonyms and f"also: {synonyms}", listed and f"e.g. {listed}")
        return "; ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view."""

    name: str
    kind: str
    fields: tuple[Field, ...]
    row_estimate: int | None = None
    comment: str = ""
    synonyms: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    """Example questions that it answers."""

    @property
    def headline(self) -> str:
        """Text of the table without its fields, one line."""
        rows = [] if self.row_estimate is None else [f"about {self.row_estimate} rows"]
        return f"{self.name} ({', '.join([self.kind, *rows])})" + _about(
            self.comment, self.synonyms
        )

    def shown(
        self,
        references: Mapping[str, str],
        *,
        asked: Collection[str] = (),
        briefly: bool = False,
    ) -> str:
        """Text of the table in prompts: its name and meaning, then a line of its fields.

        Args:
            references: Referenced columns by column name.
            asked: Words of the question; other synonyms are left out.
            briefly: Names, types and keys only.
        """
        synonyms = _mentioned_synonyms(self.synonyms, asked)
        also = f" (also: {synonyms})" if synonyms else ""
        about = "" if briefly else also + (f": {self.comment}" if self.comment else "")
        fields = (
            field.shown(references.get(field.name, ""), asked=asked, briefly=briefly)
            for field in self.fields
        )
        return f"{self.name}{about}\n  {', '.join(fields)}"


@dataclass(frozen=True, slots=True)
class Join:
    """A join of two tables: a foreign key, or a curated join."""

    table: str
    columns: tuple[str, ...]
    other: str
    other_columns: tuple[str, ...]
    note: str = ""

    @property
    def doc_id(self) -> str:
        """Id of the join within the database."""
        own, other = ",".join(self.columns), ",".join(self.other_columns)
        return f"{self.table}({own})={self.other}({other})"

    @property
    def condition(self) -> str:
        """Join condition in SQL."""
        return " AND ".join(
            f"{self.table}.{own} = {self.other}.{other}"
            for own, other in zip(self.columns, self.other_columns, strict=True)
        )

    @property
    def text(self) -> str:
        """Text of the join, condition and note, one line."""
        return f"{self.condition}: {self.note}" if self.note else self.condition


@dataclass(frozen=True, slots=True)
class Metric:
    """A named measure and its formula; always curated."""

    name: str
    formula: str
    tables: tuple[str, ...]
    description: str = ""
    synonyms: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    """Conditions that every query for it has to apply."""
    time: str = ""
    """Field that decides the period, as ``table.field``."""
    dimensions: tuple[str, ...] = ()
    """Tables, or fields as ``table.field``, that may split or restrict it; empty: any."""
    alternatives: tuple[str, ...] = ()
    """Names of metrics that mean the same, split in another way."""
    enforced: bool = True
    """Whether queries are checked against it; else it is only a hint."""

    @property
    def text(self) -> str:
        """Text of the metric, one line."""
        parts = [f"{self.name} = {self.formula}" + _about(self.description, self.synonyms)]
        parts += [f"where {' AND '.join(self.filters)}"] if self.filters else []
        parts += [f"period by {self.time}"] if self.time else []
        parts += [f"split only by {', '.join(self.dimensions)}"] if self.dimensions else []
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Catalog:
    """Catalogue of one database."""

    database: str
    tables: tuple[Table, ...]
    joins: tuple[Join, ...] = ()
    metrics: tuple[Metric, ...] = ()
    narrowed: bool = False
    """Whether tables that the user may not read are left out."""


def read_catalog(database: str, tables: Iterable[Mapping[str, Any]]) -> Catalog:
    """Parse the catalogue in a reply of ``mcp_db_schema``.

    Raises:
        KeyError, TypeError, ValueError: the reply is invalid.
    """
    described = list(tables)
    return Catalog(
        database,
        tuple(_table(each) for each in described),
        tuple(dict.fromkeys(join for each in described for join in _joins(each))),
    )


def one_line(text: str) -> str:
    """``text`` on one line, with single spaces."""
    return " ".join(text.split())


def _table(table: Mapping[str, Any]) -> Table:
    return Table(
        name=table["name"],
        kind=table["kind"],
        row_estimate=table["row_estimate"],
        comment=one_line(table["comment"]),
        fields=tuple(
            Field(
                name=column["name"],
                type=column["type"],
                key=_key(column["name"], table),
                nullable=column["nullable"],
                comment=one_line(column["comment"]),
                values=tuple(column["sample_values"]),
            )
            for column in table["columns"]
        ),
    )


def _key(column: str, table: Mapping[str, Any]) -> str:
    if column in table["primary_key"]:
        return "primary key"
    return "unique" if [column] in table["unique_keys"] else ""


def _joins(table: Mapping[str, Any]) -> Iterator[Join]:
    for key in table["foreign_keys"]:
        own, other = tuple(key["columns"]), tuple(key["references"])
        if len(own) != len(other):
            raise ValueError(f"foreign key of {table['name']}")
        yield Join(table["name"], own, key["table"], other)


def _mentioned_synonyms(synonyms: Iterable[str], asked: Collection[str]) -> str:
    """Synonyms that occur in the question."""
    return ", ".join(each for each in synonyms if all(word in asked for word in words(each)))


def _about(comment: str, synonyms: tuple[str, ...]) -> str:
    also = f" (also: {', '.join(synonyms)})" if synonyms else ""
    return f"{also}: {comment}" if comment else also
