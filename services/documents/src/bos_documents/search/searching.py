"""Searches in the documents of one user."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from bos.documents.v1 import DocumentMatch, Passage, SearchDocumentsResponse, SearchMode
from bos_documents.context import headings, in_context
from bos_documents.index.port import IndexFilter, Legs
from bos_documents.settings import RankBy
from bos_documents.store.rows import CHUNK_COLUMNS, chunk_of, number_of_date
from bos_errors import BosError, DeadlineExceeded, InvalidArgument
from bos_postgres import fetch, fetchval, for_user

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence

    import asyncpg

    from bos.documents.v1 import SearchDocumentsRequest, SearchFilter
    from bos_chassis.telemetry import Telemetry
    from bos_documents.metrics import DocumentsMetrics
    from bos_documents.search.ports import Ranked, Ranking, RemoveOrphans, SearchEngines
    from bos_documents.settings import DocumentsSettings

R = TypeVar("R")

_DEFAULT_LIMIT: Final = 20
_MAX_DOCUMENTS: Final = 10
"""Documents that a search shows by their descriptions."""
_HEAD_START_S: Final = 0.001
"""Of the embedding before words are looked up: an index in this process would take Python's global
lock first, and the model, which needs it but to begin and to end, would wait."""
_MAX_REPAIRS: Final = 16
"""Removals of orphaned vectors at once; what is left out is found again."""
_MODES: Final = {
    RankBy.DENSE: SearchMode.SEARCH_MODE_DENSE,
    RankBy.SPARSE: SearchMode.SEARCH_MODE_SPARSE,
    RankBy.RRF: SearchMode.SEARCH_MODE_RRF,
    RankBy.BLEND: SearchMode.SEARCH_MODE_BLEND,
}
_BY_MODE: Final = {mode: by for by, mode in _MODES.items()}
_OF_MODEL = for_user("""
SELECT EXISTS (SELECT FROM documents
               WHERE user_id = $1 AND model = $2 AND serving > 0 AND state <> 'deleting')
