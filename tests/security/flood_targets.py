"""What is flooded: services in processes of their own, and honest calls to each of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpc_health.v1 import health_pb2, health_pb2_grpc

from bos.gateway.v1 import ListRunsRequest, OrchestratorServiceStub
from bos.identity.v1 import GetJsonWebKeySetRequest, GetUserRequest, IdentityServiceStub
from bos.memory.v1 import ListConversationsRequest, MemoryServiceStub
from bos_identity.accounts import LOCAL_USER_ID

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    import grpc

_BOS = Path(sys.executable).with_name("bos")
_KEY = "a-key-of-honest-callers"
_START_S = 120.0
TIMEOUT_S = 60.0
"""For an honest call, however busy the machine is."""


async def _ask_gateway(channel: grpc.aio.Channel, metadata: Any) -> None:
    stub = OrchestratorServiceStub(channel)
    await stub.ListRuns(ListRunsRequest(), timeout=TIMEOUT_S, metadata=metadata)


async def _ask_identity(channel: grpc.aio.Channel, metadata: Any) -> None:
    stub = IdentityServiceStub(channel)
    await stub.GetUser(GetUserRequest(), timeout=TIMEOUT_S, metadata=metadata)
    await stub.GetJsonWebKeySet(GetJsonWebKeySetRequest(), timeout=TIMEOUT_S)


async def _ask_memory(channel: grpc.aio.Channel, metadata: Any) -> None:
    stub = MemoryServiceStub(channel)
    await stub.ListConversations(ListConversationsRequest(), timeout=TIMEOUT_S, metadata=metadata)


@dataclass(frozen=True)
class Target:
    """A running service."""

    name: str
    address: str
    pid: int
    method: str
    """One that wants a credential."""
    open_methods: tuple[str, ...]
    key: str
    ask: Callable[[grpc.aio.Channel, Any], Awaitable[None]]

    async def honest(self, channel: grpc.aio.Channel) -> None:
        """What an honest caller does; raises whatever it is refused with."""
        await self.ask(channel, (("authorization", f"Bearer {self.key}"),))

    async def check(self, channel: grpc.aio.Channel) -> bool:
        """Whether a probe finds it alive."""
        reply = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S
        )
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)

    def memory_mb(self) -> float:
        """The most memory that its process ever had."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) / 1024


def _gateway(address: str, pid: int, key: str) -> Target:
    method = "/bos.gateway.v1.OrchestratorService/AskStream"
    return Target("gateway", address, pid, method, (), key, _ask_gateway)


def _identity(address: str, pid: int, key: str) -> Target:
    service = "/bos.identity.v1.IdentityService"
    opened = (f"{service}/LogIn", f"{service}/GetJsonWebKeySet")
    return Target("identity", address, pid, f"{service}/GetUser", opened, key, _ask_identity)


def _memory(address: str, pid: int, key: str) -> Target:
    method = "/bos.memory.v1.MemoryService/ListMessages"
    return Target("memory", address, pid, method, (), key, _ask_memory)


@asynccontextmanager
async def separate_processes(dsn: str, folder: Path) -> AsyncIterator[list[Target]]:
    """Identity, gateway and memory, each a process of its own; their logs go to ``folder``."""
    common = {
        "BOS_AUTH_STATIC_KEY": _KEY,
        "BOS_AUTH_STATIC_KEY_USER": str(LOCAL_USER_ID),
        "BOS_SERVER_GRACE_S": "0.2",
    }
    nobody = "127.0.0.1:1"
    async with AsyncExitStack() as stack:

        async def started(name: str, **settings: str) -> tuple[str, int]:
            own = {f"BOS_{name.upper()}_{key.upper()}": value for key, value in settings.items()}
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            return await stack.enter_async_context(_process(f"bos_{name}", {**common, **own}, log))

        yield [
            _identity(*await started("identity", store_url=dsn), _KEY),
            _memory(*await started("memory", store_url=dsn), _KEY),
            _gateway(
                *await started(
                    "gateway", store_url=dsn, planner_target=nobody, composer_target=nobody
                ),
                _KEY,
            ),
        ]


@asynccontextmanager
async def standalone(folder: Path) -> AsyncIterator[list[Target]]:
    """``bos serve all`` without REST: all services are one process."""
    process = await asyncio.create_subprocess_exec(
        *(_BOS, "serve", "all"),
        cwd=folder,
        env=_environment({"BOS_STANDALONE_REST": "false"}),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            await asyncio.wait_for(process.stdout.readuntil(b"Ctrl-C stops."), _START_S)
        except asyncio.IncompleteReadError as error:
            raise AssertionError((error.partial, await process.stderr.read())) from None
        content = json.loads((folder / ".data/standalone.json").read_text())
        pid, key = process.pid, content["api_key"]
        yield [
            _identity(content["identity_target"], pid, key),
            _memory(content["memory_target"], pid, key),
            _gateway(content["target"], pid, key),
        ]
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.communicate()


@asynccontextmanager
async def _process(
    module: str, settings: Mapping[str, str], log: Any
) -> AsyncIterator[tuple[str, int]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module),
        env=_environment(settings),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=log,
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), _START_S)
        yield json.loads(line)["address"], process.pid
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, **settings}
