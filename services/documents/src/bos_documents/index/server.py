"""Index on a Qdrant server.

HTTP by default: one port, works through proxies, and cancelled calls leave nothing behind in the
client. gRPC is a setting; vectors travel faster by it, but embedding them takes far longer.
"""

from __future__ import annotations

import asyncio
import math
import warnings
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, TypeVar

import qdrant_edge
from pydantic import SecretStr
from qdrant_client import AsyncQdrantClient
from qdrant_client import models as api
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from bos_chassis.deadlines import timeout_for
from bos_documents.index import encoding
from bos_documents.index.port import IndexedChunk, IndexFilter, Legs, Scored
from bos_errors import FailedPrecondition, InvalidArgument, Unavailable

R = TypeVar("R")

Layout = Literal["collection_per_user", "tenant_key"]
_SHARED_PREFIX: Final = "documents_"
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_REFUSED: Final = frozenset((401, 403))
_BUSY: Final = frozenset((408, 425, 429))
_SERVER_ERROR: Final = 500
# Segments are rewritten when few points in them are deleted; the server takes no smaller number.
_OPTIMIZERS: Final = api.OptimizersConfigDiff(deleted_threshold=0.01, vacuum_min_vector_number=100)


def connect(
    url: str, api_key: SecretStr | None, *, timeout_s: float = 10.0, grpc: bool = False
) -> AsyncQdrantClient:
    """A client of the server at ``url``; nothing is sent yet."""
    with warnings.catch_warnings():
        # A key over plain HTTP is the operator's choice, such as inside of a cluster.
        warnings.filterwarnings("ignore", message="Api key is used with an insecure connection")
        return AsyncQdrantClient(
            url=url,
            api_key=None if api_key is None else api_key.get_secret_value(),
            timeout=math.ceil(timeout_s),
            prefer_grpc=grpc,
            check_compatibility=False,
        )


