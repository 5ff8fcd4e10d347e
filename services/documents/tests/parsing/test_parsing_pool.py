"""Parser processes: killed, cancelled, forged, many at once; nothing of them is left."""

import asyncio
import os
import resource
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sample_files.office import docx, p, rows, xlsx
from sample_files.pdf import PdfPage, paragraph, pdf, scan

from bos_documents.parsing import pool as pool_module
from bos_documents.parsing.blocks import PageText
from bos_documents.parsing.limits import ParsingLimits
from bos_documents.parsing.pool import ParserPool
from bos_documents.parsing.rejections import DocumentRejected, WorkerFailed
from bos_testkit.processes import is_dead
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.process

LIMITS = ParsingLimits()


@pytest.fixture
async def pool() -> AsyncIterator[ParserPool]:
    async with ParserPool(LIMITS, workers=2, spare=1) as pool:
        yield pool


def numbered(count: int) -> bytes:
    return pdf([PdfPage(paragraph([f"This is page {n}."])) for n in range(1, count + 1)])


async def test_pages_are_read_one_by_one_from_any_page_on(pool: ParserPool) -> None:
    async with pool.open(numbered(9)) as document:
        first = [page.number async for page in document.pages(7)]
        again = await document.page(2)
    assert first == [7, 8, 9]
    assert again.blocks[0].text == "This is page 2."


async def test_file_is_read_by_its_path_and_a_link_is_not_followed(
    pool: ParserPool, tmp_path: Path
) -> None:
    path = tmp_path / "document"
    path.write_bytes(b"text in a file")
    (tmp_path / "link").symlink_to(path)
    async with pool.open(path) as document:
        assert (await document.page(1)).blocks[0].text == "text in a file"
    with pytest.raises(OSError, match="symbolic"):
        async with pool.open(tmp_path / "link"):
            pass


async def test_killed_worker_is_retryable_and_the_pool_survives(pool: ParserPool) -> None:
    with pytest.raises(WorkerFailed) as failed:  # noqa: PT012
        async with pool.open(numbered(50)) as document:
            async for page in document.pages():
                if page.number == 20:
                    for worker in pool._open:
                        os.kill(worker.pid, signal.SIGKILL)
    assert failed.value.reason == "WORKER_DIED"
    async with pool.open(numbered(50)) as document:
        assert (await document.page(20)).number == 20


async def test_killed_spare_worker_is_replaced(pool: ParserPool) -> None:
    await eventually(lambda: len(pool.pids) == 1)
    (spare,) = pool.pids
    os.kill(spare, signal.SIGKILL)
    await eventually(lambda: is_dead(spare))
    async with pool.open(b"text in a file") as document:
        assert (await document.page(1)).blocks[0].text == "text in a file"


async def test_two_documents_at_once_do_not_mix(pool: ParserPool) -> None:
    async def read(word: str) -> list[str]:
        content = pdf([PdfPage(paragraph([f"{word} {n}"])) for n in range(30)])
        async with pool.open(content) as document:
            return [page.blocks[0].text async for page in document.pages()]

    found = await asyncio.gather(*(read(word) for word in ("alpha", "beta", "gamma")))
    assert found == [[f"{word} {n}" for n in range(30)] for word in ("alpha", "beta", "gamma")]


async def test_each_document_has_a_process_of_its_own(pool: ParserPool) -> None:
    used: set[int] = set()
    for _ in range(3):
        async with pool.open(b"text in a file"):
            # pids of the spare process and of this document's.
            mine = {worker.pid for worker in pool._open}
        assert not mine & used
        used |= mine
        assert all(is_dead(pid) for pid in mine)


async def test_cancelling_ends_the_process_at_once(pool: ParserPool) -> None:
    started = asyncio.Event()

    async def read() -> None:
        async with pool.open(numbered(500)) as document:
            started.set()
            async for _ in document.pages():
                pass

    task = asyncio.create_task(read())
    await started.wait()
    pids = {worker.pid for worker in pool._open}
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pids
    assert all(is_dead(pid) for pid in pids)


