"""What a database holds: tables, fields, joins and metrics, and how prompts show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@dataclass(frozen=True, slots=True)
class Field:
    """One column."""

    name: str
    type: str
    key: str = ""
    """``primary key``, ``unique`` or empty."""
    nullable: bool = False
    comment: str = ""
    values: tuple[str, ...] = ()
    """Frequent values; data from outside."""
    synonyms: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The field in one line."""
        parts = [f"{self.name} {self.type}".rstrip()]
        parts += [self.key] if self.key else []
        parts += ["may be NULL"] if self.nullable else []
        text = ", ".join(parts) + _about(self.comment, self.synonyms)
        if self.values:
            text += f" (e.g. {', '.join(map(repr, self.values))})"
        return text


@dataclass(frozen=True, slots=True)
class Table:
    """One table or view."""

    name: str
    kind: str
    fields: tuple[Field, ...]
    row_estimate: int | None = None
    comment: str = ""
    synonyms: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    """Questions that it answers, in people's words."""

    @property
    def headline(self) -> str:
        """The table in one line, without its fields."""
        rows = [] if self.row_estimate is None else [f"about {self.row_estimate} rows"]
        return f"{self.name} ({', '.join([self.kind, *rows])})" + _about(
            self.comment, self.synonyms
        )

    @property
    def text(self) -> str:
        """The table with one line per field."""
        return "\n".join([self.headline, *(f"  {field.text}" for field in self.fields)])


@dataclass(frozen=True, slots=True)
class Join:
    """Columns by which two tables belong together: a foreign key, or a curated rule."""

    table: str
    columns: tuple[str, ...]
    other: str
    other_columns: tuple[str, ...]
    note: str = ""

    @property
    def doc_id(self) -> str:
        """Its name within the database."""
        own, other = ",".join(self.columns), ",".join(self.other_columns)
        return f"{self.table}({own})={self.other}({other})"

    @property
    def condition(self) -> str:
        """The condition as SQL writes it."""
        return " AND ".join(
            f"{self.table}.{own} = {self.other}.{other}"
            for own, other in zip(self.columns, self.other_columns, strict=True)
        )

    @property
    def text(self) -> str:
        """Condition and note in one line."""
        return f"{self.condition}: {self.note}" if self.note else self.condition


@dataclass(frozen=True, slots=True)
class Metric:
    """A measure that people name, and how it is computed; always curated."""

    name: str
    formula: str
    tables: tuple[str, ...]
    description: str = ""
    synonyms: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The metric in one line."""
        return f"{self.name} = {self.formula}" + _about(self.description, self.synonyms)


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything that is known about one database."""

    database: str
    tables: tuple[Table, ...]
    joins: tuple[Join, ...] = ()
    metrics: tuple[Metric, ...] = ()


def read_catalog(database: str, tables: Iterable[Mapping[str, Any]]) -> Catalog:
    """The catalogue that ``mcp_db_schema`` describes.

    Raises:
        KeyError, TypeError, ValueError: the description is not understood.
    """
    described = list(tables)
    return Catalog(
        database,
        tuple(_table(each) for each in described),
        tuple(dict.fromkeys(join for each in described for join in _joins(each))),
    )


def one_line(text: str) -> str:
    """``text`` without line breaks and runs of spaces."""
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


def _about(comment: str, synonyms: tuple[str, ...]) -> str:
    also = f" (also: {', '.join(synonyms)})" if synonyms else ""
    return f"{also}: {comment}" if comment else also
