"""Writes chunks until it is killed; a program of the crash test."""

import asyncio
import sys
from pathlib import Path

from index_cases import MODEL, chunk

from bos_chassis.telemetry import Telemetry
from bos_documents.index.embedded import EmbeddedIndex


async def main(folder: str) -> None:
    index = EmbeddedIndex(Path(folder), Telemetry.for_tests().logger("index"))
    for batch in range(10_000):
        first = 1 + batch * 20
        chunks = [chunk(n, f"word{n} common", n % 360) for n in range(first, first + 20)]
        await index.upsert("ann", MODEL, chunks)
        print(batch + 1, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
