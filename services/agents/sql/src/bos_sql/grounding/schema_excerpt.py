"""Schema excerpt for one question: tables, fields, joins, metrics and citations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Longer fields of a trace event would be dropped.
_MAX_TRACED_CHARS = 5_000


@dataclass(frozen=True, slots=True)
class Citation:
    """Source of a statement about the data."""

    doc_id: str
    snippet: str


@dataclass(frozen=True, slots=True)
class GroundingPack:
    """Schema excerpt of the tables of one question."""

    table_docs: tuple[str, ...] = ()
    """Text of each table in prompts, with its columns."""
    field_docs: tuple[str, ...] = ()
    """One line per column, as ``table.column type …``."""
    relationship_docs: tuple[str, ...] = ()
    """Conditions of the joins between the tables, one per line."""
    join_docs: tuple[str, ...] = ()
    """Joins that the texts of the tables do not show."""
    metric_docs: tuple[str, ...] = ()
    """Curated metrics over the tables, as ``name = formula``."""
    citations: tuple[Citation, ...] = ()
    suggested_tables: tuple[str, ...] = ()
    suggested_join_paths: tuple[str, ...] = ()

    def text(self, max_chars: int) -> str:
        """Text of the excerpt in prompts, without metrics."""
        joins = "\n".join(f"  {line}" for line in self.join_docs)
        parts = [*self.table_docs, *([f"Joins:\n{joins}"] if joins else [])]
        return "\n".join(parts)[:max_chars]

    def traced(self) -> dict[str, Any]:
        """Data for a trace event, long lists truncated."""
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
