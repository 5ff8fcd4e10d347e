"""Layouts of the index on a Qdrant server, by number of users: times, memory, disk.

    python services/documents/bench/tenant_bench.py --url http://127.0.0.1:6333 --users 10 1000

Users have a few chunks each, of noise, and search their own. Deletes the collections of documents
that the server holds. With ``--pid`` the server's resident memory is shown; ``--folder`` is its
storage. Ratios count, not milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

from index_bench import MODEL, make_chunks

from bos_documents.index.port import IndexedChunk, IndexFilter
from bos_documents.index.server import ServerIndex, connect
from bos_errors import BosError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bos_documents.index.server import Layout

LIMIT = 20
AT_ONCE = 8
"""Users that write at the same time; searches come one by one."""
POOL = 1_000
"""Different chunks; users share them under other ids."""


def milliseconds(seconds: list[float]) -> str:
    """p50 and p95."""
    ordered = sorted(each * 1000 for each in seconds)
    return f"p50 {statistics.median(ordered):7.2f} p95 {ordered[int(len(ordered) * 0.95)]:8.2f} ms"


def resident_mib(pid: int | None) -> str:
    """Resident memory of the server, from the process table."""
    if pid is None:
        return "-"
    status = Path(f"/proc/{pid}/status").read_text()
    kib = next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]
    return f"{int(kib) / 1024:,.0f} MiB"


def disk_mib(folder: Path | None) -> str:
    """Disk blocks under the server's storage folder."""
    if folder is None:
        return "-"
    blocks = sum(each.stat().st_blocks for each in folder.rglob("*") if each.is_file())
    return f"{blocks * 512 / 2**20:,.0f} MiB"


async def timed(
    work: Callable[[int], Awaitable[object]], numbers: list[int], at_once: int
) -> list[float]:
    """Seconds that each call took; as many at once."""
    gate, taken = asyncio.Semaphore(at_once), []

    async def one(number: int) -> None:
        async with gate:
            began = time.perf_counter()
            await work(number)
            taken.append(time.perf_counter() - began)

    for first in range(0, len(numbers), 1000):
        await asyncio.gather(*(one(number) for number in numbers[first : first + 1000]))
    return taken


async def run(arguments: argparse.Namespace, layout: Layout, users: int) -> None:
    """One layout with one number of users."""
    client = connect(arguments.url, None)
    for each in (await client.get_collections()).collections:
        await client.delete_collection(each.name)
    index = ServerIndex(client, layout=layout, timeout_s=60)
    chunks, rand = make_chunks(POOL, seed=1), random.Random(2)  # noqa: S311

    def of(user: int) -> list[IndexedChunk]:
        start = user * arguments.chunks
        return [
            IndexedChunk(
                f"{start + n + 1:032x}", f"{user + 1:032x}", each.dense, each.text, section="Part 1"
            )
            for n, each in enumerate(rand.sample(chunks, arguments.chunks))
        ]

    async def write(user: int) -> None:
        await index.upsert(f"user-{user}", MODEL, of(user))

    async def search(user: int) -> None:
        asked = rand.choice(chunks)
        legs = await index.search(
            f"user-{user}",
            MODEL,
            dense=asked.dense,
            text=asked.text[:60],
            filter=IndexFilter(),
            limit=LIMIT,
        )
        assert len(legs.dense) == min(LIMIT, arguments.chunks)

    began, written = time.perf_counter(), 0

    async def counted(user: int) -> None:
        nonlocal written
        await write(user)
        written += 1

    try:
        writes = await timed(counted, list(range(users)), AT_ONCE)
    except BosError as error:
        print(f"| {layout} | {users:,} | ended after {written:,} users: {error} |", flush=True)
        raise SystemExit(1) from error
    whole = time.perf_counter() - began
    searches = await timed(search, rand.choices(range(users), k=arguments.queries), 1)
    memory, disk = resident_mib(arguments.pid), disk_mib(arguments.folder)
    times = f"{milliseconds(writes)} | {milliseconds(searches)}"
    print(f"| {layout} | {users:,} | {whole:,.1f} s | {times} | {memory} | {disk} |", flush=True)
    await index.close()


async def main() -> None:
    """Run all sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:6333")
    parser.add_argument("--layout", default="collection_per_user")
    parser.add_argument("--users", type=int, nargs="+", default=[10, 1_000])
    parser.add_argument("--chunks", type=int, default=5)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--pid", type=int)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    print(f"Each user has {arguments.chunks} chunks.\n")
    print("| layout | users | filled in | write | search | memory | disk |")
    print("|---|---|---|---|---|---|---|")
    for users in arguments.users:
        await run(arguments, arguments.layout, users)


if __name__ == "__main__":
    asyncio.run(main())
