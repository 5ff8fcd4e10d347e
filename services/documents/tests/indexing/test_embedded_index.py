import asyncio
import errno
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from index_cases import DOCUMENT, MODEL, OTHER_DOCUMENT, chunk, chunk_id, direction

from bos_chassis.telemetry import Telemetry
from bos_documents.index import embedded
from bos_documents.index.embedded import EmbeddedIndex
from bos_documents.index.port import IndexedChunk, IndexFilter
from bos_documents.index.rewriting import RewriteFailed, rewrite
from bos_errors import ConfigurationError, Unavailable

LOG = Telemetry.for_tests().logger("index")
ANY = IndexFilter()
PLANTED = "zyxplanted"


def written(path: Path) -> bytes:
    """Content without the holes, which are all but a thousandth of what the engine sets aside."""
    found, end = [], 0
    with path.open("rb") as file:
        try:
            while True:
                begin = os.lseek(file.fileno(), end, os.SEEK_DATA)
                end = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
                found.append(os.pread(file.fileno(), end - begin, begin))
        except OSError as error:
            assert error.errno == errno.ENXIO  # noqa: PT017  there is no more
    return b"\0".join(found)


def files_holding(folder: Path, *patterns: bytes) -> list[str]:
    """Files that hold one of the patterns, in any case."""
    contents = {path: written(path) for path in folder.rglob("*") if path.is_file()}
    return [
        str(path.relative_to(folder))
        for path, content in contents.items()
        if any(each in content or each in content.lower() for each in patterns)
    ]


