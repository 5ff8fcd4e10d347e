import asyncio
import errno
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
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


def files_holding(folder: Path, *patterns: bytes) -> list[str]:
    """Files that hold one of the patterns, in any case."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            if any(each in content or each in content.lower() for each in patterns):
                found.append(str(path.relative_to(folder)))
    return found


def left_in(folder: Path) -> list[str]:
    return [each.name for each in folder.glob("*")]


def leave_half_written_segment(shard: Path) -> None:
    segment = shard / "temp_segments" / "3f1c"
    segment.mkdir(parents=True, exist_ok=True)
    (segment / "vectors.dat").write_bytes(b"half written")


def break_files(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and path.parent != folder:
            path.write_bytes(b"broken")


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


def failing_rewrite(path: Path, lock: int, timeout_s: float) -> None:
    raise RewriteFailed("killed")


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
async def test_words_of_documents_are_in_no_file(tmp_path: Path) -> None:
    index = EmbeddedIndex(tmp_path, LOG)
    await index.upsert("ann", MODEL, [planted()])
    await index.close()

    assert files_holding(tmp_path, PLANTED.encode(), b"ann", MODEL.encode()) == []


@pytest.mark.security
@pytest.mark.parametrize("way", ["document", "chunks", "user", "model"])
async def test_deleted_chunk_is_in_no_file(tmp_path: Path, way: str) -> None:
    index = EmbeddedIndex(tmp_path, LOG)
    others = [chunk(n, f"w{n}", n, document_id=OTHER_DOCUMENT) for n in range(100, 400)]
    await index.upsert("bob" if way in ("user", "model") else "ann", MODEL, others)
    await index.upsert("ann", MODEL, [planted()])
    assert files_holding(tmp_path, traces()[0])

    if way == "document":
        await index.delete_document("ann", DOCUMENT)
    elif way == "chunks":
        await index.delete_chunks("ann", MODEL, [chunk_id(77)])
    elif way == "user":
        await index.delete_user("ann")
    else:
        await index.delete_model("ann", MODEL)

    assert files_holding(tmp_path, *traces()) == []
    await index.close()
    assert files_holding(tmp_path, *traces()) == []


@pytest.mark.security
async def test_deletion_that_broke_off_is_completed_when_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = EmbeddedIndex(tmp_path, LOG)
    await index.upsert("ann", MODEL, [planted(), chunk(1, document_id=OTHER_DOCUMENT)])
    with monkeypatch.context() as patched:
        patched.setattr(embedded, "rewrite", failing_rewrite)
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
async def test_partial_segments_are_removed_before_a_shard_opens(tmp_path: Path) -> None:
    index = EmbeddedIndex(tmp_path, LOG)
    await index.upsert("ann", MODEL, [planted(), chunk(1, document_id=OTHER_DOCUMENT)])
    (path,) = index._paths("ann")
    await index.close()
    leave_half_written_segment(path)
    assert files_holding(tmp_path, b"half written")

    again = EmbeddedIndex(tmp_path, LOG)
    assert await again.count("ann", MODEL) == 2
    assert files_holding(tmp_path, b"half written") == []
    await again.close()


async def test_chunks_survive_closing(tmp_path: Path) -> None:
    index = EmbeddedIndex(tmp_path, LOG)
    await index.upsert("ann", MODEL, [chunk(1, "late delivery")])
    await index.close()
    await index.close()

    again = EmbeddedIndex(tmp_path, LOG)
    found = await again.search(
        "ann", MODEL, dense=direction(0), text="delivery", filter=ANY, limit=3
    )
    assert len(found.dense) == len(found.sparse) == 1
    await again.close()


async def test_closed_index_refuses_calls(tmp_path: Path) -> None:
    index = EmbeddedIndex(tmp_path, LOG)
    await index.close()

    with pytest.raises(Unavailable) as caught:
        await index.count("ann", MODEL)
    assert caught.value.reason == "INDEX_CLOSED"


async def test_second_owner_of_a_folder_is_refused(tmp_path: Path) -> None:
    index = EmbeddedIndex(tmp_path, LOG)
    with pytest.raises(ConfigurationError, match=f"in use by process {os.getpid()}"):
        EmbeddedIndex(tmp_path, LOG)
    await index.close()

    await EmbeddedIndex(tmp_path, LOG).close()


async def test_folder_that_cannot_be_made_is_a_configuration_error(tmp_path: Path) -> None:
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


async def test_unreadable_shard_is_removed_and_can_be_written_again(tmp_path: Path) -> None:
    index = EmbeddedIndex(tmp_path, LOG)
    await index.upsert("ann", MODEL, [chunk(1)])
    await index.close()
    break_files(tmp_path)

    again = EmbeddedIndex(tmp_path, LOG)
    assert await again.count("ann", MODEL) == 0
    await again.upsert("ann", MODEL, [chunk(1)])
    assert await again.count("ann", MODEL) == 1
    await again.close()


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


@pytest.mark.parametrize(("free", "writes"), [((64 << 20) - 1, False), (64 << 20, True)])
async def test_index_keeps_away_from_a_full_disk_and_searches_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, *, writes: bool
) -> None:
    index = EmbeddedIndex(tmp_path, LOG)
    await index.upsert("ann", MODEL, [chunk(1)])
    usage = embedded.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(embedded.shutil, "disk_usage", lambda _: usage._replace(free=free))
    if writes:
        await index.upsert("ann", MODEL, [chunk(2)])
    else:
        with pytest.raises(Unavailable) as caught:
            await index.upsert("ann", MODEL, [chunk(2)])
        assert caught.value.reason == "INDEX_DISK_FULL"
    assert await index.count("ann", MODEL) == 1 + writes
    await index.close()


async def test_leftovers_of_a_crash_are_removed_at_start(tmp_path: Path) -> None:
    for name in (".new-1", ".gone-2"):
        (tmp_path / name / "segments").mkdir(parents=True)

    index = EmbeddedIndex(tmp_path, LOG)

    assert os.listdir(tmp_path) == ["owner.lock"]
    await index.close()


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> Callable[[EmbeddedIndex], threading.Event]:
    """Makes an index's thread wait until the event is set."""

    def block(index: EmbeddedIndex) -> threading.Event:
        event = threading.Event()
        index._thread.submit(event.wait)
        return event

    return block