async def test_closing_leaves_no_process_folder_or_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    descriptors = len(os.listdir("/proc/self/fd"))
    async with ParserPool(LIMITS, spare=2) as pool:
        await eventually(lambda: len(pool.pids) == 2)
        async with pool.open(b"text in a file"):
            pids = pool.pids
        with pytest.raises(DocumentRejected):
            async with pool.open(b""):
                pass
    assert all(is_dead(pid) for pid in pids)
    assert os.listdir(tmp_path) == []
    await eventually(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)


async def test_killed_service_leaves_no_process(tmp_path: Path) -> None:
    program = (
        "import asyncio\n"
        "from bos_documents.parsing.pool import ParserPool\n"
        "async def main():\n"
        "    async with ParserPool(spare=0) as pool:\n"
        "        async with pool.open(b'text in a file'):\n"
        "            print(pool.pids[0], flush=True)\n"
        "            await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    service = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path), "TMPDIR": str(tmp_path)},
    )
    assert service.stdout is not None
    pid = int(await service.stdout.readline())
    assert not is_dead(pid)
    service.kill()
    await service.wait()
    await eventually(lambda: is_dead(pid))


async def test_worker_is_offline_unprivileged_without_environment(pool: ParserPool) -> None:
    async with pool.open(b"text in a file"):
        (pid,) = (worker.pid for worker in pool._open)
        status = Path(f"/proc/{pid}/status").read_text()  # noqa: ASYNC240
        environment = Path(f"/proc/{pid}/environ").read_bytes()  # noqa: ASYNC240
        limits = Path(f"/proc/{pid}/limits").read_text()  # noqa: ASYNC240
        network = os.readlink(f"/proc/{pid}/ns/net")
        folder = os.readlink(f"/proc/{pid}/cwd")
        assert os.listdir(folder) == []
        nice = os.getpriority(os.PRIO_PROCESS, pid)
    if os.geteuid() == 0:
        assert "Uid:\t65534\t65534\t65534\t65534" in status
        assert network != os.readlink("/proc/self/ns/net")
    assert "NoNewPrivs:\t1" in status
    assert "CapEff:\t0000000000000000" in status
    assert environment == b""
    assert any(
        line.startswith("Max address space") and str(LIMITS.memory_bytes) in line
        for line in limits.splitlines()
    )
    assert any(
        line.split()[:5] == ["Max", "file", "size", "0", "0"] for line in limits.splitlines()
    )
    assert nice >= 10


@pytest.mark.parametrize(
    ("limits", "make", "reason"),
    [
        (replace(LIMITS, file_bytes=10), lambda: b"more than ten bytes", "DOCUMENT_TOO_LARGE"),
        (replace(LIMITS, pages=3), lambda: numbered(4), "DOCUMENT_TOO_MANY_PAGES"),
        (replace(LIMITS, page_chars=50), lambda: b"word " * 20, "DOCUMENT_TOO_MUCH_TEXT"),
        (replace(LIMITS, document_chars=50), lambda: numbered(9), "DOCUMENT_TOO_MUCH_TEXT"),
        (replace(LIMITS, page_cells=5), lambda: b"a;b\n1;2\n3;4\n", "DOCUMENT_TOO_MUCH_TEXT"),
        (replace(LIMITS, page_blocks=2), lambda: b"a\n\nb\n\nc\n", "DOCUMENT_TOO_MUCH_TEXT"),
        (
            replace(LIMITS, unpacked_bytes=100),
            lambda: docx(p("text")),
            "DOCUMENT_UNPACKS_TOO_LARGE",
        ),
        (
            replace(LIMITS, memory_bytes=220 << 20),
            lambda: xlsx({"S": rows([["x" * 90, n] for n in range(200_000)])}),
            "DOCUMENT_TOO_COMPLEX",
        ),
    ],
    ids=["bytes", "pages", "page text", "text", "cells", "blocks", "unpacked", "memory"],
)
async def test_each_bound_is_a_clear_rejection(
    limits: ParsingLimits, make: Callable[[], bytes], reason: str
) -> None:
    content = make()
    async with ParserPool(limits, spare=0) as pool:
        with pytest.raises(DocumentRejected) as rejected:  # noqa: PT012
            async with pool.open(content) as document:
                async for _ in document.pages():
                    pass
    assert rejected.value.reason == reason


