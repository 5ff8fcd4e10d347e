"""Search through the documents service, beside a plain client of the same engine.

    make bench NAME=documents [SIZES="1000 10000 100000"] [QUERIES=200]

The service is a process of its own with PostgreSQL, its embedding model and its index, called by
gRPC without rerank. The plain client embeds the same question with the same model, asks the same
engine for both legs with the texts in their payloads and fuses them by rank, in this process and
without a database. Both are asked in turns, so that other load on the machine falls on both. The
vectors of the first thousand texts are real; those of more texts are noise around them.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import qdrant_edge as engine
from documents_trials.service import real_documents

from bos.documents.v1 import SearchMode
from bos_chassis.telemetry import Telemetry
from bos_documents.context import VERSION
from bos_documents.embedding.local import LocalEmbedder
from bos_documents.index import embedded
from bos_documents.index.embedded import EmbeddedIndex
from bos_documents.index.port import IndexedChunk
from bos_documents.service import SCHEMA, migrate_store
from bos_postgres import EmbeddedPostgres, connect, create_database

USER = "local"
LIMIT = 20
REAL = 1_000
WORDS = 120
PER_DOCUMENT = 100
SUBJECTS = ("supplier", "carrier", "customer", "warehouse", "auditor", "driver", "inspector")
VERBS = ("delivers", "inspects", "returns", "stores", "repairs", "invoices", "refuses", "confirms")
OBJECTS = ("pallets", "orders", "pumps", "valves", "contracts", "engines", "samples", "vehicles")
CLAUSES = (
    "within five working days",
    "at its own expense",
    "after written notice",
    "unless the parties agree otherwise",
    "before the end of the quarter",
    "under the supervision of the plant",
    "as long as the warranty lasts",
    "without any further charge",
)


def sentence(chance: random.Random) -> str:
    """A sentence as contracts have them, with a number that few others hold."""
    who, does, what = (chance.choice(words) for words in (SUBJECTS, VERBS, OBJECTS))
    return f"The {who} {does} the {what} PX-{chance.randrange(100_000)} {chance.choice(CLAUSES)}."


def texts(count: int, seed: int) -> list[str]:
    """Passages of about ``WORDS`` words."""
    chance = random.Random(seed)  # noqa: S311
    found = []
    for _ in range(count):
        words: list[str] = []
        while len(words) < WORDS:
            words += sentence(chance).split()
        found.append(" ".join(words))
    return found


async def make_chunks(size: int, embedder: LocalEmbedder) -> list[IndexedChunk]:
    """Chunks with real vectors, then with noise around real ones."""
    contents = texts(size, 1)
    real = np.array(await embedder.embed_passages(contents[:REAL]), dtype=np.float64)
    noise = np.random.default_rng(1)
    chunks = []
    for number, content in enumerate(contents):
        vector = real[number % len(real)]
        if number >= len(real):
            vector = vector + noise.normal(scale=0.02, size=vector.shape)
            vector /= np.linalg.norm(vector)
        chunks.append(
            IndexedChunk(
                chunk_id=str(uuid.UUID(int=number + 1)),
                document_id=str(uuid.UUID(int=2**64 + number // PER_DOCUMENT)),
                dense=tuple(vector.tolist()),
                text=content,
            )
        )
    return chunks


class Plain:
    """The engine as its manual shows it, texts in the payloads."""

    def __init__(self, folder: Path, embedder: LocalEmbedder) -> None:
        folder.mkdir()
        self.shard = engine.EdgeShard.create(str(folder), embedded._config(embedder.dimension))
        self.bm25 = engine.Bm25()
        self.embedder = embedder

    def upsert(self, chunks: Sequence[IndexedChunk]) -> None:
        """Store chunks with their texts."""
        points = [
            engine.Point(
                each.chunk_id,
                {"dense": list(each.dense), "sparse": self.bm25.embed_document(each.text)},
                {"text": each.text},
            )
            for each in chunks
        ]
        self.shard.update(engine.UpdateOperation.upsert_points(points))
        self.shard.flush()

    async def search(self, question: str) -> list[str]:
        """Texts by reciprocal rank fusion of both legs."""
        vector = list(await self.embedder.embed_query(question))
        scores: dict[str, float] = {}
        found: dict[str, str] = {}
        for query in (
            engine.Query.Nearest(vector, using="dense"),
            engine.Query.Nearest(self.bm25.embed_query(question), using="sparse"),
        ):
            request = engine.QueryRequest(limit=50, query=query, with_payload=True)
            for rank, point in enumerate(self.shard.query(request), 1):
                scores[point.id] = scores.get(point.id, 0.0) + 1 / (60 + rank)
                found[point.id] = point.payload["text"]
        best = sorted(scores, key=lambda each: (-scores[each], str(each)))
        return [found[each] for each in best[:LIMIT]]


async def store_rows(dsn: str, chunks: Sequence[IndexedChunk], model: str) -> None:
    """What ingestion would have left in PostgreSQL."""
    documents = {each.document_id for each in chunks}
    async with connect(dsn, schema=SCHEMA) as connection:
        await connection.executemany(
            "INSERT INTO documents (document_id, user_id, digest, size_bytes, name, state, "
            "generation, serving, serving_chunks, model, page_count, chunks_total, chunks_indexed) "
            "VALUES ($1, $2, $3, 1, $4, 'ready', 1, 1, $5, $6, 1, $5, $5)",
            [
                (each, USER, uuid.UUID(each).bytes * 2, f"{each}.txt", PER_DOCUMENT, model)
                for each in sorted(documents)
            ],
        )
        await connection.copy_records_to_table(
            "chunks",
            records=[
                (
                    uuid.UUID(each.document_id),
                    1,
                    number % PER_DOCUMENT,
                    uuid.UUID(each.chunk_id),
                    USER,
                    each.text,
                    "text",
                    WORDS,
                    1,
                    1,
                    [],
                    0,
                    len(each.text),
                    None,
                    False,
                )
                for number, each in enumerate(chunks)
            ],
        )
        await connection.execute("ANALYZE")


async def timed(call: Callable[[], Awaitable[Any]], into: list[float]) -> Any:
    """Answer of the call, whose seconds are added."""
    began = time.perf_counter()
    answer = await call()
    into.append(time.perf_counter() - began)
    return answer


def show(what: str, seconds: list[float]) -> None:
    """Print p50 and p95 in milliseconds."""
    ordered = sorted(value * 1000 for value in seconds)
    p95 = ordered[int(len(ordered) * 0.95)]
    print(f"  {what:30} p50 {statistics.median(ordered):7.2f} ms   p95 {p95:7.2f} ms")


async def bench(size: int, queries: int, folder: Path, dsn: str) -> None:
    """One size."""
    embedder = LocalEmbedder()
    chunks = await make_chunks(size, embedder)
    model = f"{embedder.model}/{VERSION}"
    await store_rows(dsn, chunks, model)
    index = EmbeddedIndex(folder / "index", Telemetry.for_tests().logger("bench"))
    plain = Plain(folder / "plain", embedder)
    for first in range(0, size, 64):
        await index.upsert(USER, model, chunks[first : first + 64])
        plain.upsert(chunks[first : first + 64])
    entries = [replace(each, chunk_id=each.document_id) for each in chunks[::PER_DOCUMENT]]
    for first in range(0, len(entries), 64):
        await index.upsert(USER, model, entries[first : first + 64])
    await index.close()
    ours: list[float] = []
    theirs: list[float] = []
    chance = random.Random(2)  # noqa: S311
    # As it is set by default; tests look for work far more often.
    async with real_documents(dsn, folder, poll_s="5", lease_s="60") as service:
        meant = await service.search(sentence(chance), mode=SearchMode.SEARCH_MODE_DENSE)
        assert all(each.HasField("dense_score") for each in meant.passages), "by words alone"
        for number in range(queries + 20):
            if number == 20:  # the first ones open and load what later ones find open
                ours.clear()
                theirs.clear()
            question = sentence(chance)
            found = await timed(
                lambda q=question: service.search(q, limit=LIMIT),  # type: ignore[misc]
                ours,
            )
            other = await timed(lambda q=question: plain.search(q), theirs)  # type: ignore[misc]
            assert len(found.passages) == len(other) == LIMIT
    plain.shard.close()
    await embedder.close()
    print(f"{size} chunks")
    show("documents service", ours)
    show("plain client", theirs)
    print(f"  ratio at p50: {statistics.median(ours) / statistics.median(theirs):.2f}", flush=True)


async def main() -> None:
    """Run all sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--queries", type=int, default=200)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bos-bench-") as name:
        folder = Path(name)
        async with EmbeddedPostgres(folder / "postgres") as server:
            for size in chosen.sizes:
                dsn = await create_database(server.dsn(), f"bench_{size}")
                await migrate_store(dsn)
                (folder / str(size)).mkdir()
                await bench(size, chosen.queries, folder / str(size), dsn)


if __name__ == "__main__":
    asyncio.run(main())
