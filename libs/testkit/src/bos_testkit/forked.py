"""Python programs as processes of their own, forked from one that has imported them already.

Starting a service takes a second of processor time, nearly all of it imports. What the forked
processes share is the modules as they were after the import: no connection, thread or event loop.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import runpy
import signal
import sys
from contextlib import asynccontextmanager, suppress
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerProcess

_STOPPED = "T"


class _Descriptor:
    """A file descriptor that goes along to the new process."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[Any]]:
        return _detached, (DupFd(self._number),)


def _detached(descriptor: Any) -> int:
    return int(descriptor.detach())


def _start(
    program: tuple[str, ...],
    environment: dict[str, str],
    hears: Connection,
    speaks: Connection,
    errors: int,
) -> None:
    """What a newborn process does: become the program."""
    os.environ.clear()
    os.environ.update(environment)
    for number, descriptor in enumerate((hears.fileno(), speaks.fileno(), errors)):
        os.dup2(descriptor, number)
    hears.close()
    speaks.close()
    os.close(errors)
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    if program[0] == "-m":
        sys.argv = list(program[1:])
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(program)
        runpy.run_path(program[0], run_name="__main__")


class ForkedProcess:
    """Looks like ``asyncio.subprocess.Process``, as far as it is needed."""

    def __init__(self, process: ForkServerProcess, orders: Connection, says: Connection) -> None:
        assert process.pid is not None
        self._process = process
        self._orders = orders
        self._says = says
        self.pid = process.pid
        self.stdin = self
        self.stdout = asyncio.StreamReader()

    async def open(self) -> None:
        """Start reading what it says."""
        protocol = asyncio.StreamReaderProtocol(self.stdout)
        pipe = os.fdopen(os.dup(self._says.fileno()), "rb", 0)
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.connect_read_pipe(lambda: protocol, pipe)

    def write(self, data: bytes) -> None:
        """To its stdin."""
        os.write(self._orders.fileno(), data)

    async def drain(self) -> None:
        """The little that is said to it fits into the pipe."""

    @property
    def returncode(self) -> int | None:
        """How it ended, or None."""
        return self._process.exitcode

    async def wait(self) -> int:
        """How it ended."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        sentinel = os.dup(self._process.sentinel)
        loop.add_reader(sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(sentinel)
            os.close(sentinel)
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Does nothing if it is gone."""
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has gone, and how it ended is on its way here
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    @property
    def stopped(self) -> bool:
        """Whether it has been frozen."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] == _STOPPED

    def close(self) -> None:
        """Let go of its streams."""
        self._transport.close()
        self._orders.close()
        self._says.close()


def _number_of(errors: IO[bytes] | int, nowhere: int) -> int:
    if errors == asyncio.subprocess.DEVNULL:
        return nowhere
    return errors if isinstance(errors, int) else errors.fileno()


@asynccontextmanager
async def forked_process(
    *program: str,
    environment: Mapping[str, str],
    errors: IO[bytes] | int = asyncio.subprocess.DEVNULL,
    imported: Sequence[str] = (),
) -> AsyncIterator[ForkedProcess]:
    """``python PROGRAM``, forked; killed at the end if it still runs.

    Args:
        program: ``-m`` and a module, or a file; then its arguments.
        environment: All of its environment.
        errors: Where its standard error goes: a file, or the number of a descriptor; nowhere,
            unless given.
        imported: Modules that are imported before the fork. The first call of a test session
            decides; a program imports by itself what it does not find.
    """
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(list(imported))
    hears, orders = server.Pipe(duplex=False)
    says, speaks = server.Pipe(duplex=False)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        target = _Descriptor(_number_of(errors, nowhere))
        streams = (hears, speaks, target)
        born = server.Process(target=_start, args=(program, dict(environment), *streams))
        born.start()
    finally:
        os.close(nowhere)
        hears.close()
        speaks.close()
    process = ForkedProcess(born, orders, says)
    await process.open()
    try:
        yield process
    finally:
        process.kill()  # also ends one that is stopped
        await process.wait()
        process.close()
