"""Searches in the documents of one user."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from uuid import UUID

from bos.documents.v1 import Passage, SearchDocumentsResponse, SearchMode
from bos_documents.context import in_context
from bos_documents.index.port import IndexFilter, Legs
from bos_documents.search.ports import RankBy
from bos_documents.store.rows import CHUNK_COLUMNS, chunk_of, number_of_date
from bos_errors import BosError, DeadlineExceeded, InvalidArgument
from bos_postgres import fetch, for_user

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence

    import asyncpg

    from bos.documents.v1 import SearchDocumentsRequest, SearchFilter
    from bos_chassis.telemetry import Telemetry
    from bos_documents.embedding.port import Vector
    from bos_documents.ingest.maintenance import Maintenance
    from bos_documents.ingest.ports import Engines
    from bos_documents.metrics import DocumentsMetrics
    from bos_documents.search.ports import Ranked
    from bos_documents.settings import DocumentsSettings

_DEFAULT_LIMIT: Final = 20
_MAX_REPAIRS: Final = 16
"""Removals of orphaned vectors at once; what is left out is found again."""
_MODES: Final = {
    RankBy.DENSE: SearchMode.SEARCH_MODE_DENSE,
    RankBy.SPARSE: SearchMode.SEARCH_MODE_SPARSE,
    RankBy.RRF: SearchMode.SEARCH_MODE_RRF,
    RankBy.BLEND: SearchMode.SEARCH_MODE_BLEND,
}
_BY_MODE: Final = {mode: by for by, mode in _MODES.items()}
_SEARCHED = for_user("""
SELECT model, count(*) AS documents FROM documents
WHERE user_id = $1 AND serving > 0 AND state <> 'deleting' GROUP BY model ORDER BY model
""")
_VISIBLE = for_user(f"""
SELECT {CHUNK_COLUMNS} FROM chunks AS c
JOIN documents AS d ON d.document_id = c.document_id AND d.serving = c.generation
WHERE c.user_id = $1 AND d.user_id = $1 AND c.chunk_id = ANY ($2) AND d.state <> 'deleting'
""")  # noqa: S608  our own text


@dataclass(frozen=True, slots=True)
class _Found:
    """What the index of one embedding model found."""

    model: str
    legs: Legs


class Searching:
    """Finds passages.

    Args:
        readers: Connections of the role that sees the rows of one user.
        engines: The index, the model that embeds queries, and what ranks.
        maintenance: Removes vectors that belong to nothing.
        settings: Bounds.
        metrics: Times searches.
        telemetry: For the log, which holds no query.
    """

    def __init__(
        self,
        readers: asyncpg.Pool[asyncpg.Record],
        engines: Engines,
        maintenance: Maintenance,
        settings: DocumentsSettings,
        metrics: DocumentsMetrics,
        telemetry: Telemetry,
    ) -> None:
        self._readers = readers
        self._engines = engines
        self._maintenance = maintenance
        self._settings = settings
        self._metrics = metrics
        self._log = telemetry.logger("bos.documents.search")
        self._repairs: set[asyncio.Task[None]] = set()

    async def search(
        self, request: SearchDocumentsRequest, user_id: str
    ) -> SearchDocumentsResponse:
        """Passages of the user's documents that can be found, best first.

        Raises:
            InvalidArgument: a date of the filter is no date.
            Unavailable: index or embedding model do not answer.
            DeadlineExceeded: it took too long.
        """
        by = _BY_MODE.get(request.mode, self._settings.search_mode)
        wanted = index_filter(request.filter)
        limit = request.limit or _DEFAULT_LIMIT
        try:
            async with asyncio.timeout(self._settings.search_timeout_s):
                with self._metrics.searches.time():
                    return await self._search(request.query, by, wanted, limit, user_id)
        except TimeoutError:
            raise DeadlineExceeded("The search took too long.") from None

    async def close(self) -> None:
        """End the removals under way."""
        for repair in self._repairs:
            repair.cancel()
        await asyncio.gather(*self._repairs, return_exceptions=True)

    async def _search(
        self, query: str, by: RankBy, wanted: IndexFilter, limit: int, user_id: str
    ) -> SearchDocumentsResponse:
        searched, vector = await self._searched(query, by, user_id)
        response = SearchDocumentsResponse(
            mode=_MODES[by], documents_searched=sum(searched.values())
        )
        if not searched:
            return response
        models = list(searched)
        found = await self._candidates(query, by, wanted, limit, user_id, models, vector)
        visible = await self._visible(found, user_id)
        legs = _kept(found, visible.keys())
        texts = {
            chunk_id: in_context(row["name"], row["section_path"], row["content"])
            for chunk_id, row in visible.items()
        }
        ranking = self._engines.ranker(legs, by, query=query, texts=texts, limit=limit)
        response.coverage = ranking.coverage
        for each in ranking.passages:
            response.passages.append(_passage(each, visible[each.chunk_id]))
        return response

    async def _searched(
        self, query: str, by: RankBy, user_id: str
    ) -> tuple[dict[str, int], Vector | None]:
        """Documents to search by embedding model, and the query's embedding where it is needed.

        A model of this process embeds while the database is asked what there is to search. One
        behind an endpoint is called only where there is something that its vector can find.
        """
        embedder = self._engines.embedder
        early = by is not RankBy.SPARSE and embedder.in_process
        async with self._embedding(query) if early else nullcontext() as embedding:
            rows = await fetch(self._readers, _SEARCHED, user_id, user_id)
            searched = {row["model"]: row["documents"] for row in rows}
            if by is RankBy.SPARSE or self._engines.model not in searched:
                return searched, None
            return searched, await (embedding or embedder.embed_query(query))

    @asynccontextmanager
    async def _embedding(self, query: str) -> AsyncIterator[asyncio.Task[Vector]]:
        """The query's embedding in the making; nobody waits for it after the block."""
        task = asyncio.create_task(self._engines.embedder.embed_query(query), name="embed-query")
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _candidates(
        self,
        query: str,
        by: RankBy,
        wanted: IndexFilter,
        limit: int,
        user_id: str,
        models: Sequence[str],
        vector: Vector | None,
    ) -> list[_Found]:
        """What each index found: that of the present model by both legs, others by words.

        Documents of a former model are indexed anew in the background; their vectors cannot be
        compared with a query of the present one.
        """
        present, index = self._engines.model, self._engines.index
        most = max(limit, self._settings.candidates)
        found = []
        for model in models:
            dense = vector if model == present else None
            # By words too where the vectors are of another model, whatever was asked for.
            words = query if by is not RankBy.DENSE or dense is None else None
            legs = await index.search(
                user_id, model, dense=dense, text=words, filter=wanted, limit=most
            )
            found.append(_Found(model, legs))
        return found

    async def _visible(self, found: Sequence[_Found], user_id: str) -> dict[str, asyncpg.Record]:
        """Rows of the passages that the user may see by now, by chunk id."""
        ids = {UUID(each.chunk_id) for one in found for each in (*one.legs.dense, *one.legs.sparse)}
        if not ids:
            return {}
        rows = await fetch(self._readers, _VISIBLE, user_id, user_id, list(ids))
        visible = {str(row["chunk_id"]): row for row in rows}
        for one in found:
            hits = {each.chunk_id for each in (*one.legs.dense, *one.legs.sparse)}
            if unseen := hits - visible.keys():
                self._repair(user_id, one.model, [UUID(each) for each in unseen])
        return visible

    def _repair(self, user_id: str, model: str, chunk_ids: Sequence[UUID]) -> None:
        """Remove, beside the search, those that belong to no reading at all."""
        if len(self._repairs) >= _MAX_REPAIRS:
            return
        task = asyncio.create_task(self._removed(user_id, model, chunk_ids), name="orphans")
        self._repairs.add(task)
        task.add_done_callback(self._repairs.discard)

    async def _removed(self, user_id: str, model: str, chunk_ids: Sequence[UUID]) -> None:
        try:
            await self._maintenance.remove_orphans(user_id, model, chunk_ids)
        except BosError as error:
            self._log.info("orphans not removed", error=error.reason)
        except Exception:
            self._log.exception("orphans not removed")


