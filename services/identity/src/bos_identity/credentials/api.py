"""The gRPC face of credentials, for other services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bos.identity.v1 import (
    CheckSessionResponse,
    CredentialServiceServicer,
    ExchangeApiKeyResponse,
)

if TYPE_CHECKING:
    import grpc

    from bos.identity.v1 import CheckSessionRequest, ExchangeApiKeyRequest
    from bos_identity.credentials.callers import Callers
    from bos_identity.credentials.exchange import KeyExchange

    Context = grpc.aio.ServicerContext[Any, Any]

SERVICE_NAME = "bos.identity.v1.CredentialService"
OPEN_METHODS = ("ExchangeApiKey",)
"""What needs no credential but the key in the request."""


@dataclass(frozen=True, slots=True)
class CredentialServicer(CredentialServiceServicer):
    """Implements ``bos.identity.v1.CredentialService``; requests are validated before."""

    exchange: KeyExchange
    callers: Callers

    async def ExchangeApiKey(
        self, request: ExchangeApiKeyRequest, context: Context
    ) -> ExchangeApiKeyResponse:
        """An access token for a key."""
        token, life_s = await self.exchange.token(request.api_key)
        response = ExchangeApiKeyResponse(access_token=token)
        response.access_token_lifetime.FromSeconds(int(life_s))
        return response

    async def CheckSession(
        self, request: CheckSessionRequest, context: Context
    ) -> CheckSessionResponse:
        """Whether the caller's session or key is good now."""
        rights = await self.callers.rights()
        if rights is None:
            return CheckSessionResponse(open=False)
        return CheckSessionResponse(
            open=True, roles=sorted(rights.roles), groups=sorted(rights.groups)
        )
