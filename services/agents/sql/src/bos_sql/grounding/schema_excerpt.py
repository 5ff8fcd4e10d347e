"""The part of the index that one question needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

# A field of a trace event that is longer would be left out as a whole.
_MAX_TRACED_CHARS = 5_000


@dataclass(frozen=True, slots=True)
class Citation:
    """Where a statement about the data comes from."""

    doc_id: str
    snippet: str


@dataclass(frozen=True, slots=True)
class GroundingPack:
    """What is known about the tables of one question."""

    table_docs: tuple[str, ...] = ()
    """One text per table as prompts show it, its columns included."""
    field_docs: tuple[str, ...] = ()
    """One line per column, as ``table.column type …``."""
    relationship_docs: tuple[str, ...] = ()
    """One line per way to join two of the tables, as the condition."""
    join_docs: tuple[str, ...] = ()
    """Those of them that the texts of the tables do not tell."""
    metric_docs: tuple[str, ...] = ()
    """One line per curated measure over the tables, as ``name = formula``."""
    citations: tuple[Citation, ...] = ()
    suggested_tables: tuple[str, ...] = ()
    suggested_join_paths: tuple[str, ...] = ()

    def text(self, max_chars: int) -> str:
        """The pack as prompts show it, but for the metrics."""
        joins = "\n".join(f"  {line}" for line in self.join_docs)
        parts = [*self.table_docs, *([f"Joins:\n{joins}"] if joins else [])]
        return "\n".join(parts)[:max_chars]

    def traced(self) -> dict[str, Any]:
        """The pack as a trace event holds it, long lists cut."""
        return {
            "table_docs": _cut(self.table_docs),
            "field_docs": _cut(self.field_docs),
            "relationship_docs": _cut(self.relationship_docs),
            "metric_docs": _cut(self.metric_docs),
            "citations": [
                {"doc_id": each.doc_id, "snippet": each.snippet} for each in self.citations
            ],
            "suggested_tables": list(self.suggested_tables),
            "suggested_join_paths": _cut(self.suggested_join_paths),
        }


def _cut(texts: Sequence[str]) -> list[str]:
    kept: list[str] = []
    room = _MAX_TRACED_CHARS
    for place, text in enumerate(texts):
        if len(text) > room:
            return [*kept, f"… and {len(texts) - place} more"]
        kept.append(text)
        room -= len(text)
    return kept
