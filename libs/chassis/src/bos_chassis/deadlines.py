"""The deadline of the server call in progress, as seen by everything that runs inside it."""

from __future__ import annotations

import time
from contextvars import ContextVar

# Monotonic seconds. Absolute, so that it shrinks by itself while the handler works.
_deadline: ContextVar[float | None] = ContextVar("bos_deadline", default=None)


def set_remaining(seconds: float) -> None:
    """Give the current task (and what it starts) this many seconds from now."""
    _deadline.set(time.monotonic() + seconds)


def remaining_s() -> float | None:
    """Seconds left of the server call in progress, at least 0; None outside of one."""
    deadline = _deadline.get()
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def timeout_for(wanted_s: float | None, default_s: float) -> float:
    """Timeout in seconds for an outgoing call: ``wanted_s`` or the default, never past our own."""
    timeout = default_s if wanted_s is None else wanted_s
    remaining = remaining_s()
    return timeout if remaining is None else min(timeout, remaining)