""")
# One statement, as each costs a round trip: passages, entries of documents, and how many documents
# there are by embedding model. A row of one kind has nothing in the columns of the others.
_VISIBLE = for_user(f"""
SELECT {CHUNK_COLUMNS}, NULL AS description, NULL AS model, NULL::bigint AS documents
FROM chunks AS c
JOIN documents AS d ON d.document_id = c.document_id AND d.serving = c.generation
WHERE c.user_id = $1 AND d.user_id = $1 AND c.chunk_id = ANY ($2) AND d.state <> 'deleting'
UNION ALL
SELECT NULL, d.document_id, d.name, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       d.document_type, NULL, NULL, d.description, NULL, NULL
FROM documents AS d
WHERE d.user_id = $1 AND d.document_id = ANY ($2) AND d.serving > 0 AND d.state <> 'deleting'
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, d.model, count(*)
FROM documents AS d
WHERE d.user_id = $1 AND d.serving > 0 AND d.state <> 'deleting' GROUP BY d.model
""")  # noqa: S608  our own text


@dataclass(frozen=True, slots=True)
class _Visible:
    """What may be shown of a point of the index."""

    row: asyncpg.Record
    text: str
    """As it was indexed."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a user may see by now of what was found, and what there is."""

    chunks: dict[str, _Visible]
    entries: dict[str, _Visible]
    """Of documents, by their ids."""
    documents: dict[str, int]
    """How many can be searched, by embedding model."""


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
        remove_orphans: Removes vectors that belong to no document.
        settings: Bounds.
        metrics: Times searches.
        telemetry: For the log, which holds no query.
    """

    def __init__(
        self,
        readers: asyncpg.Pool[asyncpg.Record],
        engines: SearchEngines,
        remove_orphans: RemoveOrphans,
        settings: DocumentsSettings,
        metrics: DocumentsMetrics,
        telemetry: Telemetry,
    ) -> None:
        self._readers = readers
        self._engines = engines
        self._remove_orphans = remove_orphans
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
        response = SearchDocumentsResponse(mode=_MODES[by])
        found, seen = await self._found(query, by, wanted, limit, user_id)
        response.documents_searched = sum(seen.documents.values())
        passages = self._ranked(found, by, query, seen.chunks, limit)
        response.coverage = passages.coverage
        for each in passages.passages:
            response.passages.append(_passage(each, seen.chunks[each.chunk_id].row))
        entries = self._ranked(
            found, by, query, seen.entries, _MAX_DOCUMENTS, coverage=passages.coverage
        )
        for each in entries.passages:
            response.documents.append(_document(each, seen.entries[each.chunk_id].row))
        return response

    async def _is_of_model(self, user_id: str) -> bool:
        """Whether documents of the user have vectors of the present model."""
        return bool(await fetchval(self._readers, _OF_MODEL, user_id, user_id, self._engines.model))

    async def _found(
        self,
        query: str,
        by: RankBy,
        wanted: IndexFilter,
        limit: int,
        user_id: str,
    ) -> tuple[list[_Found], _Seen]:
        """What each index found: that of the present model by both legs, others by words.

        Documents of a former model are indexed anew in the background; their vectors cannot be
        compared with a query of the present one.
        """
        present, embedder = self._engines.model, self._engines.embedder
        # Entries of documents stand between the chunks.
        most = max(limit + _MAX_DOCUMENTS, self._settings.candidates)
        search = partial(self._engines.index.search, user_id, filter=wanted)
        vector = None
        # A call of an endpoint may be paid for: not where its vector can find nothing.
        if by is not RankBy.SPARSE and (embedder.in_process or await self._is_of_model(user_id)):
            words = None if by is RankBy.DENSE else query

            async def looked_up() -> Legs:
                if words is None:
                    return Legs()
                await asyncio.sleep(_HEAD_START_S)
                return await search(present, dense=None, text=words, limit=most)

            # Words are looked up while the query is embedded, which takes longer.
            async with _beside(looked_up()) as by_words:
                vector = await embedder.embed_query(query)
                by_meaning = await search(present, dense=vector, text=None, limit=most)
                legs = Legs(by_meaning.dense, (await by_words).sparse)
        else:
            words = query
            legs = await search(present, dense=None, text=words, limit=most)
        found = [_Found(present, legs)]
        seen = await self._visible(found, user_id)
        if _is_crowded(legs, seen.entries.keys(), most, limit):
            more = most + sum(seen.documents.values())
            legs = await search(present, dense=vector, text=words, limit=more)
            found = [_Found(present, legs)]
            seen = await self._visible(found, user_id)
        if others := sorted(seen.documents.keys() - {present}):
            # In every mode: by words alone where the vectors are of another model.
            for model in others:
                legs = await search(model, dense=None, text=query, limit=most)
                found.append(_Found(model, legs))
            seen = await self._visible(found, user_id)
        return found, seen

    def _ranked(
        self,
        found: Sequence[_Found],
        by: RankBy,
        query: str,
        visible: Mapping[str, _Visible],
        limit: int,
        coverage: float | None = None,
    ) -> Ranking:
        """One ranking of what may be seen."""
        texts = {point_id: each.text for point_id, each in visible.items()}
        legs = _kept(found, texts.keys())
        return self._engines.ranker(
            legs, by, query=query, texts=texts, limit=limit, coverage=coverage
        )

    async def _visible(self, found: Sequence[_Found], user_id: str) -> _Seen:
        ids = {each.chunk_id for one in found for each in (*one.legs.dense, *one.legs.sparse)}
        rows = await fetch(self._readers, _VISIBLE, user_id, user_id, list(ids))
        seen = _Seen({}, {}, {})
        above: dict[tuple[str, ...], str] = {}
        for row in rows:
            if row["chunk_id"] is not None:
                place = (row["name"], *row["section_path"])
                if place not in above:
                    above[place] = headings(*place)
                text = f"{above[place]}\n{row['content']}"
                seen.chunks[str(row["chunk_id"])] = _Visible(row, text)
            elif row["document_id"] is not None:
                text = in_context(row["name"], (), row["description"])
                seen.entries[str(row["document_id"])] = _Visible(row, text)
            else:
                seen.documents[row["model"]] = row["documents"]
        for one in found:
            hits = {each.chunk_id for each in (*one.legs.dense, *one.legs.sparse)}
            if unseen := hits - seen.chunks.keys() - seen.entries.keys():
                self._repair(user_id, one.model, [UUID(each) for each in unseen])
        return seen

    def _repair(self, user_id: str, model: str, chunk_ids: Sequence[UUID]) -> None:
        """Remove, beside the search, those that belong to no reading at all."""
        if len(self._repairs) >= _MAX_REPAIRS:
            return
        task = asyncio.create_task(self._removed(user_id, model, chunk_ids), name="orphans")
        self._repairs.add(task)
        task.add_done_callback(self._repairs.discard)

    async def _removed(self, user_id: str, model: str, chunk_ids: Sequence[UUID]) -> None:
        try:
            await self._remove_orphans(user_id, model, chunk_ids)
        except BosError as error:
            self._log.info("orphans not removed", error=error.reason)
        except Exception:
            self._log.exception("orphans not removed")


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, R]) -> AsyncIterator[asyncio.Task[R]]:
    """Run ``work`` beside the block, which awaits it; cancelled where the block fails before."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # retrieved, where the block's own error comes first


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


def _is_crowded(legs: Legs, entries: Collection[str], most: int, limit: int) -> bool:
    """Whether entries of documents took places in a leg that passages are short of."""
    return any(
        len(leg) == most and sum(each.chunk_id not in entries for each in leg) < limit
        for leg in (legs.dense, legs.sparse)
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


def _document(ranked: Ranked, row: asyncpg.Record) -> DocumentMatch:
    return DocumentMatch(
        document_id=str(row["document_id"]),
        document_name=row["name"],
        document_type=row["document_type"],
        description=row["description"],
        score=ranked.score,
    )


def _passage(ranked: Ranked, row: asyncpg.Record) -> Passage:
    found = Passage(chunk=chunk_of(row), score=ranked.score)
    if ranked.dense is not None:
        found.dense_score = ranked.dense
    if ranked.sparse is not None:
        found.sparse_score = ranked.sparse
    return found
