"""Session check: asks identity whether the session or API key behind a call is still good.

An access token says so as of minutes ago, which suffices for most calls. Before something that
cannot be undone, such as an approval, ask.
"""

from __future__ import annotations

from typing import Final

from bos.identity.v1 import CheckSessionRequest, CredentialServiceStub
from bos_chassis.auth.callers import AUTHORIZATION_KEY
from bos_chassis.auth.user_tokens import refused_token
from bos_chassis.channels import Channels, translate_rpc_errors

_TIMEOUT_S: Final = 5.0


class SessionCheck:
    """Asks identity.

    Args:
        channels: Of the service.
        identity_target: Where identity listens.
    """

    def __init__(self, channels: Channels, identity_target: str) -> None:
        self._channels = channels
        self._target = identity_target

    async def require_open(self, authorization: str) -> tuple[frozenset[str], frozenset[str]]:
        """The present roles and groups of the caller whose session or key is open.

        Args:
            authorization: The caller's own metadata entry ``authorization``, as it came.

        Raises:
            Unauthenticated: The session has ended, the key was revoked, or the account is closed.
            Unavailable: Identity cannot be reached.
        """
        stub = CredentialServiceStub(self._channels.get(self._target))
        with translate_rpc_errors():
            response = await stub.CheckSession(
                CheckSessionRequest(),
                timeout=_TIMEOUT_S,
                metadata=((AUTHORIZATION_KEY, authorization),),
            )
        if not response.open:
            raise refused_token()
        return frozenset(response.roles), frozenset(response.groups)