def index_filter(given: SearchFilter) -> IndexFilter:
    """The filter as the index takes it.

    Raises:
        InvalidArgument: a date is no date.
    """
    dates = {}
    for name in ("date_from", "date_to"):
        try:
            dates[name] = number_of_date(getattr(given, name))
        except ValueError:
            raise InvalidArgument.field(f"filter.{name}", "is no date of the calendar") from None
    return IndexFilter(
        document_ids=tuple(given.document_ids),
        document_types=tuple(each.casefold() for each in given.document_types),
        topics=tuple(each.casefold() for each in given.topics),
        section=given.section,
        **dates,
    )


def _kept(found: Sequence[_Found], visible: Collection[str]) -> Legs:
    """The legs of all models as one, without what cannot be seen."""
    merged = Legs()
    for one in found:
        dense = (each for each in one.legs.dense if each.chunk_id in visible)
        sparse = (each for each in one.legs.sparse if each.chunk_id in visible)
        merged = replace(merged, dense=(*merged.dense, *dense), sparse=(*merged.sparse, *sparse))
    if len(found) == 1:
        return merged
    return Legs(
        tuple(sorted(merged.dense, key=lambda each: (-each.score, each.chunk_id))),
        tuple(sorted(merged.sparse, key=lambda each: (-each.score, each.chunk_id))),
    )


def _passage(ranked: Ranked, row: asyncpg.Record) -> Passage:
    found = Passage(chunk=chunk_of(row), score=ranked.score)
    if ranked.dense is not None:
        found.dense_score = ranked.dense
    if ranked.sparse is not None:
        found.sparse_score = ranked.sparse
    return found
