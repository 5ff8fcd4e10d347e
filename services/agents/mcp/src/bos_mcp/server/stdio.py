"""An MCP server as a program: clean environment, own process group, bounded lines.

Not the SDK's own transport, which hands on variables of this process, collects lines of any length
and lets the program write to this process's log.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter
from pydantic import ValidationError

from bos_errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from bos_mcp.settings import McpServer

    Incoming = MemoryObjectSendStream[SessionMessage | Exception]

_CLOSE_S = 2.0
_TERMINATE_S = 2.0
_CHUNK_BYTES = 64 * 1024
_MAX_INVALID_LINES = 100


@asynccontextmanager
async def stdio_streams(server: McpServer, on_end: Callable[[], None]) -> AsyncIterator[Any]:
    """Streams of a session with the program, which is started and stopped with its children.

    Args:
        server: Settings of the server.
        on_end: Called when the program says no more.

    Raises:
        Unavailable: it cannot be started.
    """
    process = await _start(server)
    to_session, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    reading = asyncio.create_task(_read(process, to_session, server.max_message_bytes))
    reading.add_done_callback(lambda _: on_end())
    tasks = [
        reading,
        asyncio.create_task(_write(process, from_session), name="mcp write"),
        asyncio.create_task(_discard(process), name="mcp errors"),
    ]
    try:
        yield incoming, outgoing
    finally:
        incoming.close()
        outgoing.close()
        try:
            await _ended(process, tasks)
        finally:
            to_session.close()
            from_session.close()


async def _start(server: McpServer) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *server.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={name: value.get_secret_value() for name, value in server.env.items()},
            cwd=server.cwd,
            start_new_session=True,
        )
    except (OSError, ValueError):
        raise Unavailable(
            f"The MCP server {server.where} cannot be started. Correct command and cwd in "
            "BOS_MCP_SERVERS; a command without a folder is looked for in the PATH of env.",
            reason="MCP_NOT_STARTED",
        ) from None


async def _read(process: asyncio.subprocess.Process, to_session: Incoming, limit: int) -> None:
    """Hand messages on, one per line; a line that is too long ends the session."""
    assert process.stdout is not None
    buffer, invalid = bytearray(), 0
    try:
        while chunk := await process.stdout.read(_CHUNK_BYTES):
            start = len(buffer)
            buffer += chunk
            while (end := buffer.find(b"\n", start)) >= 0:
                line, start = bytes(buffer[:end]), 0
                del buffer[: end + 1]
                if not line.strip():
                    continue
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValidationError:
                    invalid += 1
                    if invalid > _MAX_INVALID_LINES:
                        return
                    continue
                await to_session.send(SessionMessage(message))
            if len(buffer) > limit:
                return
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError):
        pass
    finally:
        to_session.close()


async def _write(
    process: asyncio.subprocess.Process, from_session: MemoryObjectReceiveStream[SessionMessage]
) -> None:
    assert process.stdin is not None
    with suppress(anyio.ClosedResourceError, ConnectionError):
        async for each in from_session:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()


async def _discard(process: asyncio.subprocess.Process) -> None:
    """Read what the program says of itself, lest it blocks; it may hold credentials."""
    assert process.stderr is not None
    while await process.stderr.read(_CHUNK_BYTES):
        pass


async def _ended(process: asyncio.subprocess.Process, tasks: list[asyncio.Task[None]]) -> None:
    """Stop the program even while the caller is being cancelled."""
    stopping = asyncio.ensure_future(_stop(process, tasks))
    try:
        await asyncio.shield(stopping)
    except asyncio.CancelledError:
        await stopping
        raise


async def _stop(process: asyncio.subprocess.Process, tasks: list[asyncio.Task[None]]) -> None:
    """Close its input, then end the whole group: politely, then by force."""
    assert process.stdin is not None
    process.stdin.close()
    if not await _exited(process, _CLOSE_S):
        _signal(process, signal.SIGTERM)
        await _exited(process, _TERMINATE_S)
    # Also where the program has exited: its children may be left in the group.
    _signal(process, signal.SIGKILL)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await _exited(process, _TERMINATE_S)
    # Nothing public closes it, and a process that left the group may hold the other end of a pipe.
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


async def _exited(process: asyncio.subprocess.Process, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            await process.wait()
    except TimeoutError:
        return False
    return True


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
