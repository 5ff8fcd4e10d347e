"""Gateway processes forked from one that has imported everything: cheap by the thousand.

Processes of their own all the same: what they share is the modules, as they were after the import.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import crashing_gateway
import grpc
from crash_house import Gateway
from gateway_house import Client, House, gateway_settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerProcess

_START_S = 60.0
_STOPPED = "T"


def _live(
    argv: list[str], settings: dict[str, str], log: str, orders: Connection, says: Connection
) -> None:
    """What a newborn process does."""
    os.environ.update(settings)
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), sys.stderr.fileno())
    os.dup2(says.fileno(), 1)
    sys.stdout = os.fdopen(1, "w")
    sys.stdin = os.fdopen(os.dup(orders.fileno()))
    sys.argv = [crashing_gateway.__file__, *argv]
    crashing_gateway.main()


class Forked:
    """Looks like ``asyncio.subprocess.Process``, as far as it is needed here."""

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
        """Raises ProcessLookupError if it is gone."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
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
        self._transport.close()
        self._orders.close()
        self._says.close()


class ForkedGateway(Gateway):
    """A gateway of the nursery."""

    @property
    def stopped(self) -> bool:
        return bool(self.process.stopped)  # type: ignore[attr-defined]


@asynccontextmanager
async def forked_gateway(
    house: House, *options: str, log: str = os.devnull, **overrides: object
) -> AsyncIterator[Gateway]:
    """As ``crash_house.crashing_gateway``, with the product's settings but for ``overrides``.

    Raises:
        ValueError: it ended before it could serve.
    """
    nursery = multiprocessing.get_context("forkserver")
    nursery.set_forkserver_preload(["gateway_nursery"])
    replica_id = uuid4()
    argv = ["disarm", "--replica-id", str(replica_id), *options]
    settings = gateway_settings(house, **overrides)
    hears, orders = nursery.Pipe(duplex=False)
    says, speaks = nursery.Pipe(duplex=False)
    born = nursery.Process(target=_live, args=(argv, settings, log, hears, speaks))
    born.start()
    hears.close()
    speaks.close()
    process = Forked(born, orders, says)
    try:
        await process.open()
        async with asyncio.timeout(_START_S):
            line = await process.stdout.readline()
        async with grpc.aio.insecure_channel(json.loads(line)["address"]) as channel:
            yield ForkedGateway(process, Client(channel, None), replica_id)  # type: ignore[arg-type]
    finally:
        with suppress(ProcessLookupError):  # it was dead already, and nobody has waited for it yet
            process.kill()
        await process.wait()
        process.close()
