from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

_MOST = 20
_INTERVAL_S = 10.0
_KINDS = 32
_OTHER = "other"


class Sampled:
    """Lets the first lines of a kind through per interval, and counts the others in one line.

    For lines that unauthenticated callers cause, so that they cannot fill a disk.

    Args:
        log: Where the summary goes.
        event: What the lines are, for the summary.
        most: Lines of one kind that are written per interval.
        interval_s: Length of an interval in seconds.
    """

    def __init__(
        self,
        log: FilteringBoundLogger,
        event: str,
        *,
        most: int = _MOST,
        interval_s: float = _INTERVAL_S,
    ) -> None:
        self._log = log
        self._event = event
        self._most = most
        self._interval_s = interval_s
        self._began = -interval_s
        self._written: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def admits(self, kind: str) -> bool:
        """Whether to write this line; otherwise it is counted."""
        now = time.monotonic()
        if now - self._began >= self._interval_s:
            self.close()
            self._began = now
        if kind not in self._written and len(self._written) >= _KINDS:
            kind = _OTHER
        self._written[kind] += 1
        if self._written[kind] <= self._most:
            return True
        self._left_out[kind] += 1
        if self._timer is None:
            rest = self._began + self._interval_s - now
            self._timer = asyncio.get_running_loop().call_later(rest, self.close)
        return False

    def close(self) -> None:
        """End the interval: say how many lines were left out, if any."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._left_out:
            left_out = dict(self._left_out)
            self._log.info("lines left out", of=self._event, lines=left_out)
        self._left_out.clear()
        self._written.clear()
