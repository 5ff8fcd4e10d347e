"""Parser processes: killed, cancelled, forged, many at once; nothing of them is left."""

import asyncio
import os
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


async def test_pages_are_read_by_number_from_bytes_or_a_file(
    pool: ParserPool, tmp_path: Path
) -> None:
    path = tmp_path / "document"
    path.write_bytes(numbered(9))
    (tmp_path / "link").symlink_to(path)
    for content in (path, path.read_bytes()):
        async with pool.open(content) as document:
            assert [page.number async for page in document.pages(7)] == [7, 8, 9]
            assert (await document.page(2)).blocks[0].text == "This is page 2."
    with pytest.raises(OSError, match="symbolic"):
        async with pool.open(tmp_path / "link"):
            pass


async def test_killed_workers_are_retryable_and_replaced(pool: ParserPool) -> None:
    with pytest.raises(WorkerFailed) as failed:  # noqa: PT012
        async with pool.open(numbered(50)) as document:
            async for page in document.pages():
                if page.number == 20:
                    for worker in pool._open:
                        os.kill(worker.pid, signal.SIGKILL)
    assert failed.value.reason == "WORKER_DIED"
    await eventually(lambda: len(pool.pids) == 1)
    (spare,) = pool.pids
    os.kill(spare, signal.SIGKILL)
    await eventually(lambda: is_dead(spare))
    async with pool.open(numbered(50)) as document:
        assert (await document.page(20)).number == 20


async def test_each_document_has_a_process_of_its_own(pool: ParserPool) -> None:
    used: set[int] = set()

    async def read(word: str) -> list[str]:
        content = pdf([PdfPage(paragraph([f"{word} {n}"])) for n in range(30)])
        async with pool.open(content) as document:
            used.update(worker.pid for worker in pool._open)
            return [page.blocks[0].text async for page in document.pages()]

    words = ("alpha", "beta", "gamma")
    found = await asyncio.gather(*(read(word) for word in words))
    assert found == [[f"{word} {n}" for n in range(30)] for word in words]
    assert len(used) == 3
    assert all(is_dead(pid) for pid in used)


async def test_cancelling_and_closing_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    descriptors = len(os.listdir("/proc/self/fd"))
    started = asyncio.Event()

    async def read(pool: ParserPool) -> None:
        async with pool.open(numbered(500)) as document:
            started.set()
            async for _ in document.pages():
                pass

    async with ParserPool(LIMITS, spare=2) as pool:
        await eventually(lambda: len(pool.pids) == 2)
        task = asyncio.create_task(read(pool))
        await started.wait()
        reading = {worker.pid for worker in pool._open}
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert reading
        assert all(is_dead(pid) for pid in reading)
        with pytest.raises(DocumentRejected):
            async with pool.open(b""):
                pass
        pids = pool.pids
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
        status, environment, limits = (
            Path(f"/proc/{pid}/{name}").read_text()  # noqa: ASYNC240
            for name in ("status", "environ", "limits")
        )
        network = os.readlink(f"/proc/{pid}/ns/net")
        assert os.listdir(os.readlink(f"/proc/{pid}/cwd")) == []
        assert os.getpriority(os.PRIO_PROCESS, pid) >= 10
    if os.geteuid() == 0:
        assert "Uid:\t65534\t65534\t65534\t65534" in status
        assert network != os.readlink("/proc/self/ns/net")
    assert "NoNewPrivs:\t1" in status
    assert "CapEff:\t0000000000000000" in status
    assert environment == ""
    bounds = [line.split() for line in limits.splitlines()]
    memory = str(LIMITS.memory_bytes)
    assert ["Max", "address", "space", memory] in [each[:4] for each in bounds]
    assert ["Max", "file", "size", "0", "0"] in [each[:5] for each in bounds]


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


INFO: dict[str, Any] = {"type": "text/plain", "pages": 1, "title": "", "date": "", "notes": []}
HEAD = {"page": 1, "text": "extracted", "title": "", "notes": []}
# What a worker could do once a document has taken it over.
FORGED = {
    "not JSON": r"control.sendall(b'\0\0\0\1{')",
    "not an object": r"control.sendall(b'\0\0\0\2[]')",
    "endless": r"control.sendall(b'\xff\xff\xff\xff')",
    "deep": "control.sendall((100_000).to_bytes(4, 'big') + b'[' * 100_000)",
    "no description": "send({})",
    "pages without end": f"send({INFO | {'pages': 10**9}})",
    "zero in text": f"send({INFO | {'title': chr(0)}})",
    "lone surrogate": f"send({INFO} | {{'title': chr(0xD800)}})",
    "unknown reason": "send({'rejected': 'PWNED', 'message': '', 'detail': ''})",
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
    monkeypatch.setattr(pool_module, "_BOOT", f"{WORKER}\n{FORGED[name]}\ntime.sleep(600)")
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
    is_whole = "page" in messages[0] or messages[0] == {"items": [["paragraph", "x", 0]]}
    sent = messages if is_whole else [HEAD, *messages]  # an item comes before any head, too
    written = repr(sent).replace("'HUGE'", "'x' * 200_000")  # an argument may not be that long
    act = f"send({INFO!r})\nfor one in {written}:\n    send(one)\ntime.sleep(600)"
    monkeypatch.setattr(pool_module, "_BOOT", f"{WORKER}\n{act}")
    async with ParserPool(LIMITS, spare=0) as pool, pool.open(b"text") as document:
        with pytest.raises(WorkerFailed) as failed:
            await document.page(1)
    assert failed.value.reason == "WORKER_BAD_ANSWER"


@pytest.mark.security
async def test_endless_page_is_bounded_in_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    flood = "{'items': [['paragraph', 'x' * 100_000, 0]] * 5}"
    act = f"send({INFO!r})\nsend({HEAD!r})\nwhile True:\n    send({flood})"
    monkeypatch.setattr(pool_module, "_BOOT", f"{WORKER}\n{act}")
    async with ParserPool(LIMITS, spare=0) as pool, pool.open(b"text") as document:
        with pytest.raises(DocumentRejected) as rejected:
            await document.page(1)
    assert rejected.value.reason == "DOCUMENT_TOO_MUCH_TEXT"


CPU = "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 5))\nwhile True: pass"


@pytest.mark.parametrize(
    ("boot", "reason"),
    [
        (f"{WORKER}\ntime.sleep(600)", "WORKER_TIMED_OUT"),
        (f"{WORKER}\n{CPU}", "DOCUMENT_TOO_COMPLEX"),
        ("raise SystemExit(3)", "WORKER_NOT_STARTED"),
    ],
)
async def test_worker_that_hangs_or_does_not_start_is_killed(
    monkeypatch: pytest.MonkeyPatch, boot: str, reason: str
) -> None:
    monkeypatch.setattr(pool_module, "_BOOT", boot)
    limits = replace(LIMITS, open_s=0.3) if "sleep" in boot else LIMITS
    async with ParserPool(limits, spare=0) as pool:
        with pytest.raises((WorkerFailed, DocumentRejected)) as failed:
            async with pool.open(b"text"):
                pass
        assert failed.value.reason == reason
        assert pool.pids == []


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
