"""Run tokens: the signed metadata of internal calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from bos_chassis.auth.callers import RUN_TOKEN_KEY, Attempt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bos_chassis.auth.callers import RunTokenSigner

    Metadata = tuple[tuple[str, str], ...]

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
        """Metadata of a call on behalf of no user, which the gateway makes for itself."""
        return self.metadata("gateway", "", "", [audience], timeout_s)
