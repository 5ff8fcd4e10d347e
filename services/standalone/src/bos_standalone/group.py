"""Lifecycle of services in one process: concurrent start, shutdown in reverse order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from bos_errors import BosError, FailedPrecondition

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from structlog.typing import FilteringBoundLogger


class ServiceNotStarted(FailedPrecondition):
    """A service failed to start; the message has its name and the reason."""

    default_reason = "SERVICE_NOT_STARTED"


@dataclass(slots=True)
class _Member:
    name: str
    task: asyncio.Task[None] | None = None
    running: asyncio.Future[Any] = field(default_factory=asyncio.Future)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    started: bool = False


class ServiceGroup:
    """Running services; leaving the block stops them in the reverse order of their start.

    Each service starts and stops in one task, as its context managers must not be closed by
    another one.

    Args:
        log: For services that fail.
    """

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._members: list[_Member] = []
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        while self._members:
            member = self._members.pop()
            member.stop.set()
            if member.task is None:
                continue
            if not member.started:
                member.task.cancel()
            await asyncio.gather(member.task, return_exceptions=True)
        self._ended.cancel()

    async def start(self, **services: Callable[[], AbstractAsyncContextManager[Any]]) -> list[Any]:
        """Start services side by side; returns what each of them yields, in the given order.

        Raises:
            ServiceNotStarted: one could not be started; names it. The others are ended by leaving
                the block.
        """
        members = [_Member(name) for name in services]
        self._members += members
        for member, make in zip(members, services.values(), strict=True):
            member.task = asyncio.create_task(
                self._run(member, make), name=f"service {member.name}"
            )
        return await asyncio.gather(*(member.running for member in members))

    async def unexpected_end(self) -> str:
        """Wait until a service ends by itself; returns its name."""
        return await asyncio.shield(self._ended)

    async def _run(
        self, member: _Member, make: Callable[[], AbstractAsyncContextManager[Any]]
    ) -> None:
        try:
            async with make() as running:
                member.started = True
                if not member.running.done():
                    member.running.set_result(running)
                await member.stop.wait()
        except Exception as error:
            if not member.started:
                if not member.running.done():
                    member.running.set_exception(not_started(member.name, error))
                return
            self._log.exception("service ended", name=member.name)
        finally:
            if not member.running.done():
                member.running.cancel()
            if not member.stop.is_set() and not self._ended.done():
                self._ended.set_result(member.name)


def not_started(name: str, error: Exception) -> ServiceNotStarted:
    """The failure of a service by its name, with what a user may know of why."""
    why = error.message if isinstance(error, BosError) else f"{type(error).__name__}; see the log."
    failure = ServiceNotStarted(
        f"The service {name} could not be started: {why}", metadata={"service": name}
    )
    failure.__cause__ = error
    return failure