class ServerIndex:
    """Vector index on a Qdrant server; implements ``ChunkIndex``.

    Args:
        client: The server; closed with the index.
        layout: A collection per user and model, or one per model whose points bear the user.
        replicas: Copies of each collection on the nodes of a cluster.
        timeout_s: Longest wait for a call.
        language: Of stop words and stemming in the sparse vectors.
    """

    def __init__(
        self,
        client: AsyncQdrantClient,
        *,
        layout: Layout = "collection_per_user",
        replicas: int = 1,
        timeout_s: float = 10.0,
        language: str = "english",
    ) -> None:
        self._client = client
        self._shared = layout == "tenant_key"
        self._replicas = replicas
        self._timeout_s = timeout_s
        self._bm25 = qdrant_edge.Bm25(qdrant_edge.Bm25Config(language=language))
        self._ready: set[str] = set()

    async def upsert(self, user_id: str, model: str, chunks: Sequence[IndexedChunk]) -> None:
        """Store chunks under their ids in the index of this model; replaces equal ids."""
        if not chunks:
            return
        size = len(chunks[0].dense)
        if any(len(chunk.dense) != size for chunk in chunks):
            raise InvalidArgument(f"embeddings of this model must have {size} dimensions")
        name = self._collection(user_id, model)
        owner = {encoding.USER: encoding.safe_name(user_id)} if self._shared else {}
        points = [
            api.PointStruct(
                id=chunk.chunk_id,
                vector={
                    encoding.DENSE: list(chunk.dense),
                    encoding.SPARSE: _sparse(self._bm25.embed_document(chunk.text)),
                },
                payload={**encoding.payload_of(chunk), **owner},
            )
            for chunk in chunks
        ]

        async def work() -> None:
            await self._prepare(name, size)
            if await self._unless_missing(name, self._client.upsert(name, points, wait=True)):
                return
            # The collection went away, as when the user's data was deleted by another replica.
            await self._prepare(name, size)
            await self._client.upsert(name, points, wait=True)

        await self._call(work)

    async def delete_document(self, user_id: str, document_id: str) -> None:
        """Remove a document's chunks, in the indexes of all models."""
        await self._delete_from_all(user_id, [_is(encoding.DOCUMENT, document_id)])

    async def delete_chunks(self, user_id: str, model: str, chunk_ids: Sequence[str]) -> None:
        """Remove chunks by id; ids that are not there are ignored."""
        if not chunk_ids:
            return
        name = self._collection(user_id, model)
        chosen = self._filter(user_id, [api.HasIdCondition(has_id=list(chunk_ids))])
        await self._call(lambda: self._delete(name, chosen))

    async def delete_user(self, user_id: str) -> None:
        """Remove all chunks of a user, in the indexes of all models."""
        if self._shared:
            await self._delete_from_all(user_id, [])
            return

        async def work() -> None:
            for name in await self._collections(user_id):
                await self._drop(name)

        await self._call(work)

    async def delete_model(self, user_id: str, model: str) -> None:
        """Remove the index of an embedding model that no longer serves."""
        name = self._collection(user_id, model)
        if self._shared:
            await self._call(lambda: self._delete(name, self._filter(user_id, [])))
        else:
            await self._call(lambda: self._drop(name))

    async def count(self, user_id: str, model: str, document_id: str | None = None) -> int:
        """Chunks of a user, or of one document of it."""
        name = self._collection(user_id, model)
        conditions = [] if document_id is None else [_is(encoding.DOCUMENT, document_id)]
        chosen = self._filter(user_id, conditions)

        async def work() -> int:
            request = self._client.count(name, count_filter=chosen, exact=True)
            found = await self._unless_missing(name, request)
            return 0 if found is None else found.count

        return await self._call(work)

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
        name = self._collection(user_id, model)
        chosen = self._filter(user_id, _conditions(filter))
        sparse = None if text is None else _sparse(self._bm25.embed_query(text))
        # In a shared collection words are as rare as they are among the user's own chunks.
        idf = api.IdfCorpusParams(corpus=self._filter(user_id, [])) if self._shared else None

        async def work() -> Legs:
            by_meaning, by_words = await asyncio.gather(
                self._best(name, list(dense) if dense else None, encoding.DENSE, chosen, limit),
                self._best(
                    name,
                    sparse if sparse and sparse.indices else None,
                    encoding.SPARSE,
                    chosen,
                    limit,
                    api.SearchParams(idf=idf) if idf else None,
                ),
            )
            return Legs(dense=by_meaning, sparse=by_words)

        return await self._call(work)

    async def close(self) -> None:
        """Release connections."""
        await self._client.close()

    async def _call(self, work: Callable[[], Awaitable[R]]) -> R:
        try:
            async with asyncio.timeout(timeout_for(None, self._timeout_s)):
                return await work()
        except TimeoutError:
            raise Unavailable(
                "The document index did not answer in time.", reason="INDEX_TIMEOUT"
            ) from None
        except UnexpectedResponse as error:
            raise _failure(error.status_code) from error
        except ResponseHandlingException as error:
            raise Unavailable(
                "The document index cannot be reached.", reason="INDEX_UNREACHABLE"
            ) from error

    async def _best(
        self,
        name: str,
        vector: list[float] | api.SparseVector | None,
        using: str,
        chosen: api.Filter | None,
        limit: int,
        params: api.SearchParams | None = None,
    ) -> tuple[Scored, ...]:
        if vector is None:
            return ()
        fetched = limit + encoding.TIES
        while True:
            request = self._client.query_points(
                name,
                query=vector,
                using=using,
                query_filter=chosen,
                search_params=params,
                limit=fetched,
                with_payload=False,
            )
            found = await self._unless_missing(name, request)
            points = [] if found is None else found.points
            if not encoding.is_cut_in_a_tie([p.score for p in points], limit, fetched):
                return encoding.best((Scored(str(p.id), p.score) for p in points), limit)
            fetched *= 4

    async def _delete_from_all(self, user_id: str, conditions: list[Any]) -> None:
        chosen = self._filter(user_id, conditions)

        async def work() -> None:
            for name in await self._collections(user_id):
                await self._delete(name, chosen)

        await self._call(work)

    async def _delete(self, name: str, chosen: api.Filter | None) -> None:
        selector = api.FilterSelector(filter=chosen or api.Filter())
        await self._unless_missing(name, self._client.delete(name, selector, wait=True))

    async def _drop(self, name: str) -> None:
        self._ready.discard(name)
        await self._unless_missing(name, self._client.delete_collection(name))

    async def _prepare(self, name: str, size: int) -> None:
        """Create the collection and its payload indexes unless this process has seen them."""
        if name in self._ready:
            return
        if not await self._client.collection_exists(name):
            await self._create(name, size)
        fields: list[tuple[str, Any]] = [
            *((each, api.PayloadSchemaType.KEYWORD) for each in encoding.KEYWORD_FIELDS),
            *((each, api.PayloadSchemaType.INTEGER) for each in encoding.INTEGER_FIELDS),
        ]
        if self._shared:
            tenant = api.KeywordIndexParams(type=api.KeywordIndexType.KEYWORD, is_tenant=True)
            fields.append((encoding.USER, tenant))
        for field, schema in fields:
            await self._client.create_payload_index(name, field, schema, wait=True)
        self._ready.add(name)

    async def _create(self, name: str, size: int) -> None:
        # One graph per tenant, none over all of them.
        hnsw = api.HnswConfigDiff(m=0, payload_m=16) if self._shared else None
        try:
            await self._client.create_collection(
                name,
                vectors_config={
                    encoding.DENSE: api.VectorParams(size=size, distance=api.Distance.COSINE)
                },
                sparse_vectors_config={
                    encoding.SPARSE: api.SparseVectorParams(modifier=api.Modifier.IDF)
                },
                hnsw_config=hnsw,
                # Writes go on while a node is down; PostgreSQL mends what that node then lacks.
                replication_factor=self._replicas,
                write_consistency_factor=1,
                optimizers_config=_OPTIMIZERS,
            )
        except (UnexpectedResponse, ResponseHandlingException):
            # With a node down this may time out and have happened; another replica may be first.
            if not await self._client.collection_exists(name):
                raise

    async def _unless_missing(self, name: str, request: Awaitable[R]) -> R | None:
        """The reply; None if there is no such collection."""
        try:
            return await request
        except UnexpectedResponse as error:
            if error.status_code != _NOT_FOUND:
                raise
        except ValueError as error:
            # What the client's local mode raises.
            if "not found" not in str(error):
                raise
        self._ready.discard(name)
        return None

    async def _collections(self, user_id: str) -> list[str]:
        prefix = _SHARED_PREFIX if self._shared else encoding.collection_prefix(user_id)
        found = await self._client.get_collections()
        return sorted(each.name for each in found.collections if each.name.startswith(prefix))

    def _collection(self, user_id: str, model: str) -> str:
        prefix = _SHARED_PREFIX if self._shared else encoding.collection_prefix(user_id)
        return prefix + encoding.model_suffix(model)

    def _filter(self, user_id: str, conditions: Sequence[Any]) -> api.Filter | None:
        owner = [_is(encoding.USER, encoding.safe_name(user_id))] if self._shared else []
        return api.Filter(must=[*owner, *conditions]) if owner or conditions else None


