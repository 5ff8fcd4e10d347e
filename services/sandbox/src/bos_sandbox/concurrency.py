"""Fair limit of concurrent programs in a tier, shared by its users."""

from __future__ import annotations

from bos_chassis.concurrency.fair_limiter import FairLimiter
from bos_errors import ResourceExhausted


def limiter(programs: int, queue_timeout_s: float) -> FairLimiter:
    """The limit of one tier; a caller who waited ``queue_timeout_s`` gets ``SANDBOX_BUSY``."""
    return FairLimiter(programs, queue_timeout_s, _busy)


def _busy() -> ResourceExhausted:
    return ResourceExhausted(
        "All sandbox workers are busy.", reason="SANDBOX_BUSY", retry_after_s=1
    )
