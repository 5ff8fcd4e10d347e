"""Index and query times at several sizes, beside a plain client of the same engine.

    python services/documents/bench/index_bench.py [--sizes 1000 10000] [--queries 200]

Vectors are noise, texts random words of a skewed vocabulary. Both sides ask for 20 per leg, in
turns, so that other load on the machine falls on both. Ratios count, not milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import statistics
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import qdrant_edge as engine

from bos_chassis.telemetry import Telemetry
from bos_documents.embedding.local import LocalEmbedder
from bos_documents.index import embedded
from bos_documents.index.embedded import EmbeddedIndex
from bos_documents.index.port import IndexedChunk, IndexFilter

DIMENSION = 384
BATCH = 64
LIMIT = 20
MODEL = "bench@1"
VOCABULARY = [f"word{n}" for n in range(20_000)]
WEIGHTS = [1 / (n + 5) for n in range(len(VOCABULARY))]


def make_chunks(count: int, seed: int) -> list[IndexedChunk]:
    """Chunks of 200 words, ten to a document."""
    rng = np.random.default_rng(seed)
    rand = random.Random(seed)  # noqa: S311
    vectors = rng.normal(size=(count, DIMENSION))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return [
        IndexedChunk(
            chunk_id=str(uuid.UUID(int=n + 1)),
            document_id=str(uuid.UUID(int=n // 10 + 1)),
            dense=tuple(vector),
            text=" ".join(rand.choices(VOCABULARY, WEIGHTS, k=200)),
            document_type=("contract", "policy", "price list")[n % 3],
            document_date=20240101 + n % 28,
            topics=(f"topic{n % 50}",),
            section=f"Part {n % 20}",
        )
        for n, vector in enumerate(vectors.tolist())
    ]


def show(what: str, seconds: list[float], per: int = 1) -> None:
    """Print p50 and p95 in milliseconds."""
    ordered = sorted(value * 1000 / per for value in seconds)
    p95 = ordered[int(len(ordered) * 0.95)]
    print(f"  {what:44} p50 {statistics.median(ordered):8.2f} ms   p95 {p95:8.2f} ms")


class Plain:
    """The engine as its manual shows it, in the calling thread."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.shard = engine.EdgeShard.create(str(folder), embedded._config(DIMENSION))
        self.bm25 = engine.Bm25()

    def upsert(self, chunks: list[IndexedChunk]) -> None:
        """Store chunks without a payload."""
        points = [
            engine.Point(
                each.chunk_id,
                {"dense": list(each.dense), "sparse": self.bm25.embed_document(each.text)},
                {},
            )
            for each in chunks
        ]
        self.shard.update(engine.UpdateOperation.upsert_points(points))
        self.shard.flush()

    def search(self, dense: list[float], text: str) -> None:
        """Both legs."""
        for vector, using in ((dense, "dense"), (self.bm25.embed_query(text), "sparse")):
            query = engine.Query.Nearest(vector, using=using)
            self.shard.query(engine.QueryRequest(limit=LIMIT, query=query))