def _failure(status: int | None) -> Exception:
    if status in _REFUSED:
        return FailedPrecondition(
            "The document index refuses the service's key; set BOS_DOCUMENTS_QDRANT_API_KEY.",
            reason="INDEX_REFUSED",
        )
    if status is None or status in _BUSY or status >= _SERVER_ERROR or status == _CONFLICT:
        return Unavailable("The document index failed.", reason="INDEX_FAILED")
    return FailedPrecondition(
        f"The document index does not accept the request (HTTP {status}).", reason="INDEX_REJECTED"
    )


def _sparse(vector: qdrant_edge.SparseVector) -> api.SparseVector:
    return api.SparseVector(indices=vector.indices, values=vector.values)


def _is(field: str, value: str) -> api.FieldCondition:
    return api.FieldCondition(key=field, match=api.MatchValue(value=value))


def _any(field: str, values: Sequence[str]) -> api.FieldCondition:
    return api.FieldCondition(key=field, match=api.MatchAny(any=list(values)))


def _conditions(filter: IndexFilter) -> list[api.FieldCondition]:
    conditions = []
    if filter.document_ids:
        conditions.append(_any(encoding.DOCUMENT, filter.document_ids))
    if filter.document_types:
        types = [encoding.digest(each) for each in filter.document_types]
        conditions.append(_any(encoding.DOCUMENT_TYPE, types))
    if filter.topics:
        topics = [encoding.digest(each) for each in filter.topics]
        conditions.append(_any(encoding.TOPICS, topics))
    if filter.date_from or filter.date_to:
        bounds = api.Range(gte=filter.date_from or 1, lte=filter.date_to or None)
        conditions.append(api.FieldCondition(key=encoding.DATE, range=bounds))
    conditions += [_is(encoding.SECTION, word) for word in encoding.words_of(filter.section)]
    return conditions
