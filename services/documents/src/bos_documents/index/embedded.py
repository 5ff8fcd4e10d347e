"""Index in files of this machine: the Qdrant engine in this process.

One process owns the folder. Each user and embedding model has a shard, a folder of its own. There
is no write-ahead log: a write is complete when its call returns, and what is deleted is in no file
after the engine has rewritten its segments, which each delete does.

The engine holds Python's global lock while it works: for about a millisecond in a search, so that
it stays in this process, but for seconds in a rewrite, which has a process of its own.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import re
import shutil
import uuid
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import qdrant_edge as engine

from bos_chassis.deadlines import timeout_for
from bos_documents.index import encoding
from bos_documents.index.port import Legs, Scored
from bos_documents.index.rewriting import clear_leftovers, rewrite
from bos_errors import BosError, ConfigurationError, InvalidArgument, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from bos_documents.index.port import IndexedChunk, IndexFilter

R = TypeVar("R")

_LOCK: Final = "owner.lock"
_DELETING: Final = ".deleting"
_UPSERT_BATCH: Final = 32
"""Chunks stored at once; the event loop stands still for that long, 20 to 30 ms."""
_ROOM_TO_WRITE: Final = 64 << 20
"""Bytes free on the disk: the engine's write-ahead log takes 32 MiB of them."""
_ROOM_TO_OPEN: Final = 8 << 20
_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")
"""How the engine, which has one kind of error, names one of the operating system."""
_PASSING: Final = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.ENOMEM,
        errno.EMFILE,
        errno.ENFILE,
        errno.EACCES,
        errno.EROFS,
    }
)
"""Errors of the operating system that say nothing about an index."""
_NEW: Final = ".new-"
_GONE: Final = ".gone-"
_HNSW: Final = engine.HnswIndexConfig(
    m=16, ef_construct=100, full_scan_threshold=10_000, max_indexing_threads=1
)
# Segments are rewritten for a single deleted point: the defaults leave up to a fifth in the files.
# A rewrite also builds the graph of segments above the threshold, in kilobytes: 12 s for 10,000
# vectors, of which a plain scan takes 1 ms. None is built below 65,000 of 384 dimensions.
_OPTIMIZERS: Final = engine.EdgeOptimizersConfig(
    deleted_threshold=1e-9,
    vacuum_min_vector_number=1,
    default_segment_number=1,
    indexing_threshold=100_000,
)


