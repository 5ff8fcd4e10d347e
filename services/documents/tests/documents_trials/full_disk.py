"""The documents service on file systems that fill up.

    unshare --mount python -m documents_trials.full_disk DSN FOLDER

Runs in a mount namespace of its own, where it mounts a small file system for each folder of the
service. Prints one line for each folder once what it says held.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from documents_harness import READY

from bos_errors import BosError, Unavailable
from bos_testkit.waiting import eventually
from documents_trials.service import RealDocuments, real_documents

SIZE = "160m"
"""More than twice the room that the index wants to write."""
FOLDERS = ("spool", "files", "index")
KEPT = "The apples of the old orchard cost five."


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """The file system of a folder has no byte left for the length of the block."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as out, suppress(OSError):
        while True:
            out.write(b"x" * 65_536)
    with filler.open("ab", buffering=0) as out, suppress(OSError):
        while True:
            out.write(b"x")
    try:
        yield
    finally:
        filler.unlink()


def new_text(name: str) -> bytes:
    """A document larger than a block, so that the disk is full."""
    return f"The pears of the {name} orchard.".encode() + b" More pears." * 1_000


async def try_upload(service: RealDocuments, name: str) -> None:
    """Upload while it is full: refused with a reason, or accepted and put off."""
    try:
        await service.upload(new_text(name), f"{name}.txt")
    except Unavailable as error:
        refused = error.message
    else:
        await eventually(lambda: "stage put off" in service.logged())
        return
    assert refused.endswith("."), refused
    assert "No space" not in refused, refused


async def assert_kept(service: RealDocuments, *more: str) -> None:
    """The old document is found, and of others only what is whole."""
    names = {each.chunk.document_name for each in (await service.search("apples")).passages}
    assert "kept.txt" in names, names
    assert names <= {"kept.txt", *more}, names


async def fills_up(service: RealDocuments, name: str, before: list[str]) -> None:
    """One folder fills up under a running service, and is emptied again."""
    with full(service.folder / name):
        await try_upload(service, name)
        await assert_kept(service, *before)
    again = (await service.upload(new_text(name), f"{name}.txt")).document
    assert (await service.until_ended(again.document_id)).state == READY
    held = [each for each in await service.documents() if each.name == f"{name}.txt"]
    assert len(held) == 1, held
    print(name, flush=True)


async def starts_full(dsn: str, folder: Path, count: int) -> None:
    """A service that starts while its index folder is full finds everything once it is not."""
    with full(folder / "index"):
        async with real_documents(dsn, folder) as service:
            with suppress(BosError):
                await service.search("apples")
            assert len(await service.documents()) == count, "it goes on serving"
            assert "unreadable document index removed" not in service.logged()
    async with real_documents(dsn, folder) as service:
        await assert_kept(service, *(f"{name}.txt" for name in FOLDERS))
        assert len(await service.documents()) == count
    print("start", flush=True)


def mount(folder: Path) -> None:
    """Put a small file system at a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-t", "tmpfs", "-o", f"size={SIZE}"]
    subprocess.run(["mount", *options, "tmpfs", str(folder)], check=True)


async def main(dsn: str, folder: Path) -> None:
    """Run all parts; the file systems are there already."""
    before: list[str] = []
    async with real_documents(dsn, folder, max_attempts="10000") as service:
        await service.ready(KEPT, "kept.txt")
        for name in FOLDERS:
            await fills_up(service, name, before)
            before.append(f"{name}.txt")
    await starts_full(dsn, folder, 1 + len(FOLDERS))


if __name__ == "__main__":
    for name in FOLDERS:
        mount(Path(sys.argv[2]) / name)
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