async def bench_index(size: int, queries: int, folder: Path) -> None:
    """One size."""
    print(f"{size} chunks, {DIMENSION} dimensions")
    chunks = make_chunks(size, 1)
    questions = [(each.dense, " ".join(each.text.split()[:6])) for each in make_chunks(queries, 2)]
    index = EmbeddedIndex(folder / "ours", Telemetry.for_tests().logger("bench"))
    plain = Plain(folder / "plain")
    times: dict[str, list[float]] = {}

    async def timed(name: str, call: Any) -> None:
        began = time.perf_counter()
        result = call()
        if asyncio.iscoroutine(result):
            await result
        times.setdefault(name, []).append(time.perf_counter() - began)

    for first in range(0, size, BATCH):
        batch = chunks[first : first + BATCH]
        await timed("upsert", lambda batch=batch: index.upsert("ann", MODEL, batch))
        await timed("plain upsert", lambda batch=batch: plain.upsert(batch))
    filters = {
        "search": IndexFilter(),
        "search, filter on type": IndexFilter(document_types=("contract",)),
        "search, filter on topic and date": IndexFilter(topics=("topic7",), date_from=20240110),
    }
    for dense, text in questions:
        for name, chosen in filters.items():
            await timed(
                name,
                lambda dense=dense, text=text, chosen=chosen: index.search(
                    "ann", MODEL, dense=dense, text=text, filter=chosen, limit=LIMIT
                ),
            )
        await timed("plain search", lambda dense=dense, text=text: plain.search(list(dense), text))
    for number in range(1, 6):
        document = str(uuid.UUID(int=number))
        await timed(
            "delete a document of 10 chunks", lambda d=document: index.delete_document("ann", d)
        )
    for name, seconds in times.items():
        show(f"{name} ({BATCH} chunks)" if "upsert" in name else name, seconds)
    ratio = statistics.median(times["search"]) / statistics.median(times["plain search"])
    print(f"  search / plain search at p50: {ratio:.2f}")
    await index.close()
    plain.shard.close()


async def bench_shards(users: int, folder: Path) -> None:
    """Opening shards of many users, of which few stay open."""
    index = EmbeddedIndex(folder / "many", Telemetry.for_tests().logger("bench"), max_open=16)
    chunks = make_chunks(20, 3)
    created, opened = [], []
    for number in range(users):
        began = time.perf_counter()
        await index.upsert(f"user{number}", MODEL, chunks)
        created.append(time.perf_counter() - began)
    for number in range(users):
        began = time.perf_counter()
        await index.count(f"user{number}", MODEL)
        opened.append(time.perf_counter() - began)
    print(f"{users} users of 20 chunks, 16 shards open")
    show("first upsert of a user", created)
    show("count in a closed shard", opened)
    files = [path for path in (folder / "many").rglob("*") if path.is_file()]
    used = sum(path.stat().st_blocks * 512 for path in files)
    print(f"  {len(files) / users:.0f} files and {used / users / 1024:.0f} KiB a user")
    await index.close()


async def bench_embedding() -> None:
    """The shipped model."""
    embedder = LocalEmbedder()
    began = time.perf_counter()
    await embedder.embed_query("load")
    print(f"embedding: load and first query {time.perf_counter() - began:.2f} s")
    rand = random.Random(4)  # noqa: S311
    english = [
        "the",
        "supplier",
        "shall",
        "deliver",
        "goods",
        "within",
        "thirty",
        "days",
        "of",
        "order",
        "or",
        "pay",
        "a",
        "penalty",
    ]
    for tokens in (60, 250, 384, 1000):
        texts = [" ".join(rand.choices(english, k=tokens)) for _ in range(32)]
        began = time.perf_counter()
        await embedder.embed_passages(texts)
        print(
            f"  passages of {tokens:4} tokens: {32 / (time.perf_counter() - began):7.1f} a second"
        )
    alone = []
    for _ in range(100):
        began = time.perf_counter()
        await embedder.embed_query(" ".join(rand.choices(english, k=10)))
        alone.append(time.perf_counter() - began)
    show("query of 10 words", alone)
    load = asyncio.create_task(embedder.embed_passages([" ".join(english * 30)] * 400))
    beside = []
    while len(beside) < 50 and not load.done():
        began = time.perf_counter()
        await embedder.embed_query(" ".join(rand.choices(english, k=10)))
        beside.append(time.perf_counter() - began)
    load.cancel()
    await asyncio.gather(load, return_exceptions=True)
    show("query of 10 words while passages are embedded", beside)
    await embedder.close()


async def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1000, 10_000])
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--users", type=int, default=50)
    chosen = parser.parse_args()
    for size in chosen.sizes:
        folder = Path(tempfile.mkdtemp(prefix="bos-bench-"))
        try:
            await bench_index(size, chosen.queries, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix="bos-bench-"))
    try:
        await bench_shards(chosen.users, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    await bench_embedding()


if __name__ == "__main__":
    asyncio.run(main())
