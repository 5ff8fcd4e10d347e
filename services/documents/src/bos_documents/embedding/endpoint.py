"""Embeddings by an OpenAI-compatible endpoint."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from bos_errors import FailedPrecondition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_documents.embedding.port import Vector
    from bos_llm import EmbeddingModel

_MAX_BATCH_TEXTS: Final = 64
_MAX_BATCH_CHARS: Final = 200_000


class EndpointEmbedder:
    """An embedding model behind an endpoint; implements ``Embedder``.

    Args:
        model: The model, from ``bos_llm.Models.embedding``.
        dimension: Numbers in its vectors.
        send_dimension: Whether the endpoint is asked for that many; not all take it.
    """

    in_process = False

    def __init__(
        self, model: EmbeddingModel, dimension: int, *, send_dimension: bool = False
    ) -> None:
        self._model = model
        self._asked = dimension if send_dimension else None
        self.dimension = dimension
        self.model = f"{model.name}@{dimension}"

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        """Embeddings of what is searched, in the order of ``texts``.

        Raises:
            BosError: as ``EmbeddingModel.embed``.
            FailedPrecondition: the vectors have another dimension than is set.
        """
        vectors: list[Vector] = []
        for batch in _batches(texts):
            reply = await self._model.embed(batch, dimensions=self._asked)
            vectors += [self._unit(vector) for vector in reply.vectors]
        return vectors

    async def embed_query(self, text: str) -> Vector:
        """Embedding of a question.

        Raises:
            BosError: as :meth:`embed_passages`.
        """
        return (await self.embed_passages([text]))[0]

    async def close(self) -> None:
        """Nothing to release: connections belong to ``Models``."""

    def _unit(self, vector: Sequence[float]) -> Vector:
        if len(vector) != self.dimension:
            raise FailedPrecondition(
                f"The embedding model's vectors have {len(vector)} dimensions; set "
                f"BOS_DOCUMENTS_EMBEDDING_DIMENSION, which is {self.dimension}, to that.",
                reason="EMBEDDING_DIMENSION",
            )
        length = math.sqrt(math.fsum(value * value for value in vector)) or 1.0
        return tuple(value / length for value in vector)


def _batches(texts: Sequence[str]) -> list[list[str]]:
    """Texts in order, in requests of bounded size. Endpoints refuse empty texts."""
    batches: list[list[str]] = []
    room = 0
    for text in texts:
        sent = text if text.strip() else " . "
        if not batches or len(sent) > room or len(batches[-1]) == _MAX_BATCH_TEXTS:
            batches.append([])
            room = _MAX_BATCH_CHARS
        batches[-1].append(sent)
        room -= len(sent)
    return batches
