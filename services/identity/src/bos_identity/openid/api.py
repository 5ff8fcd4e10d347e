"""The gRPC face of signing in by an OpenID provider: translation only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bos.identity.v1 import GetOpenIdProviderResponse, OpenIdServiceServicer
from bos_errors import FailedPrecondition

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc

    from bos.identity.v1 import (
        BeginOpenIdLogInRequest,
        BeginOpenIdLogInResponse,
        FinishOpenIdLogInRequest,
        FinishOpenIdLogInResponse,
        GetOpenIdProviderRequest,
    )
    from bos_identity.openid.log_in import OpenIdLogIn
    from bos_identity.sessions import Origin

    Context = grpc.aio.ServicerContext[Any, Any]

SERVICE_NAME = "bos.identity.v1.OpenIdService"
OPEN_METHODS = ("GetOpenIdProvider", "BeginOpenIdLogIn", "FinishOpenIdLogIn")
"""What needs no access token: it is how one is got."""


@dataclass(frozen=True, slots=True)
class OpenIdServicer(OpenIdServiceServicer):
    """Implements ``bos.identity.v1.OpenIdService``; requests are validated before."""

    log_in: OpenIdLogIn | None
    """None if the settings name no provider."""
    origin: Callable[[Context], Origin]

    async def GetOpenIdProvider(
        self, request: GetOpenIdProviderRequest, context: Context
    ) -> GetOpenIdProviderResponse:
        """By which provider people can sign in."""
        return GetOpenIdProviderResponse() if self.log_in is None else self.log_in.description()

    async def BeginOpenIdLogIn(
        self, request: BeginOpenIdLogInRequest, context: Context
    ) -> BeginOpenIdLogInResponse:
        """Begin a sign-in."""
        return await self._log_in().begin(request.redirect_uri, self.origin(context))

    async def FinishOpenIdLogIn(
        self, request: FinishOpenIdLogInRequest, context: Context
    ) -> FinishOpenIdLogInResponse:
        """Open the session."""
        return await self._log_in().finish(request, self.origin(context))

    def _log_in(self) -> OpenIdLogIn:
        if self.log_in is None:
            raise FailedPrecondition(
                "Sign-in by an OpenID provider is not configured here; an operator has to set "
                "BOS_IDENTITY_OPENID_ISSUER.",
                reason="OPENID_NOT_CONFIGURED",
            )
        return self.log_in
