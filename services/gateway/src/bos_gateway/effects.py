"""The work that commands ask for, and what it works with.

An effect never touches the run's state and never raises for what its service did wrong: that
becomes an event. It may be cancelled at any moment, and cancels its call then.
The effects themselves are in ``planning``, ``stepping`` and ``composing``.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from bos_chassis.access import AccessRules
from bos_chassis.auth import RUN_TOKEN_KEY, Attempt
from bos_gateway.audiences import granted
from bos_gateway.shown.masking import Masker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from bos.agent.v1 import AgentCard
    from bos.composer.v1 import ComposerServiceAsyncStub
    from bos.planner.v1 import PlannerServiceAsyncStub
    from bos.runlog.v1 import LogEvent
    from bos_chassis.auth import RunTokenSigner
    from bos_chassis.telemetry import Telemetry
    from bos_gateway.clock import DatabaseClock
    from bos_gateway.files import RunFiles
    from bos_gateway.metrics import GatewayMetrics
    from bos_gateway.registry import Registry
    from bos_gateway.run_secrets import RunSecrets
    from bos_gateway.settings import GatewaySettings
    from bos_gateway.state import RunState

    Metadata = tuple[tuple[str, str], ...]
    Emit = Callable[[LogEvent], Awaitable[None]]
    """Hands an event to the run's loop, which stores it; waits while the loop is behind."""
    Committed = Callable[[LogEvent], Awaitable[None]]
    """The same, and waits until the event is in the log; cancelled when the run is lost."""
    Say = Callable[[int, str], None]
    """Shows more text of an attempt at the answer to those who follow; it is not stored."""

PLANNER = "planner"
COMPOSER = "composer"

# A call may end a little after its time-out; the token must not end first.
_SLACK_S = 5.0


@frozen(eq=False)
class Tokens:
    """Mints the signed tokens that internal calls carry, as their metadata."""

    signer: RunTokenSigner | None
    """None where internal calls are not authenticated (tests, loopback)."""

    def metadata(
        self,
        user_id: str,
        run_id: str,
        step_key: str,
        audiences: Sequence[str],
        timeout_s: float,
        attempt: Attempt | None = None,
        *,
        groups: Iterable[str] = (),
    ) -> Metadata:
        """Metadata of a call that lasts at most ``timeout_s`` seconds, for these services.

        With an attempt the callee may pass the token on, as long as the attempt is under way;
        without one the call is the gateway's own, to one service.
        """
        if self.signer is None:
            return ()
        token = self.signer.mint(
            user_id,
            run_id,
            step_key,
            audiences,
            timeout_s + _SLACK_S,
            use="step" if attempt else "service",
            attempt=attempt,
            groups=groups,
        )
        return ((RUN_TOKEN_KEY, token),)

    def own(self, audience: str, timeout_s: float) -> Metadata:
        """Metadata of a call on nobody's behalf, which the gateway makes for itself."""
        return self.metadata("gateway", "", "", [audience], timeout_s)


@define(eq=False)
class Room:
    """Memory that all runs of the process share; what a holder had is free once it is gone."""

    _max_bytes: int
    """Of all holders together."""
    _held: dict[int, int] = field(init=False, factory=dict)

    @property
    def held(self) -> int:
        """Bytes that all holders have."""
        return sum(self._held.values())

    def take(self, holder: object, size: int = 0, *, known: int = 0) -> bool:
        """Whether there is room for that many bytes more; if so, the holder has them from now on.

        Args:
            holder: Who wants them.
            size: How many.
            known: What the holder is known to have, whoever gave it to it.
        """
        key = id(holder)
        if key not in self._held:
            weakref.finalize(holder, self._held.pop, key)
            self._held[key] = 0
        self._held[key] = max(self._held[key], known)
        fits = self.held + size <= self._max_bytes
        self._held[key] += size if fits else 0
        return fits

    def free(self, holder: object) -> None:
        """The holder has nothing any more."""
        if id(holder) in self._held:
            self._held[id(holder)] = 0


@frozen(eq=False)
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
    file_room: Room
    result_room: Room

    @property
    def access(self) -> AccessRules:
        """What the members of groups may use, as it is configured now."""
        return AccessRules(self.settings.access)


@frozen(eq=False)
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
    epoch: int = 0
    """Of the run, as this replica owns it."""
    masker: Masker = field(init=False, repr=False)
    """Takes these credentials out of what services say, before any of it is kept."""

    @masker.default
    def _of_secrets(self) -> Masker:
        return Masker(self.secrets)

    def token(self, service: str, timeout_s: float) -> Metadata:
        """Metadata of a call of the gateway's own made for this run."""
        user_id, run_id = self.state.request.user_id, self.state.run_id
        return self.services.tokens.metadata(user_id, run_id, "", [service], timeout_s)

    def agent_token(
        self, agent: str, card: AgentCard | None, timeout_s: float, step_key: str = ""
    ) -> Metadata:
        """Metadata of a call that has an agent work for this run, for an attempt that begins now.

        Without a step the agent reads ahead.
        """
        accepted, run_id = self.state.request, self.state.run_id
        audiences = granted(card, agent, self.services.settings.agent_audiences)
        attempt = Attempt(self.epoch, self.state.last_sequence)
        return self.services.tokens.metadata(
            accepted.user_id,
            run_id,
            step_key,
            audiences,
            timeout_s,
            attempt,
            groups=accepted.groups,
        )

    def now(self) -> datetime:
        """The time in UTC, the same for all replicas."""
        return self.services.clock.now()

    def left_s(self, deadline: datetime) -> float:
        """Seconds until ``deadline``; never 0, because gRPC takes that for no time-out at all."""
        return max(0.001, self.services.clock.left_s(deadline))

    def stamped(self, event: LogEvent) -> LogEvent:
        """``event``, happening at this moment, without any of the run's credentials."""
        self.masker.mask(event)
        return self.services.clock.stamped(event)
