"""Reading the replies of the embeddings API."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bos_llm.replies.wire import ForeignReply, checked
from bos_llm.replies.wire_parts import read_count, string


@dataclass(frozen=True, slots=True)
class VectorReply:
    """Vectors in the order of the texts."""

    vectors: Sequence[Sequence[float]]
    model: str
    """As the endpoint names it."""
    tokens: int | None
    """None if the endpoint does not count."""


def read_vectors(body: object, texts: int) -> VectorReply:
    """The vectors of ``texts`` texts.

    Raises:
        ReportedError: the endpoint reports a failure.
        ForeignReply: it is something else, or vectors are missing, of two lengths or not finite.
    """
    reply = checked(body)
    data = reply.get("data")
    if not isinstance(data, list) or len(data) != texts:
        raise ForeignReply("not one embedding per text")
    found: dict[int, list[float]] = {}
    for position, entry in enumerate(data):
        if not isinstance(entry, dict):
            raise ForeignReply("an invalid embedding")
        index = entry.get("index", position)
        vector = _vector(entry.get("embedding"))
        if not isinstance(index, int) or not 0 <= index < texts or index in found:
            raise ForeignReply("embeddings out of order")
        found[index] = vector
    if len({len(vector) for vector in found.values()}) > 1:
        raise ForeignReply("embeddings of two lengths")
    usage = reply.get("usage")
    tokens = read_count(usage, "prompt_tokens", "total_tokens") if isinstance(usage, dict) else None
    return VectorReply([found[n] for n in range(texts)], string(reply.get("model")), tokens)


def _vector(value: Any) -> list[float]:
    if not isinstance(value, list) or not value:
        raise ForeignReply("an invalid embedding")
    try:
        vector = [float(number) for number in value]
    except (TypeError, ValueError):
        raise ForeignReply("an invalid embedding") from None
    if not all(map(math.isfinite, vector)):
        raise ForeignReply("an embedding that is not finite")
    return vector
