"""The signed token that every internal call of the gateway carries, if a key is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_chassis.auth import RUN_TOKEN_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_chassis.auth import RunTokenSigner

    Metadata = tuple[tuple[str, str], ...]

# A call may end a little after its time-out; the token must not end first.
_SLACK_S = 5.0
# On whose behalf the gateway acts when no user is: reading cards.
_GATEWAY_USER = "gateway"


class Tokens:
    """Mints run tokens as call metadata.

    Args:
        signer: None where internal calls are not authenticated (tests, loopback).
    """

    def __init__(self, signer: RunTokenSigner | None) -> None:
        self._signer = signer

    def metadata(
        self, user_id: str, run_id: str, step_key: str, audiences: Sequence[str], timeout_s: float
    ) -> Metadata:
        """Metadata of a call that lasts at most ``timeout_s`` seconds, for these services."""
        if self._signer is None:
            return ()
        token = self._signer.mint(user_id, run_id, step_key, audiences, timeout_s + _SLACK_S)
        return ((RUN_TOKEN_KEY, token),)

    def own(self, audience: str, timeout_s: float) -> Metadata:
        """Metadata of a call that the gateway makes for itself."""
        return self.metadata(_GATEWAY_USER, "", "", [audience], timeout_s)
