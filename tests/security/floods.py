"""Floods of calls by strangers, kept up until they are stopped."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bos_testkit.raw_http2 import RawConnection, grpc_frame, raw_connection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from flood_targets import Target

_WATCH = "/grpc.health.v1.Health/Watch"
_CHECK = "/grpc.health.v1.Health/Check"
_REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
# Four million empty values of a list in two bytes each, which unpack to 25 times that.
_BOMB = grpc_frame(b"\x0a\x00" * (4 * 1024 * 1024 - 3))


def _in_turn(connection: RawConnection, methods: Sequence[str]) -> str:
    return methods[connection.calls % len(methods)]


@dataclass(frozen=True)
class Flood:
    """A kind of call that strangers can make."""

    name: str
    one: Callable[[RawConnection, Target], Awaitable[None]]
    calls: int = 1100
    """Under way at once, over all connections."""
    for_open_methods: bool = False


async def _watch(connection: RawConnection, _: Target) -> None:
    connection.call(_WATCH, b"", end=False)


async def _check(connection: RawConnection, _: Target) -> None:
    connection.begin(_CHECK)


async def _reflection(connection: RawConnection, _: Target) -> None:
    connection.call(_REFLECTION, b"", end=False)


async def _silent(connection: RawConnection, target: Target) -> None:
    connection.begin(target.method)


async def _silent_open(connection: RawConnection, target: Target) -> None:
    connection.begin(_in_turn(connection, target.open_methods))


async def _wrong_token(connection: RawConnection, target: Target) -> None:
    connection.begin(target.method, (("authorization", "Bearer eyJhbGciOiJub25lIn0.e30."),))


async def _garbage(connection: RawConnection, target: Target) -> None:
    methods = (target.method, *target.open_methods)
    connection.call(_in_turn(connection, methods), b"\xff" * 64)


async def _bombs(connection: RawConnection, target: Target) -> None:
    methods = (target.method, *target.open_methods)
    await connection.send(connection.begin(_in_turn(connection, methods)), _BOMB, end=True)


async def _log_ins(connection: RawConnection, target: Target) -> None:
    method = _in_turn(connection, target.open_methods)
    connection.call(method, b"\x0a\x05nobdy\x12\x0awrong-pass")


FLOODS = (
    Flood("watches", _watch),
    Flood("silent-checks", _check),
    Flood("reflection", _reflection),
    Flood("silent-calls", _silent),
    Flood("silent-open-calls", _silent_open, for_open_methods=True),
    Flood("wrong-tokens", _wrong_token),
    Flood("garbage", _garbage),
    Flood("bombs", _bombs, calls=16),
    Flood("open-calls", _log_ins, for_open_methods=True),
)


@asynccontextmanager
async def flooding(flood: Flood, target: Target, connections: int) -> AsyncIterator[None]:
    """Keep the flood up; inside of the context all of it has been sent once."""
    each = max(1, flood.calls // connections)
    sent = asyncio.Semaphore(0)
    flooders = [asyncio.create_task(_flood(flood, target, each, sent)) for _ in range(connections)]
    try:
        for _ in flooders:
            await asyncio.wait_for(sent.acquire(), 120)
        yield
    finally:
        for flooder in flooders:
            flooder.cancel()
        failures = await asyncio.gather(*flooders, return_exceptions=True)
    for failure in failures:
        if not isinstance(failure, asyncio.CancelledError):
            raise AssertionError("a flood dried up") from failure


async def _flood(flood: Flood, target: Target, calls: int, sent: asyncio.Semaphore) -> None:
    """Keep ``calls`` calls under way over one connection, and come back when it is closed."""
    while True:
        with suppress(ConnectionError):
            async with raw_connection(target.address) as connection:
                for _ in range(calls):
                    await flood.one(connection, target)
                await connection.drain()
                sent.release()
                while not connection.closed.is_set():
                    ended = connection.ended
                    await connection.until(ended + 1, within_s=3600)
                    for _ in range(connection.forget()):
                        await flood.one(connection, target)
                    await connection.drain()