def write_until_killed(folder: Path, batches: int) -> int:
    """Batches that the killed process had acknowledged."""
    program = Path(__file__).with_name("upserting_process.py")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = 0
    with subprocess.Popen(
        [sys.executable, str(program), str(folder)], stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdout is not None
        while done < batches:
            done = int(process.stdout.readline())
        process.kill()
        return int([str(done), *process.stdout.read().split()][-1])


def planted() -> IndexedChunk:
    return IndexedChunk(
        chunk_id=chunk_id(77),
        document_id=DOCUMENT,
        dense=direction(123.4567),
        text=f"the password is {PLANTED}",
        document_type=PLANTED,
        topics=(PLANTED,),
        section=f"Secrets > {PLANTED}",
    )


def traces() -> tuple[bytes, ...]:
    """What is stored of the planted chunk: its vector and its id."""
    return (struct.pack("<2f", *direction(123.4567)[:2]), bytes.fromhex(f"{77:032x}"))


@pytest.mark.security
@pytest.mark.parametrize("way", ["document", "chunks", "user", "model"])
async def test_words_and_deleted_chunks_are_in_no_file(tmp_path: Path, way: str) -> None:
    index = EmbeddedIndex(tmp_path, LOG)
    others = [chunk(n, f"w{n}", n, document_id=OTHER_DOCUMENT) for n in range(100, 400)]
    await index.upsert("bob" if way in ("user", "model") else "ann", MODEL, others)
    await index.upsert("ann", MODEL, [planted()])
    assert files_holding(tmp_path, traces()[0])
    assert files_holding(tmp_path, PLANTED.encode(), b"ann", MODEL.encode()) == []

    await {
        "document": lambda: index.delete_document("ann", DOCUMENT),
        "chunks": lambda: index.delete_chunks("ann", MODEL, [chunk_id(77)]),
        "user": lambda: index.delete_user("ann"),
        "model": lambda: index.delete_model("ann", MODEL),
    }[way]()
    assert files_holding(tmp_path, *traces()) == []
    await index.close()
    assert files_holding(tmp_path, *traces()) == []


@pytest.mark.security
async def test_deletion_that_broke_off_is_completed_when_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = EmbeddedIndex(tmp_path, LOG)
    await index.upsert("ann", MODEL, [planted(), chunk(1, document_id=OTHER_DOCUMENT)])

    def fail(*_: object) -> None:
        raise RewriteFailed("killed")

    with monkeypatch.context() as patched:
        patched.setattr(embedded, "rewrite", fail)
        with pytest.raises(Unavailable):
            await index.delete_document("ann", DOCUMENT)
    assert await index.count("ann", MODEL, DOCUMENT) == 0
    await index.close()
    assert files_holding(tmp_path, traces()[0])

    again = EmbeddedIndex(tmp_path, LOG)
    await again.delete_document("ann", DOCUMENT)
    await again.close()
    assert files_holding(tmp_path, *traces()) == []


@pytest.mark.security
async def test_leftovers_and_damage_of_a_crash_are_removed(tmp_path: Path) -> None:
    for name in (".new-1", ".gone-2"):
        (tmp_path / name / "segments").mkdir(parents=True)
    index = EmbeddedIndex(tmp_path, LOG)
    assert os.listdir(tmp_path) == ["owner.lock"]
    await index.upsert("ann", MODEL, [planted(), chunk(1, document_id=OTHER_DOCUMENT)])
    (path,) = index._paths("ann")
    await index.close()
    segment = path / "temp_segments" / "3f1c"
    segment.mkdir(parents=True, exist_ok=True)
    (segment / "vectors.dat").write_bytes(b"half written")

    index = EmbeddedIndex(tmp_path, LOG)
    assert await index.count("ann", MODEL) == 2
    assert files_holding(tmp_path, b"half written") == []
    await index.close()
    for file in tmp_path.rglob("*"):  # noqa: ASYNC240
        if file.is_file() and file.parent != tmp_path:
            file.write_bytes(b"broken")

    index = EmbeddedIndex(tmp_path, LOG)
    assert await index.count("ann", MODEL) == 0
    await index.upsert("ann", MODEL, [chunk(1)])
    assert await index.count("ann", MODEL) == 1
    await index.close()


async def test_folder_has_one_owner_until_it_is_closed(tmp_path: Path) -> None:
    index = EmbeddedIndex(tmp_path, LOG)
    with pytest.raises(ConfigurationError, match=f"in use by process {os.getpid()}"):
        EmbeddedIndex(tmp_path, LOG)
    await index.close()
    await index.close()
    with pytest.raises(Unavailable) as caught:
        await index.count("ann", MODEL)
    assert caught.value.reason == "INDEX_CLOSED"
    await EmbeddedIndex(tmp_path, LOG).close()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be used"):
        EmbeddedIndex(tmp_path / "file" / "index", LOG)


async def test_open_shards_are_bounded(tmp_path: Path) -> None:
    index = EmbeddedIndex(tmp_path, LOG, max_open=3)
    for number in range(8):
        await index.upsert(f"user{number}", MODEL, [chunk(number)])
        assert index.open_shards <= 3

    assert [await index.count(f"user{n}", MODEL) for n in range(8)] == [1] * 8
    assert index.open_shards == 3
    await index.close()


@pytest.mark.parametrize(
    "error",
    [
        Exception("Service runtime error: No space left on device (os error 28)"),
        Exception("Out of memory, IO Error: Cannot allocate memory (os error 12)"),
        OSError(errno.EMFILE, "Too many open files"),
    ],
)
async def test_shard_that_cannot_be_opened_for_now_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    index = EmbeddedIndex(tmp_path, LOG)
    await index.upsert("ann", MODEL, [chunk(1)])
    await index.close()

    def refuse(*_: object) -> None:
        raise error

    again = EmbeddedIndex(tmp_path, LOG)
    with monkeypatch.context() as patched:
        patched.setattr(EmbeddedIndex, "_load", refuse)
        with pytest.raises(Unavailable):
            await again.count("ann", MODEL)
    assert await again.count("ann", MODEL) == 1
    await again.close()


async def test_index_keeps_away_from_a_full_disk_and_searches_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = EmbeddedIndex(tmp_path, LOG)
    usage, free = embedded.shutil.disk_usage(tmp_path), [64 << 20]
    monkeypatch.setattr(embedded.shutil, "disk_usage", lambda _: usage._replace(free=free[0]))
    await index.upsert("ann", MODEL, [chunk(1)])
    free[0] -= 1
    with pytest.raises(Unavailable) as caught:
        await index.upsert("ann", MODEL, [chunk(2)])
    assert caught.value.reason == "INDEX_DISK_FULL"
    assert await index.count("ann", MODEL) == 1
    await index.close()


def blocked(index: EmbeddedIndex) -> threading.Event:
    """Make the thread of an index wait until the event is set."""
    event = threading.Event()
    index._thread.submit(event.wait)
    return event


async def test_queue_refuses_more_calls_and_frees_cancelled_ones(
    tmp_path: Path,
) -> None:
    index = EmbeddedIndex(tmp_path, LOG, max_waiting=2)
    release = blocked(index)
    waiting = [asyncio.create_task(index.count("ann", MODEL)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable) as caught:
        await index.count("ann", MODEL)
    assert caught.value.reason == "INDEX_OVERLOADED"
    waiting[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    await asyncio.sleep(0)
    waiting[0] = asyncio.create_task(index.count("ann", MODEL))
    release.set()
    assert await asyncio.gather(*waiting) == [0, 0]
    await index.close()


async def test_call_ends_at_its_deadline(tmp_path: Path) -> None:
    index = EmbeddedIndex(tmp_path, LOG, timeout_s=0.05)
    release = blocked(index)
    with pytest.raises(Unavailable) as caught:
        await index.count("ann", MODEL)
    assert caught.value.reason == "INDEX_TIMEOUT"
    release.set()
    await index.close()


@pytest.mark.process
@pytest.mark.parametrize("batches", [1, 25])
async def test_kill_during_upsert_loses_nothing_that_was_acknowledged(
    tmp_path: Path, batches: int
) -> None:
    done = await asyncio.to_thread(write_until_killed, tmp_path, batches)

    index = EmbeddedIndex(tmp_path, LOG)
    acknowledged = done * 20
    assert await index.count("ann", MODEL) >= acknowledged
    again = [
        chunk(n, f"word{n} common", n % 360) for n in range(1, acknowledged + 21)
    ]  # with the batch that was being written
    await index.upsert("ann", MODEL, again)
    assert await index.count("ann", MODEL) == acknowledged + 20
    for number in (1, acknowledged, acknowledged + 20):
        legs = await index.search(
            "ann", MODEL, dense=None, text=f"word{number}", filter=ANY, limit=5
        )
        assert [each.chunk_id for each in legs.sparse] == [chunk_id(number)]
    await index.close()


async def test_rewrite_of_what_is_no_shard_or_takes_too_long_fails(tmp_path: Path) -> None:
    index = EmbeddedIndex(tmp_path / "index", LOG)
    for path, timeout_s in ((tmp_path / "none", 60.0), (tmp_path, 0.001)):
        with pytest.raises(RewriteFailed):
            await asyncio.to_thread(rewrite, path, index._lock, timeout_s)
    await index.close()


@pytest.mark.process
async def test_kill_during_a_rewrite_loses_nothing(tmp_path: Path) -> None:
    index = EmbeddedIndex(tmp_path, LOG)
    chunks = [chunk(n, f"word{n}", n % 360, document_id=OTHER_DOCUMENT) for n in range(100, 600)]
    await index.upsert("ann", MODEL, chunks)
    for delay_s in (0.01, 0.35, 0.5):
        await index.upsert("ann", MODEL, [planted()])
        path = index._path("ann", MODEL)
        with pytest.MonkeyPatch.context() as patched:
            # The time-out kills the program; the sooner, the earlier in its work.
            patched.setattr(
                embedded, "rewrite", lambda path, lock, _, after=delay_s: rewrite(path, lock, after)
            )
            try:
                await index.delete_document("ann", DOCUMENT)
            except Unavailable:
                assert path.with_suffix(".deleting").exists()
        assert await index.count("ann", MODEL) == 500
        await index.delete_document("ann", DOCUMENT)
        assert files_holding(tmp_path, *traces()) == []
        assert not list((path / "temp_segments").glob("*"))
        found = await index.search("ann", MODEL, dense=None, text="word555", filter=ANY, limit=3)
        assert [each.chunk_id for each in found.sparse] == [chunk_id(555)]
    await index.close()


async def test_folder_stays_locked_while_an_orphaned_rewrite_runs(tmp_path: Path) -> None:
    index = EmbeddedIndex(tmp_path, LOG)
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(index._lock,)
    ) as orphan:
        await index.close()
        with pytest.raises(ConfigurationError, match="in use"):
            EmbeddedIndex(tmp_path, LOG)
        orphan.kill()
    await EmbeddedIndex(tmp_path, LOG).close()
