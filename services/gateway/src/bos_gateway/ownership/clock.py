"""Database time on every replica, extrapolated by the monotonic clock.

Replicas compare times that others of them have stored, such as the deadline of a run, so they all
go by one clock, and that is the database's: the wall clock of a host may be minutes off, or be set
while a run is under way. Every renewal of the lease brings a measurement along for nothing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from attrs import define, field

from bos.runlog.v1 import LogEvent
from bos_chassis.telemetry import Telemetry
from bos_gateway.metrics import GatewayMetrics

_KEPT: Final = 16
# A clock that is disciplined runs this much fast or slow while a measurement is kept, at most.
_DRIFT_S: Final = 0.05
_WARN_S: Final = 1.0
# What goes on while the machine sleeps, where there is such a clock.
_MONOTONIC: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic() -> float:
    """Monotonic seconds, including time in suspend."""
    return time.clock_gettime(_MONOTONIC)


class _Measurement(NamedTuple):
    """Database time less monotonic time: somewhere between the two, in seconds."""

    least: float
    most: float

    @property
    def width(self) -> float:
        return self.most - self.least

    @property
    def middle(self) -> float:
        return (self.least + self.most) / 2

    def contradicts(self, other: _Measurement) -> bool:
        """Whether both cannot be true of one clock that was not set in between."""
        return max(self.least, other.least) > min(self.most, other.most) + _DRIFT_S


@define(eq=False)
class DatabaseClock:
    """The database's clock as this process knows it. May be used from any thread.

    Of the latest measurements the one with the shortest round trip counts: it leaves the least
    doubt, and a network that is slow now and then moves nothing. One that contradicts it says that
    the database's own clock was set, or is another server's now, and counts alone.
    """

    _telemetry: Telemetry
    _metrics: GatewayMetrics
    """Gets the offset of this host's wall clock."""
    _wall_clock: Callable[[], float] = time.time
    """Seconds since 1970 by this host; in force until the first measurement."""
    _lock: threading.Lock = field(init=False, factory=threading.Lock)  # of everything below
    _measurements: deque[_Measurement] = field(init=False, factory=lambda: deque(maxlen=_KEPT))
    _best: _Measurement | None = field(init=False, default=None)
    _last_s: float = field(init=False, default=0.0)
    _warned: bool = field(init=False, default=False)

    def measured(self, sent: float, received: float, at: datetime) -> None:
        """Add a measurement.

        Args:
            sent: When the question went out, by :func:`monotonic`.
            received: When its answer was there, by the same.
            at: What the database said the time was, somewhere in between.
        """
        read = at.timestamp()
        new = _Measurement(read - received, read - sent)
        with self._lock:
            if self._best is not None and self._best.contradicts(new):
                self._measurements.clear()
                self._last_s = 0.0
            self._measurements.append(new)
            self._best = min(self._measurements, key=lambda each: each.width)
            ahead_s = self._wall_clock() - (monotonic() + self._best.middle)
            off, warned = abs(ahead_s) > _WARN_S, self._warned
            self._warned = off
        self._metrics.clock_offset_seconds.set(ahead_s)
        if off and not warned:
            self._telemetry.logger("bos.gateway.clock").warning(
                "this host's clock is off; runs go by the database's", ahead_s=round(ahead_s, 3)
            )

    def timestamp(self) -> float:
        """Seconds since 1970. Goes backwards only if the database's clock was set back."""
        with self._lock:
            if self._best is None:
                return self._wall_clock()
            self._last_s = max(self._last_s, monotonic() + self._best.middle)
            return self._last_s

    def now(self) -> datetime:
        """The time in UTC."""
        return datetime.fromtimestamp(self.timestamp(), UTC)

    def stamped(self, event: LogEvent) -> LogEvent:
        """``event``, happening at this moment."""
        event.create_time.FromDatetime(self.now())
        return event

    def left_s(self, until: datetime) -> float:
        """Seconds until then; negative if it is over."""
        return (until - self.now()) / timedelta(seconds=1)
