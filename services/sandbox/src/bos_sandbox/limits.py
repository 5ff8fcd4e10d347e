from __future__ import annotations

from dataclasses import dataclass, replace

from bos.sandbox.v1 import Limits
from bos_sandbox.settings import SandboxSettings


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits of one program: seconds and bytes."""

    timeout_s: float
    memory_bytes: int
    output_bytes: int

    def after(self, seconds: float) -> RunLimits:
        """What is left after ``seconds``; a second at least, where there was so much."""
        return replace(self, timeout_s=max(self.timeout_s - seconds, min(self.timeout_s, 1.0)))


@dataclass(frozen=True, slots=True)
class ReturnedFiles:
    """Bounds of the files that a program may hand back: how many, and bytes."""

    count: int = 16
    each: int = 4 * 1024 * 1024
    total: int = 6 * 1024 * 1024


def run_limits(asked: Limits, settings: SandboxSettings) -> RunLimits:
    """What a request asked for, within what the service allows."""
    seconds = asked.timeout.ToNanoseconds() / 1e9
    return RunLimits(
        timeout_s=min(seconds, settings.timeout_s) if seconds > 0 else settings.timeout_s,
        memory_bytes=min(asked.memory_bytes or settings.memory_bytes, settings.memory_bytes),
        output_bytes=min(asked.output_bytes or settings.output_bytes, settings.output_bytes),
    )
