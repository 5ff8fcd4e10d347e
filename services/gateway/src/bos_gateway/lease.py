"""The lease that says this process is alive, renewed by a thread of its own.

A thread, an event loop and a connection of its own: a main loop that is busy for a while does not
lose the lease, and a process that was frozen finds out before it does anything else. Whether a
lease has run out is judged on the database's clock by everybody else. This process itself judges
more strictly: by its own clock, counted from when the last renewal that succeeded was *sent*, and a
tenth earlier. So it has stopped its runs before anybody can take them.

A lost lease stays lost until :meth:`Lease.taken`, also if a late renewal gets through after all.
"""

from __future__ import annotations

import asyncio
import math
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from bos_gateway.clock import monotonic
from bos_gateway.run_log import SCHEMA
from bos_gateway.sessions import session_name
from bos_postgres import connect

if TYPE_CHECKING:
    from datetime import datetime
    from types import TracebackType
    from typing import Self
    from uuid import UUID

    import asyncpg

    from bos_chassis.telemetry import Telemetry
    from bos_gateway.clock import DatabaseClock

# Only a lease that has not run out: after that, our runs may have other owners already.
_RENEW: Final = """
UPDATE replicas SET lease_until = now() + make_interval(secs => $2)
WHERE replica_id = $1 AND lease_until >= now()
RETURNING now()
"""
_MARGIN: Final = 0.1
_RECONNECT_S: Final = 0.1
_JOIN_S: Final = 5.0


class Lease:
    """This process's lease. An async context manager; leaving it ends the renewals.

    It holds nothing until :meth:`taken`.

    Args:
        dsn: PostgreSQL with the gateway's schema.
        replica_id: This process.
        lease_s: Life of the lease in seconds.
        renewal_s: Time between two renewals in seconds.
        telemetry: For the log.
        clock: Told what time it is by the database, with every renewal.
        stuck_after_s: Time after which a main loop that does not turn is taken for dead, and the
            lease is no longer renewed.
    """

    def __init__(
        self,
        dsn: str,
        replica_id: UUID,
        *,
        lease_s: float,
        renewal_s: float,
        telemetry: Telemetry,
        clock: DatabaseClock,
        stuck_after_s: float = 30.0,
    ) -> None:
        self._dsn = dsn
        self._replica_id = replica_id
        self._lease_s = lease_s
        self._renewal_s = renewal_s
        self._stuck_after_s = stuck_after_s
        self._clock = clock
        self._log = telemetry.logger("bos.gateway.lease")
        self._lock = threading.Lock()  # of everything below; both threads change it
        self._held_until = 0.0
        self._renewed_at: datetime | None = None
        self._taken_at = 0.0
        self._lost = True
        self._steady_since = math.inf
        self._turned_at = monotonic()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._renew_for_ever(loop)), name="lease", daemon=True
        )
        self._thread.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ending.set()
        if self._thread is not None:
            # A daemon: what hangs in it cannot hold up the end of the process.
            await asyncio.to_thread(self._thread.join, _JOIN_S)

    @property
    def held(self) -> bool:
        """Whether nobody else can have taken our runs for want of a lease."""
        with self._lock:
            self._lost = self._lost or monotonic() >= self._held_until
            return not self._lost

    def others_judged_until(self) -> datetime | None:
        """Until when on the database's clock a lease that has run out means that its replica died.

        None for now, unless the database was there without a break for as long as a lease lives:
        after an outage, which a process that has just been started cannot know of, everybody's
        lease has run out, and the living must be given the time to take another. And not for long:
        a statement sent now may be carried out after an outage that nobody has noticed yet.
        """
        with self._lock:
            if self._renewed_at is None or monotonic() - self._steady_since < self._lease_s:
                return None
            return self._renewed_at + timedelta(seconds=self._lease_s - self._renewal_s)

    def taken(self, sent: float, written_at: datetime) -> None:
        """The lease was written anew.

        Args:
            sent: When the statement was sent, by :func:`monotonic`.
            written_at: When it was carried out, by the database's clock.
        """
        self._clock.measured(sent, monotonic(), written_at)
        with self._lock:
            self._steady_since = monotonic()
            self._renewed_at = written_at
            self._held_until = self._end(sent)
            self._taken_at = monotonic()
            self._lost = False

    async def until_lost(self) -> None:
        """Return once the lease is lost."""
        # No event could say so: it is time that passes, perhaps while this process is frozen.
        while self.held:  # noqa: ASYNC110
            await asyncio.sleep(self._renewal_s / 4)

    def _end(self, sent: float) -> float:
        return sent + self._lease_s * (1 - _MARGIN)

    async def _renew_for_ever(self, main_loop: asyncio.AbstractEventLoop) -> None:
        while not self._ending.is_set():
            try:
                async with connect(
                    self._dsn,
                    application_name=session_name("lease", self._replica_id),
                    schema=SCHEMA,
                    statement_timeout_s=self._lease_s,
                    connect_timeout_s=self._lease_s,
                ) as connection:
                    await self._renew_over(connection, main_loop)
            except Exception as error:
                # Whatever it was, the next renewal must be tried: nobody else does it.
                self._log.warning("lease not renewed", error=type(error).__name__)
                self._interrupted()
                await self._pause(_RECONNECT_S)

    async def _renew_over(
        self,
        connection: asyncpg.Connection[asyncpg.Record],
        main_loop: asyncio.AbstractEventLoop,
    ) -> None:
        while not self._ending.is_set():
            if self._turns(main_loop):
                sent = monotonic()
                async with asyncio.timeout(self._lease_s):
                    now = await connection.fetchval(_RENEW, self._replica_id, self._lease_s)
                self._renewed(sent, now)
            await self._pause(self._renewal_s)

    def _renewed(self, sent: float, written_at: datetime | None) -> None:
        received = monotonic()
        if written_at is not None:
            self._clock.measured(sent, received, written_at)
        with self._lock:
            now = monotonic()
            if now - sent > self._renewal_s or self._steady_since > now:
                self._steady_since = now
            if sent < self._taken_at:
                return  # the answer is about the lease before this one
            self._lost = self._lost or written_at is None or now >= self._held_until
            if not self._lost:
                self._held_until = self._end(sent)
                self._renewed_at = written_at

    def _interrupted(self) -> None:
        with self._lock:
            self._steady_since = math.inf  # until a renewal is answered again

    def _turns(self, main_loop: asyncio.AbstractEventLoop) -> bool:
        """Whether the main loop turned lately; one that is stuck for good must lose its runs."""

        def turned() -> None:
            self._turned_at = monotonic()

        try:
            main_loop.call_soon_threadsafe(turned)
        except RuntimeError:  # closed: the process ends
            return False
        if monotonic() - self._turned_at < self._stuck_after_s:
            return True
        self._log.error("main loop is stuck, lease not renewed")
        return False

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not past the end, of which another thread decides."""
        end = monotonic() + seconds
        while not self._ending.is_set() and (left := end - monotonic()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(left, 0.05))
