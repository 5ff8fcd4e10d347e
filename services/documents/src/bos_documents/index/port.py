"""Interface of vector indexes: chunks per user, found by embedding and by words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class IndexedChunk:
    """A chunk as the index stores it. Its text stays in PostgreSQL, which is the truth.

    Beside its chunks a document has one *entry*, made of its description, which finds it as a
    whole: its id is that of the document.
    """

    chunk_id: str
    document_id: str
    dense: tuple[float, ...]
    """Embedding, of length 1."""
    text: str
    """What the sparse (BM25) vector is made of; not stored."""
    document_type: str = ""
    document_date: int = 0
    """As YYYYMMDD; 0 if the document bears none."""
    topics: tuple[str, ...] = ()
    section: str = ""
    """The section path in one line."""


@dataclass(frozen=True, slots=True)
class IndexFilter:
    """Which chunks count. Fields that are set must all hold; of several values, one."""

    document_ids: tuple[str, ...] = ()
    document_types: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    date_from: int = 0
    """As YYYYMMDD; 0 is no bound. Undated documents fall outside of a bound."""
    date_to: int = 0
    section: str = ""
    """Words that the section path must hold."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A chunk of one leg of a search."""

    chunk_id: str
    score: float


@dataclass(frozen=True, slots=True)
class Legs:
    """What each leg found, best first, ties in the order of chunk ids."""

    dense: tuple[Scored, ...] = field(default=())
    sparse: tuple[Scored, ...] = field(default=())


class ChunkIndex(Protocol):
    """Vectors of chunks, per user. Every call ends within the deadline of the index.

    All calls raise ``Unavailable`` when the index cannot be reached or is overloaded; every call
    may be repeated.
    """

    async def upsert(self, user_id: str, model: str, chunks: Sequence[IndexedChunk]) -> None:
        """Store chunks under their ids in the index of this model; replaces equal ids."""
        ...

    async def delete_document(self, user_id: str, document_id: str) -> None:
        """Remove a document's chunks, in the indexes of all models; nothing stays in a file."""
        ...

    async def delete_chunks(self, user_id: str, model: str, chunk_ids: Sequence[str]) -> None:
        """Remove chunks by id; ids that are not there are ignored."""
        ...

    async def delete_user(self, user_id: str) -> None:
        """Remove all chunks of a user, in the indexes of all models; nothing stays in a file."""
        ...

    async def delete_model(self, user_id: str, model: str) -> None:
        """Remove the index of an embedding model that no longer serves."""
        ...

    async def count(self, user_id: str, model: str, document_id: str | None = None) -> int:
        """Chunks of a user, or of one document of it; entries of documents count, too."""
        ...

    async def search(
        self,
        user_id: str,
        model: str,
        *,
        dense: Sequence[float] | None,
        text: str | None,
        filter: IndexFilter,
        limit: int,
    ) -> Legs:
        """The best chunks by embedding and by words; legs whose argument is None are left out."""
        ...

    async def close(self) -> None:
        """Write what is buffered and release files and connections."""
        ...
