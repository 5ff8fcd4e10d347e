"""Chunks for tests of indexes."""

import math
import uuid
from typing import Any

from bos_documents.index.port import IndexedChunk

MODEL = "minilm@1"
DOCUMENT = str(uuid.UUID(int=1000))
OTHER_DOCUMENT = str(uuid.UUID(int=1001))


def chunk_id(number: int) -> str:
    return str(uuid.UUID(int=number))


def direction(degrees: float) -> tuple[float, ...]:
    """A vector of length 1 and 4 dimensions."""
    angle = math.radians(degrees)
    return (math.cos(angle), math.sin(angle), 0.0, 0.0)


def chunk(number: int, text: str = "text", degrees: float = 0.0, **fields: Any) -> IndexedChunk:
    values = {"document_id": DOCUMENT, **fields}
    return IndexedChunk(chunk_id=chunk_id(number), dense=direction(degrees), text=text, **values)
