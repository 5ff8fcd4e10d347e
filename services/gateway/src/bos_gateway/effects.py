"""The work that commands ask for, and what it works with.

An effect never touches the run's state and never raises for what its service did wrong: that
becomes an event (SPEC Q-04, Q-05). It may be cancelled at any moment, and cancels its call then.
The effects themselves are in ``planning``, ``stepping`` and ``composing``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from datetime import datetime

    from bos.composer.v1 import ComposerServiceAsyncStub
    from bos.planner.v1 import PlannerServiceAsyncStub
    from bos.runlog.v1 import LogEvent
    from bos_chassis.telemetry import Telemetry
    from bos_gateway.clock import DatabaseClock
    from bos_gateway.files import RunFiles
    from bos_gateway.metrics import GatewayMetrics
    from bos_gateway.registry import Registry
    from bos_gateway.result_room import ResultRoom
    from bos_gateway.run_secrets import RunSecrets
    from bos_gateway.settings import GatewaySettings
    from bos_gateway.state import RunState
    from bos_gateway.step_files import FileRoom
    from bos_gateway.tokens import Metadata, Tokens

    Emit = Callable[[LogEvent], Awaitable[None]]
    """Hands an event to the run's loop, which stores it; waits while the loop is behind."""
    Committed = Callable[[LogEvent], Awaitable[None]]
    """The same, and waits until the event is in the log; cancelled when the run is lost."""
    Say = Callable[[int, str], None]
    """Shows more text of an attempt at the answer to those who follow; it is not stored."""

PLANNER = "planner"
COMPOSER = "composer"


@dataclass(frozen=True, slots=True)
class Collaborators:
    """What effects work with; shared by all runs of the process."""

    planner: PlannerServiceAsyncStub
    composer: ComposerServiceAsyncStub
    registry: Registry
    tokens: Tokens
    settings: GatewaySettings
    metrics: GatewayMetrics
    telemetry: Telemetry
    clock: DatabaseClock
    vault: RunSecrets
    files: RunFiles
    file_room: FileRoom
    result_room: ResultRoom


@dataclass(frozen=True, slots=True)
class EffectContext:
    """One run as its effects see it."""

    state: RunState
    """Read only: it belongs to the run's loop."""
    secrets: Mapping[str, str] = field(repr=False)
    """Credentials of the run, by context key."""
    services: Collaborators
    emit: Emit
    committed: Committed
    say: Say

    def token(self, step_key: str, audiences: Sequence[str], timeout_s: float) -> Metadata:
        """Metadata of a call made for this run."""
        user_id = self.state.request.user_id
        return self.services.tokens.metadata(
            user_id, self.state.run_id, step_key, audiences, timeout_s
        )

    def now(self) -> datetime:
        """The time in UTC, the same for all replicas."""
        return self.services.clock.now()

    def left_s(self, deadline: datetime) -> float:
        """Seconds until ``deadline``; never 0, because gRPC takes that for no time-out at all."""
        return max(0.001, self.services.clock.left_s(deadline))

    def stamped(self, event: LogEvent) -> LogEvent:
        """``event``, happening at this moment."""
        return self.services.clock.stamped(event)