async def test_same_documents_are_read_within_the_default_bounds(pool: ParserPool) -> None:
    for content in (numbered(9), docx(p("text")), b"a;b\n1;2\n3;4\n"):
        async with pool.open(content) as document:
            assert [page async for page in document.pages()]


# What a worker could do once a document has taken it over.
FORGED = {
    "not JSON": b"\0\0\0\1{",
    "not an object": b"\0\0\0\2[]",
    "endless": b"\xff\xff\xff\xff",
    "deep": (100_000).to_bytes(4, "big") + b"[" * 100_000,
    "no description": b"\0\0\0\2{}",
    "pages without end": None,
    "zero in text": None,
    "lone surrogate": None,
    "unknown reason": None,
}
INFO: dict[str, Any] = {"type": "text/plain", "pages": 1, "title": "", "date": "", "notes": []}
MESSAGES: dict[str, dict[str, Any]] = {
    "pages without end": INFO | {"pages": 10**9},
    "zero in text": INFO | {"title": "a\0b"},
    "lone surrogate": INFO | {"title": "\ud800"},
    "unknown reason": {"rejected": "PWNED", "message": "", "detail": ""},
}
WORKER = """
import json, socket, sys, time
control = socket.socket(fileno=int(sys.argv[1]))
def send(message):
    data = json.dumps(message).encode()
    control.sendall(len(data).to_bytes(4, "big") + data)
send({"ready": True})
socket.recv_fds(control, 4, 1)
"""


@pytest.mark.security
@pytest.mark.parametrize("name", FORGED)
async def test_forged_answer_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = FORGED[name]
    act = f"send({MESSAGES[name]!r})" if raw is None else f"control.sendall({raw!r})"
    monkeypatch.setattr(pool_module, "_BOOT", f"{WORKER}\n{act}\ntime.sleep(600)")
    async with ParserPool(LIMITS, spare=0) as pool:
        with pytest.raises(WorkerFailed) as failed:
            async with pool.open(b"text"):
                pass
    assert failed.value.reason == "WORKER_BAD_ANSWER"


