"""Drawing processes: started, handed charts, bounded, ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bos_charts.validate import MAX_SPEC_BYTES

_BOOT = (
    "import sys; sys.path[:] = sys.argv.pop(1).split(':'); "
    "from bos_charts.render.worker import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)
_START_S = 60.0
_MAX_CHARTS = 50
"""Of one process, which then makes room for a new one."""
_MAX_HEADER_BYTES = 64 * 1024
_MAX_PICTURE_BYTES = 4 * 1024 * 1024
_PATHS = ":".join(os.path.abspath(path) for path in sys.path if path)


class NotDrawn(Exception):
    """A chart could not be drawn; ``reason`` is stable, the message is for the log."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Pictures:
    """A chart as it was drawn."""

    svg: bytes
    png: bytes


class Renderer:
    """Draws charts in processes without network; an asynchronous context manager.

    Processes start with the first chart, and draw others after it. One that failed, refused or was
    too slow is ended.

    Args:
        workers: Charts that are drawn at once; more wait.
        memory_bytes: Private memory of a process.
        timeout_s: Time of one chart, also of its processor.
    """

    def __init__(
        self, *, workers: int = 2, memory_bytes: int = 1536 * 1024 * 1024, timeout_s: float = 20.0
    ) -> None:
        self._places = asyncio.Semaphore(workers)
        self._memory_bytes = memory_bytes
        self._timeout_s = timeout_s
        self._idle: list[_Worker] = []
        self._closed = False

    async def __aenter__(self) -> Renderer:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        while self._idle:
            await _closed(self._idle.pop())

    @property
    def idle_pids(self) -> list[int]:
        """Ids of the processes that wait for a chart."""
        return [worker.pid for worker in self._idle]

    async def draw(self, spec: Mapping[str, Any], *, checked: bool = True) -> Pictures:
        """Draw a specification.

        Args:
            spec: With its data inline.
            checked: Whether the process refuses what :func:`bos_charts.validate.problem` names;
                tests of the process's own isolation draw without.

        Raises:
            NotDrawn: refused, too slow, too large, or the process failed.
        """
        request = json.dumps({"spec": spec, "checked": checked}, allow_nan=False).encode()
        if len(request) > MAX_SPEC_BYTES:
            raise NotDrawn("SPECIFICATION_TOO_LARGE", f"{len(request)} bytes")
        async with self._places:
            worker = await self._worker()
            try:
                pictures = await worker.draw(request, self._timeout_s)
            except BaseException:
                await _closed(worker)
                raise
            if self._closed or worker.drawn >= _MAX_CHARTS:
                await _closed(worker)
            else:
                self._idle.append(worker)
            return pictures

    async def _worker(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            await _closed(worker)
        worker = await _Worker.start(self._memory_bytes, max(1, int(self._timeout_s)))
        if not worker.offline:
            await _closed(worker)
            raise NotDrawn("RENDERER_NOT_ISOLATED", "neither namespaces nor seccomp are available")
        return worker


class _Worker:
    """A process that waits for a chart, or draws it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.offline = False
        self.drawn = 0

    @classmethod
    async def start(cls, memory_bytes: int, cpu_s: int) -> _Worker:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", _BOOT),
            *(_PATHS, str(memory_bytes), str(cpu_s)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"TZ": "UTC"},
            cwd="/",
            start_new_session=True,
        )
        worker = cls(process)
        try:
            async with asyncio.timeout(_START_S):
                message = await worker._message()
        except asyncio.IncompleteReadError as error:
            await _closed(worker)
            raise NotDrawn("RENDERER_NOT_STARTED", f"exit code {process.returncode}") from error
        except (TimeoutError, ValueError) as error:
            await _closed(worker)
            raise NotDrawn("RENDERER_NOT_STARTED", type(error).__name__) from error
        except BaseException:
            await _closed(worker)
            raise
        worker.offline = message.get("offline") is True
        return worker

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def draw(self, request: bytes, timeout_s: float) -> Pictures:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                self._process.stdin.write(len(request).to_bytes(4, "big") + request)
                await self._process.stdin.drain()
                message = await self._message()
                if "refused" in message:
                    raise NotDrawn("SPECIFICATION_REFUSED", str(message["refused"])[:200])
                if "failed" in message:
                    raise NotDrawn("RENDERER_FAILED", str(message["failed"])[:200])
                svg_bytes, png_bytes = int(message["svg_bytes"]), int(message["png_bytes"])
                if not 0 < max(svg_bytes, png_bytes) <= _MAX_PICTURE_BYTES:
                    raise NotDrawn("PICTURE_TOO_LARGE")
                svg = await self._process.stdout.readexactly(svg_bytes)
                png = await self._process.stdout.readexactly(png_bytes)
        except TimeoutError:
            raise NotDrawn("RENDERER_TIMED_OUT") from None
        except (asyncio.IncompleteReadError, ConnectionError, KeyError, ValueError) as error:
            raise NotDrawn("RENDERER_DIED", await self._exit_text()) from error
        self.drawn += 1
        return Pictures(svg, png)

    async def _message(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        size = int.from_bytes(await self._process.stdout.readexactly(4), "big")
        if size > _MAX_HEADER_BYTES:
            raise ValueError("the header is too long")
        found = json.loads(await self._process.stdout.readexactly(size))
        if not isinstance(found, dict):
            raise ValueError("the header is no map")
        return found

    async def _exit_text(self) -> str:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                return f"exit code {await self._process.wait()}"
        return "it sent an invalid reply"

    async def close(self) -> None:
        """Kill the process with its children, and wait for the exit."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()


async def _closed(worker: _Worker) -> None:
    """Close ``worker`` even while the caller is being cancelled."""
    closing = asyncio.ensure_future(worker.close())
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await closing
        raise