class EmbeddedIndex:
    """Vector index in a folder; implements ``ChunkIndex``.

    The engine blocks, so that it runs in one thread of its own; a search in an open shard that
    would not have to wait for that thread runs at once.

    Args:
        folder: Where the shards are; created if it is missing.
        log: Reports shards that had to be given up.
        max_open: Shards kept open; the least recently used one is closed.
        timeout_s: Longest wait for a call, its place in the queue included.
        rewrite_timeout_s: Longest wait for a deletion, which rewrites a shard.
        max_waiting: Calls in the queue before others are turned away.
        language: Of stop words and stemming in the sparse vectors.

    Raises:
        ConfigurationError: another process uses the folder, or it cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        log: FilteringBoundLogger,
        *,
        max_open: int = 64,
        timeout_s: float = 60.0,
        rewrite_timeout_s: float = 300.0,
        max_waiting: int = 128,
        language: str = "english",
    ) -> None:
        self._folder = folder
        self._log = log
        self._max_open = max_open
        self._timeout_s = timeout_s
        self._rewrite_timeout_s = rewrite_timeout_s
        self._max_waiting = max_waiting
        self._waiting = 0
        self._closed = False
        self._bm25 = engine.Bm25(engine.Bm25Config(language=language))
        self._open: OrderedDict[Path, engine.EdgeShard] = OrderedDict()
        self._dimensions: dict[Path, int] = {}
        self._lock = _lock(folder)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="documents-index")
        for left in (*folder.glob(f"{_GONE}*"), *folder.glob(f"{_NEW}*")):
            shutil.rmtree(left, ignore_errors=True)

    @property
    def open_shards(self) -> int:
        """Shards open now."""
        return len(self._open)

    async def upsert(self, user_id: str, model: str, chunks: Sequence[IndexedChunk]) -> None:
        """Store chunks under their ids in the index of this model; replaces equal ids."""
        if chunks:
            await self._run(lambda: self._upsert(self._path(user_id, model), chunks))

    async def delete_document(self, user_id: str, document_id: str) -> None:
        """Remove a document's chunks, in the indexes of all models; nothing stays in a file."""
        chosen = engine.Filter(must=[_is(encoding.DOCUMENT, document_id)])
        await self._run(lambda: self._delete(self._paths(user_id), chosen), self._rewrite_timeout_s)

    async def delete_chunks(self, user_id: str, model: str, chunk_ids: Sequence[str]) -> None:
        """Remove chunks by id; ids that are not there are ignored."""
        if chunk_ids:
            chosen = engine.Filter(must=[engine.HasIdCondition(set(chunk_ids))])
            paths = [self._path(user_id, model)]
            await self._run(lambda: self._delete(paths, chosen), self._rewrite_timeout_s)

    async def delete_user(self, user_id: str) -> None:
        """Remove all chunks of a user, in the indexes of all models; nothing stays in a file."""
        await self._run(lambda: self._remove(self._user_path(user_id)))

    async def delete_model(self, user_id: str, model: str) -> None:
        """Remove the index of an embedding model that no longer serves."""
        await self._run(lambda: self._remove(self._path(user_id, model)))

    async def count(self, user_id: str, model: str, document_id: str | None = None) -> int:
        """Chunks of a user, or of one document of it."""
        conditions = [] if document_id is None else [_is(encoding.DOCUMENT, document_id)]
        request = engine.CountRequest(exact=True, filter=_filter(conditions))
        return await self._run(lambda: self._count(self._path(user_id, model), request))

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
        path = self._path(user_id, model)
        if path in self._open and not self._waiting and not self._closed:
            # The engine's thread is idle, and the engine would hold Python's global lock in it just
            # as long as here; the way there and back takes as long as a search in 1,000 chunks.
            with self._failures():
                return self._search(path, dense, text, filter, limit)
        return await self._run(lambda: self._search(path, dense, text, filter, limit))

    async def close(self) -> None:
        """Write what is buffered and release files and the folder."""
        if self._closed:
            return
        self._closed = True
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._close_all)
        self._thread.shutdown(wait=False)
        os.close(self._lock)

    async def _run(self, work: Callable[[], R], timeout_s: float | None = None) -> R:
        if self._closed:
            raise Unavailable("The document index is shutting down.", reason="INDEX_CLOSED")
        if self._waiting >= self._max_waiting:
            raise Unavailable(
                "The document index is busy; try again shortly.",
                reason="INDEX_OVERLOADED",
                retry_after_s=1.0,
            )
        self._waiting += 1
        future = self._thread.submit(work)
        # Work that has begun goes on after its caller left; it counts until it is done.
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: _call_soon(loop, self._done))
        with self._failures():
            try:
                async with asyncio.timeout(timeout_for(timeout_s, self._timeout_s)):
                    return await asyncio.wrap_future(future)
            except TimeoutError:
                raise Unavailable(
                    "The document index did not answer in time.", reason="INDEX_TIMEOUT"
                ) from None

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Log what the engine raises; callers learn that the index is unavailable."""
        try:
            yield
        except BosError:
            raise
        except Exception as error:
            self._log.warning("document index failed", error=type(error).__name__)
            raise Unavailable("The document index failed.", reason="INDEX_FAILED") from error

    def _done(self) -> None:
        self._waiting -= 1

    # What follows runs in the engine's thread, searches also where that is idle.

    def _upsert(self, path: Path, chunks: Sequence[IndexedChunk]) -> None:
        self._require_room(_ROOM_TO_WRITE)
        size = len(chunks[0].dense)
        shard = self._shard(path) or self._create(path, size)
        held = self._dimensions[path]
        if any(len(chunk.dense) != held for chunk in chunks):
            raise InvalidArgument(f"embeddings of this model must have {held} dimensions")
        points = [
            engine.Point(
                chunk.chunk_id,
                {
                    encoding.DENSE: list(chunk.dense),
                    encoding.SPARSE: self._bm25.embed_document(chunk.text),
                },
                encoding.payload_of(chunk),
            )
            for chunk in chunks
        ]
        for first in range(0, len(points), _UPSERT_BATCH):
            part = points[first : first + _UPSERT_BATCH]
            shard.update(engine.UpdateOperation.upsert_points(part))
        shard.flush()

    def _delete(self, paths: Iterable[Path], chosen: engine.Filter) -> None:
        for path in paths:
            shard = self._shard(path)
            if shard is None:
                continue
            # Stays until the rewrite is done, so that a deletion that broke off is completed.
            marker = path.with_suffix(_DELETING)
            if not marker.exists() and not shard.count(engine.CountRequest(filter=chosen)):
                continue
            marker.touch()
            shard.update(engine.UpdateOperation.delete_points_by_filter(chosen))
            shard.flush()
            self._close_shard(path)
            rewrite(path, self._lock, self._rewrite_timeout_s)
            marker.unlink()

    def _close_shard(self, path: Path) -> None:
        shard = self._open.pop(path)
        del self._dimensions[path]
        shard.flush()
        shard.close()

    def _remove(self, path: Path) -> None:
        for each in [open_ for open_ in self._open if open_ == path or path in open_.parents]:
            self._close_shard(each)
        if path.exists():
            path.rename(self._folder / f"{_GONE}{uuid.uuid4().hex}")
            path.with_suffix(_DELETING).unlink(missing_ok=True)
        for gone in self._folder.glob(f"{_GONE}*"):
            shutil.rmtree(gone)

    def _count(self, path: Path, request: engine.CountRequest) -> int:
        shard = self._shard(path)
        return 0 if shard is None else shard.count(request)

    def _search(
        self,
        path: Path,
        dense: Sequence[float] | None,
        text: str | None,
        filter: IndexFilter,
        limit: int,
    ) -> Legs:
        shard = self._shard(path)
        if shard is None:
            return Legs()
        chosen = _filter(_conditions(filter))
        legs: list[tuple[Scored, ...]] = []
        for vector, name in (
            (None if dense is None else list(dense), encoding.DENSE),
            (None if text is None else self._bm25.embed_query(text), encoding.SPARSE),
        ):
            if vector is None or (isinstance(vector, engine.SparseVector) and not vector.indices):
                legs.append(())
                continue
            query = engine.Query.Nearest(vector, using=name)
            legs.append(_best(shard, query, chosen, limit))
        return Legs(dense=legs[0], sparse=legs[1])

    def _shard(self, path: Path) -> engine.EdgeShard | None:
        """The shard at ``path``, opened if it is closed; None if there is none."""
        shard = self._open.get(path)
        if shard is None:
            if not path.exists():
                return None
            try:
                shard = self._load(path)
            except Exception as error:
                if _is_passing(error):
                    raise
                # PostgreSQL has it all: an index that cannot be read is built anew from there.
                self._log.warning("unreadable document index removed", error=type(error).__name__)
                self._remove(path)
                return None
        self._open.move_to_end(path)
        return shard

    def _create(self, path: Path, size: int) -> engine.EdgeShard:
        """A new shard, which appears under its name when it is complete."""
        new = self._folder / f"{_NEW}{uuid.uuid4().hex}"
        new.mkdir(parents=True)
        shard = engine.EdgeShard.create(str(new), _config(size))
        for name in encoding.KEYWORD_FIELDS:
            kind = engine.PayloadSchemaType.Keyword
            shard.update(engine.UpdateOperation.create_field_index(name, kind))
        for name in encoding.INTEGER_FIELDS:
            kind = engine.PayloadSchemaType.Integer
            shard.update(engine.UpdateOperation.create_field_index(name, kind))
        shard.flush()
        shard.close()
        path.parent.mkdir(parents=True, exist_ok=True)
        new.rename(path)
        return self._load(path)

    def _require_room(self, most: int) -> None:
        """Keep the engine from a full disk: it writes to mapped memory, which ends the process.

        Raises:
            Unavailable: The disk has less room than this.
        """
        if shutil.disk_usage(self._folder).free < most:
            raise Unavailable(
                "The disk of the document index is full.",
                reason="INDEX_DISK_FULL",
                retry_after_s=5.0,
            )

    def _load(self, path: Path) -> engine.EdgeShard:
        self._require_room(_ROOM_TO_OPEN)
        clear_leftovers(path)
        self._dimensions[path] = _dimension(path)
        shard = engine.EdgeShard.load(str(path), _config(self._dimensions[path]))
        self._open[path] = shard
        while len(self._open) > self._max_open:
            self._close_shard(next(iter(self._open)))
        return shard

    def _close_all(self) -> None:
        while self._open:
            self._close_shard(next(iter(self._open)))

    def _user_path(self, user_id: str) -> Path:
        return self._folder / encoding.safe_name(user_id)

    def _path(self, user_id: str, model: str) -> Path:
        return self._user_path(user_id) / encoding.safe_name(model)

    def _paths(self, user_id: str) -> list[Path]:
        user = self._user_path(user_id)
        return sorted(each for each in user.iterdir() if not each.suffix) if user.exists() else []


def _is_passing(error: Exception) -> bool:
    """Whether it says nothing about the index: the disk is full, or the process at its limits."""
    if isinstance(error, BosError):
        return True
    said = _OS_ERROR.search(str(error))
    number = error.errno if isinstance(error, OSError) else int(said[1]) if said else None
    return number in _PASSING


def _dimension(path: Path) -> int:
    """Length of the dense vectors that the shard at ``path`` takes, from the engine's own file."""
    config = json.loads((path / "edge_config.json").read_bytes())
    return int(config["vectors"][encoding.DENSE]["size"])


