"""Chunks, filters and names as both index adapters store them.

No word of a document is stored: values to filter by are digests, the sparse vector holds hashes
of stemmed words. Digests of common words can be guessed, so files of an index are as confidential
as the documents.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any, Final

from bos_documents.index.port import IndexedChunk, Scored

DENSE: Final = "dense"
SPARSE: Final = "sparse"

USER: Final = "user"
DOCUMENT: Final = "document"
DOCUMENT_TYPE: Final = "type"
TOPICS: Final = "topics"
DATE: Final = "date"
SECTION: Final = "section"

KEYWORD_FIELDS: Final = (DOCUMENT, DOCUMENT_TYPE, TOPICS, SECTION)
INTEGER_FIELDS: Final = (DATE,)

TIES: Final = 16
"""Points fetched beyond the limit, so that ties at its end are cut in the order of ids."""
MAX_FETCHED: Final = 4096

_WORD: Final = re.compile(r"\w+")
_PLAIN_ID: Final = re.compile(r"[a-z0-9-]{1,64}")
_MAX_SECTION_WORDS: Final = 64


def digest(value: str) -> str:
    """Case-insensitive digest of a value to filter by."""
    return hashlib.blake2b(value.casefold().encode(errors="replace"), digest_size=8).hexdigest()


def words_of(text: str) -> list[str]:
    """Digests of the words of a section path, each once."""
    words = dict.fromkeys(_WORD.findall(text.casefold()))
    return [digest(word) for word in list(words)[:_MAX_SECTION_WORDS]]


def payload_of(chunk: IndexedChunk) -> dict[str, Any]:
    """What is stored beside the vectors. Fields without a value are left out."""
    payload: dict[str, Any] = {DOCUMENT: chunk.document_id}
    if chunk.document_type:
        payload[DOCUMENT_TYPE] = digest(chunk.document_type)
    if chunk.topics:
        payload[TOPICS] = [digest(topic) for topic in chunk.topics]
    if chunk.document_date:
        payload[DATE] = chunk.document_date
    if chunk.section:
        payload[SECTION] = words_of(chunk.section)
    return payload


def safe_name(value: str) -> str:
    """Name of a folder for any text: fixed length, letters and digits, nothing of the text."""
    return hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()[:40]


def collection_prefix(user_id: str) -> str:
    """First part of the names of a user's collections; no two users share one."""
    plain = _PLAIN_ID.fullmatch(user_id) is not None
    # Plain ids hold no underscore, so none of them looks like the other kind.
    return f"user_{user_id if plain else 'h_' + safe_name(user_id)}_documents_"


def model_suffix(model: str) -> str:
    """Last part of the names of a model's collections."""
    return safe_name(model)[:12]


def best(found: Iterable[Scored], limit: int) -> tuple[Scored, ...]:
    """The best, best first; ties in the order of ids."""
    return tuple(sorted(found, key=lambda each: (-each.score, each.chunk_id))[:limit])


def is_cut_in_a_tie(scores: list[float], limit: int, fetched: int) -> bool:
    """Whether more points than were fetched may have the score at the limit."""
    full = len(scores) == fetched and fetched > limit
    return full and scores[limit - 1] == scores[-1] and fetched < MAX_FETCHED