@pytest.mark.security
@pytest.mark.parametrize(
    "messages",
    [
        [{"page": 2, "text": "extracted", "title": "", "notes": []}],
        [{"page": 1, "text": "pwned", "title": "", "notes": []}],
        [{"items": [["paragraph", "x", 0]]}],
        [{"items": [["row", ["x"]]]}],
        [{"items": [["table", 0], ["row", ["x"]], ["row", ["x", "y"]]]}],
        [{"items": [["table", 3], ["row", ["x"]]]}, {"end": 1}],
        [{"items": [["table", 0], ["row", [1]]]}],
        [{"items": [["script", "x", 0]]}],
        [{"items": [["heading", "x", 7]]}],
        [{"items": [["paragraph", "a\0b", 0]]}],
        [{"items": [["paragraph", "HUGE", 0]]}],
        [{"items": []}, {"end": 5}],
        [{"end": True}],
    ],
)
async def test_forged_page_is_refused(
    messages: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    head = {"page": 1, "text": "extracted", "title": "", "notes": []}
    sent = messages if "page" in messages[0] else [head, *messages]
    # The third of them is an item before any head.
    sent = messages if messages == [{"items": [["paragraph", "x", 0]]}] else sent
    written = repr(sent).replace("'HUGE'", "'x' * 200_000")  # an argument may not be that long
    act = f"send({INFO!r})\nfor one in {written}:\n    send(one)\ntime.sleep(600)"
    monkeypatch.setattr(pool_module, "_BOOT", f"{WORKER}\n{act}")
    async with ParserPool(LIMITS, spare=0) as pool, pool.open(b"text") as document:
        with pytest.raises(WorkerFailed) as failed:
            await document.page(1)
    assert failed.value.reason == "WORKER_BAD_ANSWER"


@pytest.mark.security
async def test_endless_page_is_bounded_in_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    head = {"page": 1, "text": "extracted", "title": "", "notes": []}
    flood = "{'items': [['paragraph', 'x' * 100_000, 0]] * 5}"
    act = f"send({INFO!r})\nsend({head!r})\nwhile True:\n    send({flood})"
    monkeypatch.setattr(pool_module, "_BOOT", f"{WORKER}\n{act}")
    async with ParserPool(LIMITS, spare=0) as pool, pool.open(b"text") as document:
        with pytest.raises(DocumentRejected) as rejected:
            await document.page(1)
    assert rejected.value.reason == "DOCUMENT_TOO_MUCH_TEXT"


async def test_worker_that_does_not_answer_in_time_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_module, "_BOOT", f"{WORKER}\ntime.sleep(600)")
    async with ParserPool(replace(LIMITS, open_s=0.3), spare=0) as pool:
        with pytest.raises(WorkerFailed) as failed:
            async with pool.open(b"text"):
                pass
        assert failed.value.reason == "WORKER_TIMED_OUT"
        assert pool.pids == []


async def test_too_much_processor_time_is_a_rejection(monkeypatch: pytest.MonkeyPatch) -> None:
    act = "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 5))\nwhile True: pass"
    monkeypatch.setattr(pool_module, "_BOOT", f"{WORKER}\n{act}")
    async with ParserPool(LIMITS, spare=0) as pool:
        with pytest.raises(DocumentRejected) as rejected:
            async with pool.open(b"text"):
                pass
    assert rejected.value.reason == "DOCUMENT_TOO_COMPLEX"


async def test_worker_that_does_not_start_is_a_retryable_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_module, "_BOOT", "raise SystemExit(3)")
    async with ParserPool(LIMITS, spare=1) as pool:
        with pytest.raises(WorkerFailed) as failed:
            async with pool.open(b"text"):
                pass
    assert failed.value.reason == "WORKER_NOT_STARTED"


async def test_memory_of_the_parent_stays_flat_over_large_documents(pool: ParserPool) -> None:
    content = numbered(500)

    async def read() -> int:
        async with pool.open(content) as document:
            return len([page.number async for page in document.pages()])

    assert await read() == 500
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3):
        assert await read() == 500
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


def tesseract(folder: Path, script: str) -> str:
    path = folder / "tesseract"
    path.write_text(f"#!/bin/sh\n{script}\n")
    for place in (path, *path.parents[:-2]):
        place.chmod(0o755)
    return str(path)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that an unprivileged worker can enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="ocr-") as name:
        yield Path(name)


@pytest.mark.parametrize(
    ("script", "text", "blocks", "note"),
    [
        ("cat > /dev/null; printf 'First line\\nof two\\n\\nSecond'", "recognised", 2, ""),
        ("cat > /dev/null", "none", 0, ""),
        ("exit 1", "none", 0, "could not be recognised"),
        ("sleep 600", "none", 0, "could not be recognised"),
    ],
    ids=["text", "nothing", "fails", "hangs"],
)
async def test_scanned_page_is_recognised_or_marked(
    script: str, text: str, blocks: int, note: str, open_folder: Path
) -> None:
    program = tesseract(open_folder, script)
    limits = replace(LIMITS, ocr_program=program, ocr_page_s=5)
    async with ParserPool(limits, spare=0) as pool, pool.open(pdf([scan()])) as document:
        page = await document.page(1)
    assert (page.text, len(page.blocks)) == (PageText(text), blocks)
    assert note in " ".join(page.notes)
    assert bool(note) == bool(page.notes)
