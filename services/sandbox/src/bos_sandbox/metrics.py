from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from bos.sandbox.v1 import ProgramStatus, RunProgramResponse, Tier
from bos_chassis.metrics import current_exemplar

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

# From a warm run of a few lines (about 2 ms) to the default time limit (10 s).
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class SandboxMetrics:
    """Programs by how they ended, and how long they took."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._programs = Counter(
            "bos_sandbox_programs",
            "Programs by tier, how they ended, and the broken rule or exceeded limit.",
            ("tier", "status", "reason"),
            registry=registry,
        )
        self._seconds = Histogram(
            "bos_sandbox_program_seconds",
            "Time of a program, checks included.",
            ("tier", "status"),
            buckets=_BUCKETS,
            registry=registry,
        )

        self._second_runs = Counter(
            "bos_sandbox_second_runs",
            "Programs that failed in the interpreter and ran again in the process tier.",
            registry=registry,
        )
        self._starts = Histogram(
            "bos_sandbox_process_start_seconds",
            "Wait for an isolated interpreter; none for one that was warm.",
            ("warm",),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._available = Gauge(
            "bos_sandbox_process_tier_available",
            "1 when the process tier works here.",
            registry=registry,
        )
        self._waiting = Gauge(
            "bos_sandbox_process_waiting",
            "Isolated interpreters that are ready and wait for a program.",
            registry=registry,
        )

    def second_run(self) -> None:
        """Count one program that runs again in the process tier."""
        self._second_runs.inc()

    def started(self, *, warm: bool, seconds: float) -> None:
        """Note how long a program waited for its isolated interpreter."""
        self._starts.labels(str(warm).lower()).observe(seconds)

    def process_tier(self, *, available: bool) -> None:
        """Note whether the process tier works here."""
        self._available.set(available)

    def waiting(self, interpreters: int) -> None:
        """Note how many isolated interpreters wait for a program."""
        self._waiting.set(interpreters)

    def observe(self, response: RunProgramResponse, seconds: float) -> None:
        """Count one program."""
        tier = _word(Tier.Name(response.tier), "TIER_")
        status = _word(ProgramStatus.Name(response.status), "PROGRAM_STATUS_")
        # Names of exceptions are the program's choice and would make endless labels.
        failed = response.status == ProgramStatus.PROGRAM_STATUS_FAILED
        reason = "" if failed else response.error_type
        self._programs.labels(tier, status, reason).inc()
        self._seconds.labels(tier, status).observe(seconds, current_exemplar())


def _word(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).lower()
