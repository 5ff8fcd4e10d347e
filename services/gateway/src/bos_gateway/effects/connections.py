"""Users' connections for steps: asked of identity when an attempt begins, never stored here.

A step whose agent's card names no kinds, or none that the operator allows, costs no call. As every
attempt asks anew, a run that another gateway takes over has them too, and a connection that its
user deletes is gone for the next attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import frozen

from bos.identity.v1 import ConnectionSecretServiceStub, GetConnectionSecretsRequest
from bos_chassis.channels import translate_rpc_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos.identity.v1 import ConnectionSecret
    from bos_chassis.channels import Channels
    from bos_gateway.effects.run_tokens import Metadata

IDENTITY: Final = "identity"
TIMEOUT_S: Final = 5.0


@frozen(eq=False)
class ConnectionSecrets:
    """Client of identity for the secrets of connections."""

    _channels: Channels
    _target: str | None
    """Address of identity; None with another issuer, whose users have no connections."""

    async def of(
        self, kinds: Sequence[str], *, agent: str, token: Metadata, timeout_s: float
    ) -> Sequence[ConnectionSecret]:
        """The connections of these kinds that the user of ``token`` has.

        Raises:
            BosError: identity does not answer, or does not accept this gateway's tokens.
        """
        if self._target is None or not token or not kinds:
            return ()
        stub = ConnectionSecretServiceStub(self._channels.get(self._target))
        request = GetConnectionSecretsRequest(kinds=kinds, agent=agent)
        with translate_rpc_errors():
            response = await stub.GetConnectionSecrets(
                request, timeout=min(TIMEOUT_S, timeout_s), metadata=token
            )
        return [each for each in response.connections if each.connection.kind in kinds]