def _config(size: int) -> engine.EdgeConfig:
    return engine.EdgeConfig(
        vectors={encoding.DENSE: engine.EdgeVectorParams(size, engine.Distance.Cosine)},
        sparse_vectors={
            encoding.SPARSE: engine.EdgeSparseVectorParams(modifier=engine.Modifier.Idf)
        },
        hnsw_config=_HNSW,
        optimizers=_OPTIMIZERS,
        max_search_threads=1,
        wal_enabled=False,
    )


def _best(
    shard: engine.EdgeShard, query: engine.Query, chosen: engine.Filter | None, limit: int
) -> tuple[Scored, ...]:
    fetched = limit + encoding.TIES
    while True:
        points = shard.query(
            engine.QueryRequest(limit=fetched, query=query, filter=chosen, with_payload=False)
        )
        scores = [point.score for point in points]
        if not encoding.is_cut_in_a_tie(scores, limit, fetched):
            return encoding.best((Scored(str(p.id), p.score) for p in points), limit)
        fetched *= 4


def _is(field: str, value: str) -> engine.FieldCondition:
    return engine.FieldCondition(field, match=engine.MatchValue(value))


def _any(field: str, values: Sequence[str]) -> engine.FieldCondition:
    return engine.FieldCondition(field, match=engine.MatchAny(list(values)))


def _conditions(filter: IndexFilter) -> list[engine.FieldCondition]:
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
        bounds = engine.RangeFloat(gte=filter.date_from or 1, lte=filter.date_to or None)
        conditions.append(engine.FieldCondition(encoding.DATE, range=bounds))
    conditions += [_is(encoding.SECTION, word) for word in encoding.words_of(filter.section)]
    return conditions


def _filter(conditions: Sequence[engine.FieldCondition]) -> engine.Filter | None:
    return engine.Filter(must=list(conditions)) if conditions else None


def _lock(folder: Path) -> int:
    """Hold the folder for this process; the file's descriptor."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigurationError(
            f"the folder of the document index, {folder}, cannot be used: {error.strerror}"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "?"
        os.close(descriptor)
        raise ConfigurationError(
            f"the folder of the document index, {folder}, is in use by process {owner}: only one "
            "replica may own it; give each its own folder, or use a Qdrant server"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)