async def test_calls_beyond_the_queue_are_turned_away(
    tmp_path: Path, blocked: Callable[[EmbeddedIndex], threading.Event]
) -> None:
    index = EmbeddedIndex(tmp_path, LOG, max_waiting=2)
    release = blocked(index)
    waiting = [asyncio.create_task(index.count("ann", MODEL)) for _ in range(2)]
    await asyncio.sleep(0)

    with pytest.raises(Unavailable) as caught:
        await index.count("ann", MODEL)
    assert caught.value.reason == "INDEX_OVERLOADED"
    release.set()
    assert await asyncio.gather(*waiting) == [0, 0]
    assert await index.count("ann", MODEL) == 0
    await index.close()


async def test_call_ends_at_its_deadline(
    tmp_path: Path, blocked: Callable[[EmbeddedIndex], threading.Event]
) -> None:
    index = EmbeddedIndex(tmp_path, LOG, timeout_s=0.05)
    release = blocked(index)

    with pytest.raises(Unavailable) as caught:
        await index.count("ann", MODEL)
    assert caught.value.reason == "INDEX_TIMEOUT"
    release.set()
    await index.close()


async def test_cancelled_call_frees_its_place_in_the_queue(
    tmp_path: Path, blocked: Callable[[EmbeddedIndex], threading.Event]
) -> None:
    index = EmbeddedIndex(tmp_path, LOG, max_waiting=1)
    release = blocked(index)
    waiting = asyncio.create_task(index.count("ann", MODEL))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0)

    release.set()
    assert await index.count("ann", MODEL) == 0
    await index.close()


@pytest.mark.process
@pytest.mark.parametrize("batches", [1, 7, 25])
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


async def test_event_loop_goes_on_while_a_shard_is_rewritten(tmp_path: Path) -> None:
    index = EmbeddedIndex(tmp_path, LOG)
    await index.upsert("ann", MODEL, [chunk(n, f"w{n}", n) for n in range(1, 300)])
    turns = 0
    call = asyncio.create_task(index.delete_chunks("ann", MODEL, [chunk_id(1)]))
    while not call.done():
        await asyncio.sleep(0.001)
        turns += 1
    await call
    assert turns > 20
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
        assert not left_in(path / "temp_segments")
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
