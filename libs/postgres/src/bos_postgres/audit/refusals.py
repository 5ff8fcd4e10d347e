"""Audit entries about refusals, counted so that they cannot fill the disk."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from attrs import define, evolve, field

from bos_chassis.concurrency.tasks import running_task
from bos_errors import BosError
from bos_postgres.audit.entries import AuditEntry, record
from bos_postgres.connections import acquire, statement_errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

    from bos_chassis.telemetry import Telemetry

MOST_AT_ONCE: Final = 200
"""Different entries of a minute; more are recorded by action and count alone."""
_WINDOW_S: Final = 60.0
_EVERY_S: Final = 1.0
_SHUTDOWN_TIMEOUT_S: Final = 3.0

_Key = tuple[str, str, str, str]


@define(eq=False)
class _Counted:
    entry: AuditEntry
    due: float
    """When it may be written again."""
    count: int = 0
    """Of what was not written yet."""


@define(eq=False)
class Refusals:
    """Counts refusals by who was refused what, where from: one row of each per minute.

    The first one is written within a second, the others of its minute in one row at its end. They
    are written apart from the calls that were refused, which therefore take as long whether an
    account exists or not. A process that is killed takes what it has not written along.
    """

    _pool: asyncpg.Pool[asyncpg.Record]
    _telemetry: Telemetry
    _counted: dict[_Key, _Counted] = field(init=False, factory=dict)

    def count(self, entry: AuditEntry) -> None:
        """Count one more refusal; never fails and never waits."""
        key = (entry.action, entry.actor, entry.target, entry.address)
        if key not in self._counted and len(self._counted) >= MOST_AT_ONCE:
            entry = AuditEntry(entry.action, "", actor_kind="anonymous", outcome=entry.outcome)
            key = (entry.action, "", "", "")
        found = self._counted.setdefault(key, _Counted(entry, due=0.0))
        found.count += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write what was counted while the block runs, and the rest at its end."""
        stopping, done = asyncio.Event(), asyncio.Event()
        async with running_task(self._until(stopping, done), "audited refusals"):
            try:
                yield
            finally:
                # Asked to end, not cancelled: a writer that is cancelled behind its commit does not
                # know that its rows are stored, and they would be written again.
                stopping.set()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_SHUTDOWN_TIMEOUT_S):
                        await done.wait()

    async def _until(self, stopping: asyncio.Event, done: asyncio.Event) -> None:
        while not stopping.is_set():
            await self._try_to_write()
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _EVERY_S)
        await self._try_to_write(all_of_it=True)
        done.set()

    async def _try_to_write(self, *, all_of_it: bool = False) -> None:
        log = self._telemetry.logger("bos.audit")
        try:
            await self._write(all_of_it=all_of_it)
        except BosError as error:
            log.warning("refusals not audited", reason=error.reason)
        except Exception:
            log.exception("refusals not audited")  # after any error, the next round must come

    async def _write(self, *, all_of_it: bool) -> None:
        now = asyncio.get_running_loop().time()
        due = {key: each for key, each in self._counted.items() if all_of_it or each.due <= now}
        counts = {key: each.count for key, each in due.items() if each.count}
        if counts:
            entries = [
                evolve(due[key].entry, details={**due[key].entry.details, "count": str(count)})
                for key, count in counts.items()
            ]
            async with acquire(self._pool) as session:
                with statement_errors(session):
                    await record(session, entries)
        for key, each in due.items():
            if key in counts:
                each.count -= counts[key]
                each.due = now + _WINDOW_S
            else:
                del self._counted[key]
