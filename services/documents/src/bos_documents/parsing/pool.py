"""Parser processes: one for each document, unused before and not used again.

A document of one user can therefore leave nothing behind that the next one meets, even where it
takes its parser over. Some processes wait, with their libraries loaded, so that none is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bos_documents.parsing import wire
from bos_documents.parsing.blocks import DocumentInfo, Page
from bos_documents.parsing.limits import ParsingLimits
from bos_documents.parsing.rejections import DocumentRejected, WorkerFailed

_BOOT = (
    "import sys; sys.path[:] = sys.argv[2].split(':'); "
    "from bos_documents.parsing.worker import main; main(int(sys.argv[1]))"
)
_START_S = 60.0
_PATHS = ":".join(os.path.abspath(path) for path in sys.path if path)
"""Workers start in another folder, so what is relative here is not for them."""


class ParserPool:
    """Parses documents in processes of their own; an asynchronous context manager.

    Args:
        limits: Bounds of one document.
        workers: Documents that are parsed at once; more wait.
        spare: Processes that wait for a document.
        require_offline: Have no document read by a process that can reach the network.
        started: Called with whether a new process is cut off from the network.
    """

    def __init__(
        self,
        limits: ParsingLimits | None = None,
        *,
        workers: int = 2,
        spare: int = 1,
        require_offline: bool = False,
        started: Callable[[bool], None] | None = None,
    ) -> None:
        self.limits = limits or ParsingLimits()
        self._require_offline = require_offline
        self._started = started
        self._places = asyncio.Semaphore(workers)
        self._spare = spare
        self._waiting: deque[_Worker] = deque()
        self._open: set[_Worker] = set()
        self._refilling: asyncio.Task[None] | None = None
        self._closed = False
        self._folder = tempfile.TemporaryDirectory(prefix="bos-parsers-")
        """Where workers are at home: empty, and they cannot write."""

    async def __aenter__(self) -> ParserPool:
        self._refill()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        if self._refilling is not None:
            self._refilling.cancel()
            await asyncio.wait([self._refilling])
        for worker in (*self._waiting, *self._open):
            await worker.close()
        self._waiting.clear()
        await asyncio.to_thread(self._folder.cleanup)

    @property
    def pids(self) -> list[int]:
        """Ids of all processes, those that wait too."""
        return [worker.pid for worker in (*self._waiting, *self._open)]

    @asynccontextmanager
    async def open(self, source: Path | bytes, *, name: str = "") -> AsyncIterator[OpenDocument]:
        """A document, opened by a process that ends with the block.

        Args:
            source: The file, or its content.
            name: Its name, which decides only between kinds of text.

        Raises:
            DocumentRejected: It cannot be read; trying again does not help.
            WorkerFailed: The process failed; it may be tried again.
        """
        document = await asyncio.to_thread(_descriptor, source, self.limits)
        try:
            async with self._places:
                worker = await self._worker()
                try:
                    yield await OpenDocument.begin(worker, document, name, self.limits)
                finally:
                    await _finished(worker)
                    self._open.discard(worker)
                    self._refill()
        finally:
            os.close(document)

    async def _worker(self) -> _Worker:
        while self._waiting:
            worker = self._waiting.popleft()
            self._open.add(worker)
            if worker.alive:
                return worker
            await worker.close()
            self._open.discard(worker)
        worker = await self._start()
        if self._closed:
            await worker.close()
            raise WorkerFailed("WORKER_NOT_STARTED", "the pool is closed")
        self._open.add(worker)
        return worker

    def _refill(self) -> None:
        running = self._refilling is not None and not self._refilling.done()
        if not running and not self._closed and len(self._waiting) < self._spare:
            self._refilling = asyncio.create_task(self._fill(), name="parser-pool")

    async def _fill(self) -> None:
        with contextlib.suppress(WorkerFailed):  # the next document meets the same, and says so
            while len(self._waiting) < self._spare:
                self._waiting.append(await self._start())

    async def _start(self) -> _Worker:
        worker = await _start(self._folder.name)
        if self._started is not None:
            self._started(worker.offline)
        if self._require_offline and not worker.offline:
            await _finished(worker)
            raise WorkerFailed("WORKER_NOT_ISOLATED", "it can reach the network")
        return worker


class OpenDocument:
    """A document in a parser process: what it is, and its pages."""

    def __init__(self, worker: _Worker, info: DocumentInfo, limits: ParsingLimits) -> None:
        self.info = info
        self._worker = worker
        self._limits = limits
        self._chars = 0
        self._ends = time.monotonic() + limits.document_s
        self._broken = False

    @classmethod
    async def begin(
        cls, worker: _Worker, document: int, name: str, limits: ParsingLimits
    ) -> OpenDocument:
        """Hand over the descriptor of a document."""
        request = {"name": name[-255:], "limits": asdict(limits)}
        async with _answering(worker, limits.open_s):
            await worker.send(request, document)
            message = await worker.receive()
            if "rejected" in message:
                raise wire.read_rejection(message)
            return cls(worker, wire.read_info(message, limits), limits)

    async def page(self, number: int) -> Page:
        """Page ``number``, from 1; any page can be read, and again.

        Raises:
            DocumentRejected: It cannot be read.
            WorkerFailed: The process failed.
        """
        if not 1 <= number <= self.info.page_count:
            raise IndexError(number)
        if self._broken:
            raise WorkerFailed("WORKER_DIED", "an earlier page failed")
        reader = wire.PageReader(number, self._limits)
        left = self._ends - time.monotonic()
        # An early end leaves messages behind that belong to no later page.
        self._broken = True
        async with _answering(self._worker, min(self._limits.page_s, left)):
            await self._worker.send({"page": number})
            page = None
            while page is None:
                message = await self._worker.receive()
                if "rejected" in message:
                    raise wire.read_rejection(message)
                page = reader.take(message)
        self._chars += reader.chars
        if self._chars > self._limits.document_chars:
            raise DocumentRejected("DOCUMENT_TOO_MUCH_TEXT")
        self._broken = False
        return page

    async def pages(self, first: int = 1) -> AsyncIterator[Page]:
        """Pages from ``first`` on, one by one."""
        for number in range(first, self.info.page_count + 1):
            yield await self.page(number)


class _Worker:
    """A process that waits for its one document, or reads it."""

    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket) -> None:
        self._process = process
        self._control = control
        self.offline = False
        """Whether it is cut off from the network, as it said before it saw a document."""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs and is silent, as one that waits for its document does."""
        try:
            self._control.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return self._process.returncode is None
        except OSError:
            pass
        return False

    async def send(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        loop = asyncio.get_running_loop()
        data = wire.pack(message)
        if descriptor is not None:
            # Four bytes fit into the empty buffer of a socket, so this does not block.
            socket.send_fds(self._control, [data[:4]], [descriptor])
            data = data[4:]
        await loop.sock_sendall(self._control, data)

    async def receive(self) -> dict[str, Any]:
        size = int.from_bytes(await self._exactly(4), "big")
        if size > wire.MAX_MESSAGE:
            raise wire.BadAnswer
        return wire.unpack(await self._exactly(size))

    async def _exactly(self, size: int) -> bytes:
        loop = asyncio.get_running_loop()
        data = bytearray()
        while len(data) < size:
            part = await loop.sock_recv(self._control, min(size - len(data), 1 << 16))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    async def ended(self) -> int:
        """Exit code of a process that sends nothing more; minus the signal that ended it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                return await self._process.wait()
        return 0

    async def close(self) -> None:
        """End the process with all that it started, and wait for that."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self._control.close()
        await self._process.wait()


@asynccontextmanager
async def _answering(worker: _Worker, timeout_s: float) -> AsyncIterator[None]:
    """Turns what can happen to a worker into the two kinds of failure."""
    try:
        async with asyncio.timeout(max(timeout_s, 0)):
            yield
    except TimeoutError:
        raise WorkerFailed("WORKER_TIMED_OUT") from None
    except wire.BadAnswer:
        raise WorkerFailed("WORKER_BAD_ANSWER") from None
    except (EOFError, ConnectionError):
        code = await worker.ended()
        if code == -signal.SIGXCPU:
            raise DocumentRejected("DOCUMENT_TOO_COMPLEX") from None
        raise WorkerFailed("WORKER_DIED", f"exit code {code}") from None


async def _start(folder: str) -> _Worker:
    """Start a process in an empty folder; wait until it has given up what it does not need."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    process = None
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOT),
            *(str(theirs.fileno()), _PATHS),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            cwd=folder,
            env={},
            start_new_session=True,
        )
        theirs.close()
        worker = _Worker(process, ours)
        async with asyncio.timeout(_START_S):
            message = await worker.receive()
        if message.get("ready") is not True:
            raise wire.BadAnswer
        worker.offline = message.get("offline") is True
    except BaseException as error:
        theirs.close()
        if process is not None:
            await _finished(_Worker(process, ours))
        else:
            ours.close()
        if isinstance(error, OSError | EOFError | wire.BadAnswer):  # TimeoutError is an OSError
            raise WorkerFailed("WORKER_NOT_STARTED", type(error).__name__) from error
        raise
    return worker


async def _finished(worker: _Worker) -> None:
    """Close ``worker`` even while the caller is being cancelled."""
    closing = asyncio.ensure_future(worker.close())
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await closing
        raise


def _descriptor(source: Path | bytes, limits: ParsingLimits) -> int:
    """A descriptor of the document, to be read only; what is in memory becomes a file there."""
    if isinstance(source, bytes):
        if len(source) > limits.file_bytes:
            raise DocumentRejected("DOCUMENT_TOO_LARGE")
        found = os.memfd_create("document")
        with open(found, "wb", closefd=False) as file:
            file.write(source)
        os.lseek(found, 0, os.SEEK_SET)
        return found
    found = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    if os.fstat(found).st_size > limits.file_bytes:
        os.close(found)
        raise DocumentRejected("DOCUMENT_TOO_LARGE")
    return found


def with_tesseract(limits: ParsingLimits) -> ParsingLimits:
    """``limits`` with the path of tesseract, where it is installed."""
    return replace(limits, ocr_program=shutil.which("tesseract") or "")
