"""Pages and chunks of a reading, written by the owner of its job."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from bos_documents.chunking.chunks import ChunkKind, TextChunk
from bos_documents.parsing.blocks import Block, BlockKind, Page, PageText

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    Connection = PoolConnectionProxy[asyncpg.Record]

ADD_PAGE: Final = """
INSERT INTO pages (document_id, generation, number, user_id, content) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (document_id, generation, number) DO NOTHING
"""
LAST_PAGE: Final = """
SELECT coalesce(max(number), 0) FROM pages WHERE document_id = $1 AND generation = $2
"""
PAGES: Final = """
SELECT content FROM pages WHERE document_id = $1 AND generation = $2 AND number > $3
ORDER BY number LIMIT $4
"""
_DROP_CHUNKS = "DELETE FROM chunks WHERE document_id = $1 AND generation = $2"
_ADD_CHUNKS = """
INSERT INTO chunks (document_id, generation, user_id, ordinal, chunk_id, content, kind, tokens,
                    first_page, last_page, section_path, start_char, end_char, parent_chunk_id,
                    recognised)
SELECT $1, $2, $3, ordinal, chunk_id, content, kind, tokens, first_page, last_page,
       ARRAY(SELECT jsonb_array_elements_text(section_path)), start_char, end_char,
       parent_chunk_id, recognised
FROM unnest($4::int[], $5::uuid[], $6::text[], $7::text[], $8::int[], $9::int[], $10::int[],
            $11::jsonb[], $12::int[], $13::int[], $14::uuid[], $15::bool[])
     AS given (ordinal, chunk_id, content, kind, tokens, first_page, last_page, section_path,
               start_char, end_char, parent_chunk_id, recognised)
"""
COPY_CHUNKS: Final = """
INSERT INTO chunks (document_id, generation, user_id, ordinal, chunk_id, content, kind, tokens,
                    first_page, last_page, section_path, start_char, end_char, parent_chunk_id,
                    recognised)
SELECT c.document_id, $2, c.user_id, ordinal, chunk_id, content, kind, tokens, first_page,
       last_page, section_path, start_char, end_char, parent_chunk_id, recognised
FROM chunks AS c JOIN documents AS d ON d.document_id = c.document_id AND d.serving = c.generation
WHERE c.document_id = $1
"""
CHUNKS: Final = """
SELECT chunk_id, content, section_path, ordinal FROM chunks
WHERE document_id = $1 AND generation = $2 AND ordinal >= $3 ORDER BY ordinal LIMIT $4
"""
COUNT_CHUNKS: Final = "SELECT count(*) FROM chunks WHERE document_id = $1 AND generation = $2"
_INSERT_BATCH: Final = 500


async def replace_chunks(
    connection: Connection,
    document_id: UUID,
    generation: int,
    user_id: str,
    chunks: Sequence[TextChunk],
) -> None:
    """Make these the chunks of a reading, in the transaction of its job's owner."""
    await connection.execute(_DROP_CHUNKS, document_id, generation)
    for start in range(0, len(chunks), _INSERT_BATCH):
        rows = [_columns(chunk) for chunk in chunks[start : start + _INSERT_BATCH]]
        columns = [list(column) for column in zip(*rows, strict=True)]
        await connection.execute(_ADD_CHUNKS, document_id, generation, user_id, *columns)


def _columns(chunk: TextChunk) -> tuple[Any, ...]:
    parent = chunk.parent_chunk_id
    return (
        chunk.ordinal,
        UUID(chunk.chunk_id),
        storable(chunk.text),
        ChunkKind(chunk.kind).value,
        chunk.tokens,
        chunk.first_page,
        chunk.last_page,
        json.dumps([storable(each) for each in chunk.section_path]),
        chunk.start_char,
        chunk.end_char,
        None if parent is None else UUID(parent),
        chunk.recognised,
    )


def packed_page(page: Page) -> str:
    """A page as PostgreSQL stores it."""
    return storable(json.dumps(asdict(page), ensure_ascii=False, separators=(",", ":")))


def unpacked_page(content: str) -> Page:
    """The page that :func:`packed_page` packed; what it holds beyond today's fields is left out."""
    values = json.loads(content)
    values["blocks"] = tuple(_block(each) for each in values["blocks"])
    values["text"] = PageText(values["text"])
    known = {each.name for each in fields(Page)}
    return Page(**{name: _frozen(value) for name, value in values.items() if name in known})


def _block(values: dict[str, Any]) -> Block:
    values["kind"] = BlockKind(values["kind"])
    values["rows"] = tuple(tuple(row) for row in values["rows"])
    return Block(**values)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def storable(text: str) -> str:
    """``text`` as PostgreSQL can hold it: without U+0000 and lone surrogates."""
    sound = text.replace("\0", "")
    return sound if sound.isascii() else sound.encode("utf-8", "replace").decode()
