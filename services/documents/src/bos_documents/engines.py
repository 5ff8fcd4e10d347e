"""Opens what documents are read, cut, embedded, indexed and ranked by, as the settings say."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from bos_documents.chunking.chunker import ChunkLimits, chunk_pages
from bos_documents.embedding.endpoint import EndpointEmbedder
from bos_documents.embedding.local import LocalEmbedder
from bos_documents.embedding.shipped_model import count_tokens
from bos_documents.index.embedded import EmbeddedIndex
from bos_documents.index.stop_words import StopWords
from bos_documents.parsing.limits import ParsingLimits
from bos_documents.parsing.pool import ParserPool, with_tesseract
from bos_documents.parsing.port import ParserFailed
from bos_documents.parsing.rejections import WorkerFailed
from bos_documents.ports import Engines
from bos_documents.search.coverage import content_words
from bos_documents.search.coverage import coverage as lexical_coverage
from bos_documents.search.fusion import FusionRule, Method, fuse
from bos_documents.search.identifiers import folded
from bos_documents.search.ports import Ranked, Ranking
from bos_errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path
    from uuid import UUID

    from bos_chassis.telemetry import Telemetry
    from bos_documents.chunking.chunks import TextChunk
    from bos_documents.embedding.port import Embedder
    from bos_documents.index.port import ChunkIndex, Legs
    from bos_documents.metrics import DocumentsMetrics
    from bos_documents.parsing.blocks import DocumentInfo, Page
    from bos_documents.parsing.pool import OpenDocument
    from bos_documents.settings import DocumentsSettings, RankBy
    from bos_llm import Models

_NOT_BY_DOCUMENT = ("WORKER_NOT_STARTED", "WORKER_NOT_ISOLATED")
_MODEL_AGENT = "documents"
"""Whose provider and keys embed: those of the model that describes documents."""


@asynccontextmanager
async def open_engines(
    settings: DocumentsSettings,
    telemetry: Telemetry,
    models: Models | None,
    metrics: DocumentsMetrics,
) -> AsyncIterator[Engines]:
    """The engines that the settings name, until the context is left.

    Args:
        settings: Which embedding model and index, and bounds.
        telemetry: Of the service.
        models: Shared by the process; needed where an endpoint embeds.
        metrics: Count parser processes.

    Raises:
        ConfigurationError: settings contradict one another, or an index folder cannot be used.
    """
    async with AsyncExitStack() as stack:
        limits = ParsingLimits(
            file_bytes=settings.max_document_bytes,
            pages=settings.max_pages,
            ocr_languages=settings.ocr_languages,
        )
        pool = await stack.enter_async_context(
            ParserPool(
                with_tesseract(limits),
                workers=settings.workers,
                require_offline=settings.require_offline_parsers,
                started=_ParserStarts(settings, telemetry, metrics),
            )
        )
        embedder = _embedder(settings, models)
        stack.push_async_callback(embedder.close)
        index = _index(settings, telemetry)
        stack.push_async_callback(index.close)
        yield Engines(
            parser=PooledParser(pool),
            chunker=partial(_chunked, limits=ChunkLimits(target_tokens=settings.chunk_tokens)),
            embedder=embedder,
            index=index,
            ranker=FusingRanker(),
        )


class _ParserStarts:
    """Counts parser processes; logs a warning once if they can reach the network."""

    def __init__(
        self, settings: DocumentsSettings, telemetry: Telemetry, metrics: DocumentsMetrics
    ) -> None:
        self._required = settings.require_offline_parsers
        self._log = telemetry.logger("bos.documents.parsers")
        self._metrics = metrics
        self._warned = False

    def __call__(self, offline: bool) -> None:
        self._metrics.parsers.labels("cut_off" if offline else "reachable").inc()
        if not offline and not self._warned:
            self._warned = True
            self._log.warning("parsers can reach the network", documents_wait=self._required)


class PooledParser:
    """Reads documents in parser processes; implements ``Parser``."""

    def __init__(self, pool: ParserPool) -> None:
        self._pool = pool

    @asynccontextmanager
    async def open(self, content: bytes | Path, name: str) -> AsyncIterator[_Opened]:
        """A document for the length of the block.

        Raises:
            DocumentRejected: it cannot be read.
            ParserFailed: its parser failed.
        """
        async with AsyncExitStack() as stack:
            try:
                opened = await stack.enter_async_context(self._pool.open(content, name=name))
            except WorkerFailed as error:
                raise _parser_failed(error) from error
            yield _Opened(opened)


class _Opened:
    """A document in a parser process; implements ``ParsedDocument``."""

    def __init__(self, document: OpenDocument) -> None:
        self._document = document

    @property
    def info(self) -> DocumentInfo:
        return self._document.info

    async def pages(self, from_page: int) -> AsyncIterator[Page]:
        for number in range(from_page, self._document.info.page_count + 1):
            try:
                page = await self._document.page(number)
            except WorkerFailed as error:
                raise _parser_failed(error) from error
            yield page


def _parser_failed(error: WorkerFailed) -> ParserFailed:
    return ParserFailed(error.reason, by_document=error.reason not in _NOT_BY_DOCUMENT)


def _chunked(document_id: UUID, pages: Sequence[Page], *, limits: ChunkLimits) -> list[TextChunk]:
    return chunk_pages(document_id, pages, count_tokens, limits)


class FusingRanker:
    """One ranking of two legs; implements ``Ranker``."""

    def __init__(self) -> None:
        self._stop_words = StopWords()

    def __call__(
        self,
        legs: Legs,
        by: RankBy,
        *,
        query: str,
        texts: Mapping[str, str],
        limit: int,
        coverage: float | None = None,
    ) -> Ranking:
        """The ranking of what a search found."""
        read = {chunk_id: folded(text) for chunk_id, text in texts.items()}
        covered = coverage
        if covered is None:
            covered = lexical_coverage(content_words(query, self._stop_words), legs.sparse, read)
        fused = fuse(
            legs,
            FusionRule(method=Method(by.value)),
            question=query,
            texts=read,
            coverage=covered,
            limit=limit,
        )
        passages = [Ranked(each.chunk_id, each.score, each.dense, each.sparse) for each in fused]
        return Ranking(passages, covered)


def _embedder(settings: DocumentsSettings, models: Models | None) -> Embedder:
    if not settings.embedding_model:
        return LocalEmbedder()
    if models is None or settings.embedding_dimension is None:
        raise ConfigurationError(
            "BOS_DOCUMENTS_EMBEDDING_MODEL needs BOS_DOCUMENTS_EMBEDDING_DIMENSION, how many "
            "numbers its vectors have, and a model endpoint (OPENAI_API_KEY, or OPENAI_BASE_URL)."
        )
    model = models.embedding(_MODEL_AGENT, settings.embedding_model)
    return EndpointEmbedder(model, settings.embedding_dimension)


def _index(settings: DocumentsSettings, telemetry: Telemetry) -> ChunkIndex:
    if settings.qdrant_url is not None:
        # Importing the client takes seconds, and those who have no server need not wait for it.
        from bos_documents.index.server import ServerIndex, connect

        client = connect(settings.qdrant_url, settings.qdrant_api_key)
        return ServerIndex(client, layout=settings.qdrant_layout, replicas=settings.qdrant_replicas)
    if settings.index_folder is None:
        raise ConfigurationError(
            "Documents need an index: set BOS_DOCUMENTS_INDEX_FOLDER to a folder of this replica "
            "alone, or BOS_DOCUMENTS_QDRANT_URL to a Qdrant server that all replicas share."
        )
    return EmbeddedIndex(settings.index_folder, telemetry.logger("bos.documents.index"))
