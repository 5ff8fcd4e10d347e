"""Readable text of pages, found by a process of its own that is ended when it is slow."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from bos_agentkit import AgentFailure
from bos_errors import AgentErrorType

_START_S = 20.0
_MAX_LINE_BYTES = 8 * 1024 * 1024
_WORKER = "bos_web.pages.worker"


@dataclass(frozen=True, slots=True)
class Readable:
    """What can be read of a page."""

    title: str
    text: str
    needs_browser: bool
    """Whether scripts seem to fill it."""


class Extraction:
    """Finds the text of pages, one at a time, in a process that is started when it is needed.

    Args:
        timeout_s: Time for one page.
        memory_bytes: Address space of the process.
    """

    def __init__(self, *, timeout_s: float, memory_bytes: int) -> None:
        self._timeout_s = timeout_s
        self._memory_bytes = memory_bytes
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._end()

    async def readable(self, html: str, *, max_chars: int) -> Readable:
        """Title and text of a page.

        Raises:
            AgentFailure: ``PageUnreadable``, where it takes too long or too much memory.
        """
        question = json.dumps({"html": html, "max_chars": max_chars}).encode() + b"\n"
        async with self._turn:
            try:
                line = await self._asked(question)
            except BaseException:
                # Also where the step was cancelled: its answer must not be the next one's.
                await self._end()
                raise
        said = json.loads(line)
        return Readable(str(said["title"]), str(said["text"]), bool(said["scripts"]))

    async def _asked(self, question: bytes) -> bytes:
        process = await self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(self._timeout_s):
                process.stdin.write(question)
                await process.stdin.drain()
                line = await process.stdout.readline()
        except (TimeoutError, OSError, ValueError):
            line = b""
        if not line.endswith(b"\n"):
            raise AgentFailure(
                AgentErrorType.PAGE_UNREADABLE, "The page's text cannot be found in it."
            )
        return line

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-m",
            _WORKER,
            str(self._memory_bytes),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_MAX_LINE_BYTES,
            env={},
            cwd="/",
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_START_S):
                ready = await process.stdout.readline()
        except TimeoutError:
            ready = b""
        if ready != b"ready\n":
            raise AgentFailure(
                AgentErrorType.PAGE_UNREADABLE,
                "The process that reads pages does not start.",
                retryable=True,
            )
        return process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        await process.wait()
        if process.stdin is not None:
            process.stdin.close()
            with suppress(OSError):
                await process.stdin.wait_closed()
