"""Services as people run them: each a process of its own, started by its real main."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from bos_testkit.forked import forked_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from bos_chassis.settings import TlsSettings

_UNASSIGNED = range(20_000, 32_768)
_BLOCK = 256
_START_S = 300.0
_STOP_S = 30.0
PATIENT = {"BOS_GATEWAY_LEASE_S": "60", "BOS_GATEWAY_MEMORY_TIMEOUT_S": "20"}
"""Settings of a gateway that, however busy the machine is, keeps its lease and hears memory."""
# What a program needs to be found and to keep out of the developer's own folders.
_KEPT = ("PATH", "PYTHONPATH", "XDG_CONFIG_HOME")


@dataclass(frozen=True)
class RunningProcess:
    """A program that is up."""

    pid: int
    said: bytes
    """What it wrote to its standard output until it was up."""
    log: Path | None
    """What it writes to its standard error."""

    @property
    def address(self) -> str:
        """Where a service listens, as it says itself."""
        return str(json.loads(self.said)["address"])

    def memory_mb(self) -> float:
        """The most memory that it ever had."""
        return peak_memory_mb(self.pid)


@cache
def _ports() -> Iterator[int]:
    """A block of ports that is this process's own while it lives, over and over.

    Drawn at random, two test workers would meet in time, and from then on draw side by side: each
    finds the port free that the other has drawn and not bound yet.
    """
    begins = list(_UNASSIGNED[: 1 - _BLOCK : _BLOCK])
    for begin in secrets.SystemRandom().sample(begins, len(begins)):
        claim = socket.socket(socket.AF_UNIX)
        try:
            # An abstract name: seen by all who share these ports, gone with the process.
            claim.bind(f"\0bos-ports-{begin}")
        except OSError:
            claim.close()
        else:
            claim.detach()  # held by the process to its end, and by nothing that is to be closed
            return cycle(range(begin, begin + _BLOCK))
    raise RuntimeError(f"All {len(begins)} blocks of ports are claimed by running processes.")


def free_port() -> int:
    """A port of this machine that nothing listens on, for a service that comes and goes.

    Below the ephemeral ports of the kernel, so that no other socket takes it between two starts.
    No other process that draws here is given it, and this one not again until it has used up
    its block.
    """
    while True:
        port = next(_ports())
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def is_dead(pid: int) -> bool:
    """Whether a process has ended, waited for or not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # gone before opening, or before reading
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def peak_memory_mb(pid: int) -> float:
    """The most memory that a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


@asynccontextmanager
async def running_process(
    *command: str | Path,
    settings: Mapping[str, str],
    up: bytes = b"\n",
    log: Path | None = None,
    folder: Path | None = None,
) -> AsyncIterator[RunningProcess]:
    """A program, once it has said ``up``; it is stopped with the block.

    Args:
        command: What is run.
        settings: Its environment. Nothing of ours but what it needs to be found comes along.
        up: What it says to standard output when it is up.
        log: Where its standard error goes; None drops it.
        folder: Where it works.

    Raises:
        AssertionError: It ended before it was up.
    """
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    with (log or Path(os.devnull)).open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env={**kept, **settings},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    try:
        assert process.stdout is not None
        try:
            said = await asyncio.wait_for(process.stdout.readuntil(up), _START_S)
        except asyncio.IncompleteReadError as error:
            raise AssertionError(f"{command}: {error.partial!r} {_end_of(log)}") from None
        yield RunningProcess(process.pid, said, log)
    finally:
        await _stop(process)


def _end_of(log: Path | None) -> str:
    return "" if log is None else log.read_text()[-4000:]


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.communicate(), _STOP_S)
        except TimeoutError:
            process.kill()
    await process.wait()


@asynccontextmanager
async def service_process(
    module: str, settings: Mapping[str, str], log: Path | None = None
) -> AsyncIterator[RunningProcess]:
    """The Python service that ``python -m module`` starts."""
    command = (sys.executable, "-m", module)
    # No process is left to wait for when it is stopped.
    settings = {"BOS_SERVER_GRACE_S": "0.2", **settings}
    async with running_process(*command, settings=settings, log=log) as running:
        yield running


@asynccontextmanager
async def forked_service(module: str, settings: Mapping[str, str]) -> AsyncIterator[RunningProcess]:
    """What ``python -m module`` starts, without its imports; killed with the block."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    imported = ["bos_agentkit", "bos_llm"]
    forking = forked_process("-m", module, environment={**kept, **settings}, imported=imported)
    async with forking as process:
        said = await asyncio.wait_for(process.stdout.readuntil(b"\n"), _START_S)
        yield RunningProcess(process.pid, said, None)


def tls_environment(tls: TlsSettings, *, client_certificates: bool = True) -> dict[str, str]:
    """The environment of a service with these certificates."""
    return {
        "BOS_TLS_CERT_FILE": str(tls.cert_file),
        "BOS_TLS_KEY_FILE": str(tls.key_file),
        "BOS_TLS_CA_FILE": str(tls.ca_file),
        "BOS_TLS_CLIENT_CERTIFICATES": str(client_certificates).lower(),
    }
