"""Dependencies and context of effects: the work that commands ask for.

An effect never touches the run's state and never raises for what its service did wrong: that
becomes an event. It may be cancelled at any moment, and cancels its call then.
The effects themselves are in ``plan``, ``step`` and ``compose``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from bos_chassis.auth.access import AccessRules
from bos_chassis.auth.callers import Attempt
from bos_gateway.core.shown.masking import Masker
from bos_gateway.core.tracing.ids import RunTrace
from bos_gateway.permits.audiences import granted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from bos.agent.v1 import AgentCard
    from bos.composer.v1 import ComposerServiceAsyncStub
    from bos.planner.v1 import PlannerServiceAsyncStub
    from bos.runlog.v1 import LogEvent
    from bos_chassis.telemetry import Telemetry
    from bos_gateway.core.run_state import RunState
    from bos_gateway.effects.connections import ConnectionSecrets
    from bos_gateway.effects.memory_budget import MemoryBudget
    from bos_gateway.effects.registry import Registry
    from bos_gateway.effects.run_tokens import Metadata, Tokens
    from bos_gateway.metrics import GatewayMetrics
    from bos_gateway.ownership.clock import DatabaseClock
    from bos_gateway.run_log.run_files import RunFiles
    from bos_gateway.run_log.secrets import RunSecrets
    from bos_gateway.settings import GatewaySettings
    from bos_gateway.verified_queries.stored import VerifiedQueries

    Emit = Callable[[LogEvent], Awaitable[None]]
    """Hands an event to the run's loop, which stores it; waits while the loop is behind."""
    Committed = Callable[[LogEvent], Awaitable[None]]
    """The same, and waits until the event is in the log; cancelled when the run is lost."""
    Say = Callable[[int, str], None]
    """Shows more text of an attempt at the answer to those who follow; it is not stored."""

PLANNER = "planner"
COMPOSER = "composer"


@frozen(eq=False)
class Deps:
    """Dependencies of effects; shared by all runs of the process."""

    planner: PlannerServiceAsyncStub
    composer: ComposerServiceAsyncStub
    registry: Registry
    tokens: Tokens
    settings: GatewaySettings
    metrics: GatewayMetrics
    telemetry: Telemetry
    clock: DatabaseClock
    secrets: RunSecrets
    files: RunFiles
    file_budget: MemoryBudget
    result_budget: MemoryBudget
    connections: ConnectionSecrets
    verified_queries: VerifiedQueries

    @property
    def access(self) -> AccessRules:
        """Access of the members of groups, as it is configured now."""
        return AccessRules(self.settings.access)


@frozen(eq=False)
class EffectContext:
    """One run as its effects see it."""

    state: RunState
    """Read only: it belongs to the run's loop."""
    secrets: Mapping[str, str] = field(repr=False)
    """Credentials of the run, by context key."""
    deps: Deps
    emit: Emit
    committed: Committed
    say: Say
    epoch: int = 0
    """Of the run, as this replica owns it."""
    masker: Masker = field(init=False, repr=False)
    """Takes these credentials out of what services say, before any of it is kept."""

    trace: RunTrace | None = field(init=False, repr=False)
    """Where the run's spans belong; None if it is in no trace."""

    @trace.default
    def _by_its_request(self) -> RunTrace | None:
        return RunTrace.of(self.state.run_id, self.state.request)

    @masker.default
    def _of_secrets(self) -> Masker:
        return Masker(self.secrets)

    def token(self, service: str, timeout_s: float) -> Metadata:
        """Metadata of a call of the gateway's own made for this run."""
        user_id, run_id = self.state.request.user_id, self.state.run_id
        return self.deps.tokens.metadata(user_id, run_id, "", [service], timeout_s)

    def agent_token(
        self, agent: str, card: AgentCard | None, timeout_s: float, step_key: str = ""
    ) -> Metadata:
        """Metadata of a call that has an agent work for this run, for an attempt that begins now.

        Without a step the agent reads ahead.
        """
        accepted, run_id = self.state.request, self.state.run_id
        audiences = granted(card, agent, self.deps.settings.agent_audiences)
        attempt = Attempt(self.epoch, self.state.last_sequence)
        return self.deps.tokens.metadata(
            accepted.user_id,
            run_id,
            step_key,
            audiences,
            timeout_s,
            attempt,
            groups=accepted.groups,
        )

    def with_secrets(self, more: Mapping[str, str]) -> EffectContext:
        """This run for an effect that has further credentials, which are masked as well.

        Raises:
            TooManyParts: all of them consist of too many texts to be looked for.
        """
        return evolve(self, secrets={**self.secrets, **more})

    def now(self) -> datetime:
        """The time in UTC, the same for all replicas."""
        return self.deps.clock.now()

    def left_s(self, deadline: datetime) -> float:
        """Seconds until ``deadline``; never 0, because gRPC takes that for no time-out at all."""
        return max(0.001, self.deps.clock.left_s(deadline))

    def stamped(self, event: LogEvent) -> LogEvent:
        """``event``, happening at this moment, without any of the run's credentials."""
        self.masker.mask(event)
        return self.deps.clock.stamped(event)
