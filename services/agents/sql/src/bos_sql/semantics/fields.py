"""Fields of a catalogue by their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_sql.dialects.kinds import declared_kind

if TYPE_CHECKING:
    from bos_sql.grounding.catalog import Catalog, Field
    from bos_sql.semantics.expressions import Column


class Fields:
    """Fields of the tables of a catalogue, found by table and name in lower case."""

    def __init__(self, catalog: Catalog) -> None:
        self._tables = {
            table.name.casefold(): {field.name.casefold(): field for field in table.fields}
            for table in catalog.tables
        }

    def has_table(self, table: str) -> bool:
        """Whether the catalogue holds the table."""
        return table in self._tables

    def get(self, column: Column) -> Field | None:
        """The field of a column; None if the catalogue lacks it."""
        return self._tables.get(column[0], {}).get(column[1])

    def is_nullable(self, column: Column) -> bool:
        """Whether the column may be NULL, or is not in the catalogue."""
        field = self.get(column)
        return field is None or (field.nullable and field.key != "primary key")

    def is_date(self, column: Column) -> bool:
        """Whether the column holds dates or moments."""
        field = self.get(column)
        return field is not None and declared_kind(field.type) in ("date", "moment")
