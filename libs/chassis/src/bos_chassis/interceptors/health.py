from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

_States = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """The standard health service; no check waits for another.

    That of the library writes to its watchers while it holds a lock, so one that does not read
    keeps the others, and the server itself at shutdown, waiting.
    """

    def __init__(self) -> None:
        self._states: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._ended = False

    def set_serving(self, name: str, serving: bool) -> None:
        """Report ``name`` as SERVING or NOT_SERVING; once the end has begun nothing changes it."""
        if not self._ended:
            self._set(name, serving)

    def end(self) -> None:
        """Report everything as NOT_SERVING from now on."""
        self._ended = True
        for name in list(self._states):
            self._set(name, False)

    async def Check(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:  # noqa: N802
        """Status of a service; NOT_FOUND if it is none of this server."""
        state = self._states.get(request.service)
        if state is None:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return _States(status=state)

    async def List(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:  # noqa: N802
        """Not offered: probes know the services they ask for."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED)

    async def Watch(  # noqa: N802
        self, request: Any, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Any]:
        """Status of a service, and each change of it."""
        sent: int | None = None
        while True:
            changed = self._changed
            state = self._states.get(request.service, _States.SERVICE_UNKNOWN)
            if state != sent:
                sent = state
                yield _States(status=state)
            await changed.wait()

    def _set(self, name: str, serving: bool) -> None:
        self._states[name] = _States.SERVING if serving else _States.NOT_SERVING
        self._changed.set()
        self._changed = asyncio.Event()
