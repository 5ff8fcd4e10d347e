"""Lease of this replica, renewed by a thread of its own.

A thread, an event loop and a connection of its own: a main loop that is busy for a while does not
lose the lease, and a process that was frozen finds out before it does anything else. Whether a
lease has run out is judged on the database's clock by all others. This process itself judges
more strictly: by its own clock, counted from when the last renewal that succeeded was *sent*, and a
tenth earlier. So it has stopped its runs before another replica can take them.

A lost lease stays lost until :meth:`Lease.taken`, also if a late renewal gets through after all.
"""

from __future__ import annotations

import asyncio
import math
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from attrs import define, field

from bos_gateway.ownership.clock import monotonic
from bos_gateway.run_log.session import SCHEMA, session_name
from bos_postgres import connect

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Self
    from uuid import UUID

    from structlog.typing import FilteringBoundLogger

    from bos_chassis.telemetry import Telemetry
    from bos_gateway.ownership.clock import DatabaseClock
    from bos_gateway.run_log.statements import Session

# Only a lease that has not run out: after that, our runs may have other owners already. One that
# waited for a lock is carried out with the time at which it came: it must not shorten the lease
# that was taken meanwhile.
_RENEW: Final = """
UPDATE replicas SET lease_until = greatest(lease_until, now() + make_interval(secs => $2))
WHERE replica_id = $1 AND lease_until >= now()
RETURNING now()
"""
_OURS: Final = 0.9
"""The part of a lease's life that this process relies on."""
_RECONNECT_S: Final = 0.1
_JOIN_S: Final = 5.0


@define(eq=False)
class Lease:
    """This process's lease. An async context manager; leaving it ends the renewals.

    It holds nothing until :meth:`taken`.
    """

    _dsn: str = field(repr=False)
    _replica_id: UUID
    _lease_s: float = field(kw_only=True)
    """Life of the lease."""
    _renewal_s: float = field(kw_only=True)
    """Time between two renewals."""
    _telemetry: Telemetry = field(kw_only=True)
    _clock: DatabaseClock = field(kw_only=True)
    """Gets the database's time with every renewal."""
    _stuck_after_s: float = field(kw_only=True, default=30.0)
    """A main loop that does not answer for so long is taken for dead: no more renewals."""
    _log: FilteringBoundLogger = field(init=False)
    _lock: threading.Lock = field(init=False, factory=threading.Lock)
    # Of what follows; both threads change it.
    _held_until: float = field(init=False, default=0.0)
    """Past this the lease is lost, and stays so: what has passed is not extended."""
    _renewed_at: datetime | None = field(init=False, default=None)
    _taken_at: float = field(init=False, default=0.0)
    _steady_since: float = field(init=False, default=math.inf)
    _asked_at: float | None = field(init=False, default=None)
    """When the main loop was asked whether it turns; None once it did."""
    _ending: threading.Event = field(init=False, factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._log = self._telemetry.logger("bos.gateway.lease")

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._renew_until_ended(loop)), name="lease", daemon=True
        )
        self._thread.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._ending.set()
        # A daemon: what hangs in it cannot hold up the end of the process.
        await asyncio.to_thread(self._thread.join, _JOIN_S)

    @property
    def held(self) -> bool:
        """Whether the lease is in force, so that no other replica can have adopted its runs."""
        with self._lock:
            return monotonic() < self._held_until

    def others_judged_until(self) -> datetime | None:
        """Until when on the database's clock a lease that has run out means that its replica died.

        None for now, unless the database was there without a break for as long as a lease lives:
        after an outage, which a process that has just been started cannot know of, every
        lease has run out, and the living must be given the time to take another. And not for long:
        a statement sent now may be carried out after an outage that is not noticed yet.
        """
        with self._lock:
            if self._renewed_at is None or monotonic() - self._steady_since < self._lease_s:
                return None
            return self._renewed_at + timedelta(seconds=self._lease_s - self._renewal_s)

    @property
    def _break_s(self) -> float:
        """The longest renewal that was no outage: others whose renewals took as long kept theirs.

        A lease was renewed at most one renewal before the outage began, and ours was sent at most
        one after that.
        """
        return max(self._renewal_s, self._lease_s - 2 * self._renewal_s)

    def taken(self, sent: float, written_at: datetime) -> None:
        """Record that the lease was renewed.

        Args:
            sent: When the statement was sent, by :func:`monotonic`.
            written_at: When it was carried out, by the database's clock.
        """
        self._clock.measured(sent, monotonic(), written_at)
        with self._lock:
            self._taken_at = self._steady_since = monotonic()
            self._extend(sent, written_at)

    async def until_lost(self) -> None:
        """Return once the lease is lost."""
        # No event could say so: it is time that passes, perhaps while this process is frozen.
        while self.held:  # noqa: ASYNC110
            await asyncio.sleep(self._renewal_s / 4)

    def _extend(self, sent: float, written_at: datetime) -> None:
        self._held_until = sent + self._lease_s * _OURS
        self._renewed_at = written_at

    async def _renew_until_ended(self, main_loop: asyncio.AbstractEventLoop) -> None:
        while not self._ending.is_set():
            try:
                async with connect(
                    self._dsn,
                    application_name=session_name("lease", self._replica_id),
                    schema=SCHEMA,
                    statement_timeout_s=self._lease_s,
                    connect_timeout_s=self._lease_s,
                ) as session:
                    await self._renew_over(session, main_loop)
            except Exception as error:
                # After any error the next renewal must be tried: nothing else renews the lease.
                self._log.warning("lease not renewed", error=type(error).__name__)
                with self._lock:
                    self._steady_since = math.inf  # until a renewal is answered again
                await asyncio.to_thread(self._ending.wait, _RECONNECT_S)

    async def _renew_over(self, session: Session, main_loop: asyncio.AbstractEventLoop) -> None:
        while not self._ending.is_set():
            if self._turns(main_loop):
                sent = monotonic()
                async with asyncio.timeout(self._lease_s):
                    now = await session.fetchval(_RENEW, self._replica_id, self._lease_s)
                self._renewed(sent, now)
            await asyncio.to_thread(self._ending.wait, self._renewal_s)

    def _renewed(self, sent: float, written_at: datetime | None) -> None:
        received = monotonic()
        if written_at is not None:
            self._clock.measured(sent, received, written_at)
        with self._lock:
            now = monotonic()
            if now - sent > self._break_s or self._steady_since > now:
                self._steady_since = now
            if sent < self._taken_at:
                return  # the answer is about the lease before this one
            if written_at is None:
                self._held_until = 0.0
            elif now < self._held_until:
                self._extend(sent, written_at)

    def _turns(self, main_loop: asyncio.AbstractEventLoop) -> bool:
        """Whether the main loop responds; a hung one must lose its runs.

        Counted from when it was asked: no replica asks while the database is away.
        """

        def turned() -> None:
            self._asked_at = None

        now = monotonic()
        asked_at = self._asked_at
        if asked_at is None:
            asked_at = self._asked_at = now
        try:
            main_loop.call_soon_threadsafe(turned)
        except RuntimeError:  # closed: the process ends
            return False
        if now - asked_at < self._stuck_after_s:
            return True
        self._log.error("main loop is stuck, lease not renewed")
        return False
