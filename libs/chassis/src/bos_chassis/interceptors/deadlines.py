from __future__ import annotations

from bos_chassis.deadlines import set_remaining
from bos_chassis.interceptors.concern import Concern, ServerCall


class Deadlines(Concern):
    """Bounds every call: the client's deadline, or a default, never more than a maximum."""

    def __init__(self, default_s: float, maximum_s: float) -> None:
        self._default_s = default_s
        self._maximum_s = maximum_s

    async def begin(self, call: ServerCall) -> None:
        """Decide the time and let calls made inside see it."""
        allowed = call.time_remaining_s
        call.timeout_s = min(self._default_s if allowed is None else allowed, self._maximum_s)
        set_remaining(call.timeout_s)
