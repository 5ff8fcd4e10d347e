"""Listings of tools in which one malformed tool costs no other.

The SDK refuses a whole ``tools/list`` result for one tool that is not as the protocol says.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCResponse
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from structlog.typing import FilteringBoundLogger

_REVISION = "2025-11-25"
_NEEDED = ("name", "title", "description", "inputSchema")


@asynccontextmanager
async def tolerant_streams(
    streams: AbstractAsyncContextManager[Any], log: FilteringBoundLogger
) -> AsyncIterator[Any]:
    """The streams of a session, with listings made valid tool by tool."""
    async with streams as (incoming, outgoing):
        yield _Tolerant(incoming, log), outgoing


class _Tolerant:
    """A stream of messages, as the SDK reads one."""

    def __init__(self, stream: Any, log: FilteringBoundLogger) -> None:
        self._stream = stream
        self._log = log

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stream.__aexit__(*exc_info)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._tolerated(await anext(self._stream))

    async def receive(self) -> SessionMessage | Exception:
        """The next message, or what went wrong with it."""
        return self._tolerated(await self._stream.receive())

    async def aclose(self) -> None:
        """Close the stream below."""
        await self._stream.aclose()

    @property
    def last_context(self) -> Any:
        """The context of the last message, for the SDK."""
        return getattr(self._stream, "last_context", None)

    def _tolerated(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
            listed = item.message.result.get("tools")
            if isinstance(listed, list):
                kept = [tool for each in listed if (tool := valid_tool(each)) is not None]
                if len(kept) < len(listed):
                    self._log.warning("malformed tools left out", count=len(listed) - len(kept))
                item.message.result["tools"] = kept
        return item


def valid_tool(tool: Any) -> dict[str, Any] | None:
    """The tool as the protocol has it; None if it cannot be used.

    A missing or empty schema is one without arguments. What is malformed beside name, description
    and schema is left out.
    """
    if not isinstance(tool, Mapping):
        return None
    schema = tool.get("inputSchema")
    if schema is None or schema is True:
        schema = {}
    if isinstance(schema, Mapping) and ("type" not in schema or "object" in _types(schema)):
        schema = {**schema, "type": "object"}
    whole = {**tool, "inputSchema": schema}
    for candidate in (whole, {name: whole[name] for name in _NEEDED if name in whole}):
        try:
            validate_server_result("tools/list", _REVISION, {"tools": [candidate]})
        except ValidationError:
            continue
        return candidate
    return None


def _types(schema: Mapping[str, Any]) -> list[Any]:
    named = schema["type"]
    return named if isinstance(named, list) else [named]
