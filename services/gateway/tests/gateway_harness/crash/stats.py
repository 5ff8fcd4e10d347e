"""What a random crash test counts over all its rounds."""

import statistics
from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

from gateway_harness.crash.approvers import Decided
from gateway_harness.run_contract import Verdict


@dataclass
class Death:
    """A gateway that died, and the runs it owned then."""

    at: float
    runs: list[UUID]


@dataclass
class Stats:
    """What has happened over all rounds."""

    rounds: int = 0
    kills: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    adoptions: Counter[str] = field(default_factory=Counter)
    adopted_after_s: list[float] = field(default_factory=list)
    runs: int = 0
    events: int = 0
    cancelled: int = 0
    unknown: int = 0
    late: int = 0
    lost: int = 0
    doubled: int = 0
    innocent_failed: int = 0
    approvals: Counter[str] = field(default_factory=Counter)
    effects: int = 0
    asked_again: int = 0
    unknown_effects: int = 0

    def add(self, verdict: Verdict) -> None:
        self.rounds += 1
        self.runs += verdict.runs
        self.events += verdict.events
        self.unknown += verdict.unknown
        self.late += len(verdict.late)
        self.lost += len(verdict.lost)
        self.doubled += len(verdict.doubled)
        self.innocent_failed += len(verdict.innocent_failed)

    def decided(self, decided: Decided) -> None:
        self.approvals += decided.statuses
        self.effects += decided.effects
        self.asked_again += decided.asked_again
        self.unknown_effects += decided.unknown

    def __str__(self) -> str:
        after = sorted(self.adopted_after_s)
        percentiles = statistics.quantiles(after, n=20) if len(after) > 1 else after * 20
        p50, p95 = (statistics.median(after), percentiles[-1]) if after else (0.0, 0.0)
        return "\n".join(
            [
                f"rounds {self.rounds}, runs {self.runs}, events {self.events}, "
                f"cancelled {self.cancelled}",
                f"kills {self.kills}; " + _listed(self.happened),
                f"adoptions {self.adoptions.total()}: {_listed(self.adoptions)}",
                f"adopted after the owner's death ({len(after)}): p50 {p50:.2f} s, p95 {p95:.2f} s",
                f"requests to people {self.approvals.total()}: {_listed(self.approvals)}",
                f"their effects {self.effects}, asked again {self.asked_again}, "
                f"outcome left unknown {self.unknown_effects}",
                f"steps of unknown outcome {self.unknown}, late attempts {self.late}",
                f"lost {self.lost}, doubled {self.doubled}, "
                f"innocent runs failed {self.innocent_failed}",
            ]
        )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
