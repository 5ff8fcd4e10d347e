"""Child processes: started together, looked at from outside, ended in order."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parents[1]
_START_TIMEOUT_S = 120
_STOP_TIMEOUT_S = 15
_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if sys.platform != "win32" else 100
_UTIME = 11  # of /proc/<pid>/stat, counted from after the name; the next is the system's time
_LOG_TAIL = 2000


@dataclass(frozen=True, slots=True)
class Child:
    """A running process that said where it is."""

    name: str
    process: asyncio.subprocess.Process
    said: Mapping[str, Any]
    """The line of JSON that it wrote when it was ready."""

    @property
    def cpu_s(self) -> float:
        """Processor time of all its threads, in steps of 10 ms; 0 where Linux is not."""
        fields = _proc(self.process.pid, "stat").rpartition(")")[2].split()
        return sum(map(int, fields[_UTIME : _UTIME + 2])) / _TICKS_PER_S if fields else 0.0

    @property
    def memory_mb(self) -> float:
        """Memory of its own: what other processes share of it counts in parts."""
        return _number(_proc(self.process.pid, "smaps_rollup"), "Pss:") / 1024

    @property
    def rss_mib(self) -> float:
        """Resident memory, with what other processes share of it."""
        return _number(_proc(self.process.pid, "status"), "VmRSS:") / 1024

    async def ask(self, line: str) -> Any:
        """Write a line to it and read its answer, a line of JSON."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line.encode() + b"\n")
        return json.loads(await self.process.stdout.readline())


@asynccontextmanager
async def program(
    name: str, *command: str, logs: Path | None = None, **variables: str
) -> AsyncIterator[Child]:
    """Run a program and wait for its line.

    Args:
        name: In figures and in messages.
        command: The program and its arguments.
        logs: Folder for what it writes to stderr; it is the working directory as well. Without
            one it shares ours.
        variables: Added to the environment, which otherwise configures nothing.

    Raises:
        RuntimeError: it did not start; the end of its log is in the message.
    """
    # The interpreter finds the bench, wherever it is run from.
    path = os.pathsep.join(filter(None, (str(_HERE), os.environ.get("PYTHONPATH"))))
    log = logs / f"{name}.log" if logs else None
    with log.open("wb") if log else nullcontext() as file:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=logs,
            env={**os.environ, "PYTHONPATH": path, **variables},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=file,
            limit=4 * 1024 * 1024,
        )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_START_TIMEOUT_S):
            line = await process.stdout.readline()
        if not line:
            said = log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:] if log else ""
            raise RuntimeError(f"{name} did not start: {said}")
        yield Child(name, process, json.loads(line))
    finally:
        await _end(process)


def child(
    name: str, module: str, *arguments: str, logs: Path | None = None, **variables: str
) -> AbstractAsyncContextManager[Child]:
    """Run ``python -m module``, else like :func:`program`."""
    return program(name, sys.executable, "-m", module, *arguments, logs=logs, **variables)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _proc(pid: int, file: str) -> str:
    try:
        return Path(f"/proc/{pid}/{file}").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _number(text: str, field: str) -> int:
    """The number behind a field of such a file; 0 where there is none."""
    for line in text.splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    return 0
