"""Reading of many documents: pages a second, and memory as they grow in number.

    make bench NAME=ingest [DOCUMENTS=500]

The service is a process of its own with PostgreSQL, its parsers, its embedding model and its
index. Documents of two pages of prose come from one client, eight at a time: PDF, DOCX and text in
turns. A page of DOCX or text is what would fill one of the PDF. Time runs until every document can
be searched. Memory is that of the service without its parsers, which live for one document each;
theirs is the most that was seen of all at once.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import textwrap
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from documents_harness import READY
from documents_trials.service import real_documents
from sample_files import office
from sample_files.pdf import PdfPage, paragraph, pdf
from search_bench import sentence

from bos_documents.service import migrate_store
from bos_postgres import EmbeddedPostgres, create_database

if TYPE_CHECKING:
    from documents_trials.service import RealDocuments

PAGES = 2
SENTENCES = 20
"""Of a page: some 300 words."""
AT_ONCE = 8
STEPS = 5


def page_of(chance: random.Random) -> list[str]:
    """Sentences of one page."""
    return [sentence(chance) for _ in range(SENTENCES)]


def document(number: int) -> tuple[str, bytes]:
    """Name and content; every one is another."""
    chance = random.Random(number)  # noqa: S311
    pages = [page_of(chance) for _ in range(PAGES)]
    match number % 3:
        case 0:
            lines = [textwrap.wrap(" ".join(each), 90) for each in pages]
            return f"{number}.pdf", pdf([PdfPage(paragraph(each)) for each in lines])
        case 1:
            body = "".join(
                office.p(" ".join(each[at : at + 5]))
                for each in pages
                for at in range(0, SENTENCES, 5)
            )
            return f"{number}.docx", office.docx(body)
        case _:
            return f"{number}.txt", "\n\n".join(" ".join(each) for each in pages).encode()


def resident_mb(pid: int) -> float:
    """Resident memory now; 0 of a process that has ended."""
    with suppress(OSError, StopIteration):
        status = Path(f"/proc/{pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024
    return 0.0


def children(pid: int) -> list[int]:
    """Parsers of the service."""
    with suppress(OSError):
        return [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    return []


async def most_of_parsers(pid: int, seen: list[float]) -> None:
    """Watch what the parsers take together."""
    while True:
        seen.append(sum(resident_mb(child) for child in children(pid)))
        del seen[: seen.index(max(seen))]
        await asyncio.sleep(0.2)


async def read_all(service: RealDocuments, numbers: list[int]) -> None:
    """Upload documents, and wait until all can be searched."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with gate:
            name, content = document(number)
            uploaded = (await service.upload(content, name)).document
            found = await service.until_ended(uploaded.document_id)
            assert found.state == READY, found

    await asyncio.gather(*(one(number) for number in numbers))


async def bench(count: int, folder: Path, dsn: str) -> None:
    """All documents in steps."""
    async with real_documents(dsn, folder) as service:
        parsers: list[float] = [0.0]
        watch = asyncio.create_task(most_of_parsers(service.pid, parsers))
        try:
            print("| documents | pages a second | service | index on disk |\n|---|---|---|---|")
            print(f"| 0 | | {resident_mb(service.pid):,.0f} MB | |", flush=True)
            for first in range(0, count, max(1, count // STEPS)):
                numbers = list(range(first, min(count, first + max(1, count // STEPS))))
                began = time.perf_counter()
                await read_all(service, numbers)
                rate = len(numbers) * PAGES / (time.perf_counter() - began)
                index = [path for path in (folder / "index").rglob("*") if path.is_file()]
                disk = sum(path.stat().st_blocks * 512 for path in index) / 1e6
                memory = resident_mb(service.pid)
                row = f"{numbers[-1] + 1} | {rate:.1f} | {memory:,.0f} MB | {disk:,.0f} MB"
                print(f"| {row} |", flush=True)
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        print(f"Parsers took {max(parsers):,.0f} MB together at most.")


async def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=500)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bos-bench-") as name:
        folder = Path(name)
        async with EmbeddedPostgres(folder / "postgres") as server:
            dsn = await create_database(server.dsn(), "bench")
            await migrate_store(dsn)
            (folder / "service").mkdir()
            await bench(chosen.documents, folder / "service", dsn)


if __name__ == "__main__":
    asyncio.run(main())
