"""The gRPC face of identity: translation only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from bos.identity.v1 import (
    ChangePasswordResponse,
    GetJsonWebKeySetResponse,
    GetOpenIdConfigurationResponse,
    GetUserResponse,
    IdentityServiceServicer,
    ListSessionsResponse,
    LogOutResponse,
    RefreshSessionResponse,
    RegisterUserResponse,
    RevokeSessionResponse,
)
from bos_chassis.auth import current_principal
from bos_chassis.errors import NotFound, PermissionDenied
from bos_chassis.user_tokens import refused_token
from bos_identity.client_address import client_address
from bos_identity.key_ring import ALGORITHM
from bos_identity.sessions import no_session

if TYPE_CHECKING:
    import grpc

    from bos.identity.v1 import (
        ChangePasswordRequest,
        GetJsonWebKeySetRequest,
        GetOpenIdConfigurationRequest,
        GetUserRequest,
        ListSessionsRequest,
        LogInRequest,
        LogInResponse,
        LogOutRequest,
        RefreshSessionRequest,
        RegisterUserRequest,
        RevokeSessionRequest,
    )
    from bos_identity.identity import Identity
    from bos_identity.key_ring import KeyRing

    Context = grpc.aio.ServicerContext[Any, Any]

SERVICE_NAME = "bos.identity.v1.IdentityService"
OPEN_METHODS = (
    "RegisterUser",
    "LogIn",
    "RefreshSession",
    "LogOut",
    "GetJsonWebKeySet",
    "GetOpenIdConfiguration",
)
"""What needs no access token: it is how one is got, given back, or verified."""


class IdentityServicer(IdentityServiceServicer):
    """Implements ``bos.identity.v1.IdentityService``; requests are validated before."""

    def __init__(self, identity: Identity, keys: KeyRing) -> None:
        self._identity = identity
        self._keys = keys

    async def RegisterUser(
        self, request: RegisterUserRequest, context: Context
    ) -> RegisterUserResponse:
        """Make an account."""
        user = await self._identity.register(request, self._address(context))
        return RegisterUserResponse(user=user)

    async def LogIn(self, request: LogInRequest, context: Context) -> LogInResponse:
        """Open a session."""
        return await self._identity.log_in(request, self._address(context))

    async def RefreshSession(
        self, request: RefreshSessionRequest, context: Context
    ) -> RefreshSessionResponse:
        """New tokens for an old one."""
        return RefreshSessionResponse(tokens=await self._identity.refresh(request.refresh_token))

    async def LogOut(self, request: LogOutRequest, context: Context) -> LogOutResponse:
        """End a session by its token."""
        await self._identity.log_out(request.refresh_token)
        return LogOutResponse()

    async def ListSessions(
        self, request: ListSessionsRequest, context: Context
    ) -> ListSessionsResponse:
        """The caller's sessions."""
        user_id, current = await self._caller()
        sessions = [stored.session for stored in await self._identity.sessions.list(user_id)]
        for session in sessions:
            session.current = session.session_id == str(current)
        return ListSessionsResponse(sessions=sessions)

    async def RevokeSession(
        self, request: RevokeSessionRequest, context: Context
    ) -> RevokeSessionResponse:
        """End one of the caller's sessions."""
        user_id, current = await self._caller()
        session_id = _uuid(request.session_id)
        if session_id is None:
            raise no_session(request.session_id)
        revoked = await self._identity.sessions.revoke(session_id, user_id)
        revoked.session.current = session_id == current
        return RevokeSessionResponse(session=revoked.session)

    async def GetUser(self, request: GetUserRequest, context: Context) -> GetUserResponse:
        """The caller."""
        user_id, _ = await self._caller()
        return GetUserResponse(user=await self._identity.user(user_id))

    async def ChangePassword(
        self, request: ChangePasswordRequest, context: Context
    ) -> ChangePasswordResponse:
        """Another password for the caller."""
        user_id, session_id = await self._caller()
        await self._identity.change_password(
            user_id, session_id, request.current_password, request.new_password
        )
        return ChangePasswordResponse()

    async def GetJsonWebKeySet(
        self, request: GetJsonWebKeySetRequest, context: Context
    ) -> GetJsonWebKeySetResponse:
        """The keys that verify access tokens."""
        return GetJsonWebKeySetResponse(keys=self._keys.published)

    async def GetOpenIdConfiguration(
        self, request: GetOpenIdConfigurationRequest, context: Context
    ) -> GetOpenIdConfigurationResponse:
        """Where these keys are."""
        issuer = self._identity.settings.issuer
        return GetOpenIdConfigurationResponse(
            issuer=issuer,
            jwks_uri=issuer.removesuffix("/") + "/.well-known/jwks.json",
            id_token_signing_alg_values_supported=[ALGORITHM],
        )

    async def _caller(self) -> tuple[UUID, UUID | None]:
        """The calling user, and the session that the call belongs to.

        Elsewhere an access token is good until it expires; here, where accounts are changed, not
        for a moment longer than its session.
        """
        principal = current_principal()
        user_id = None if principal is None else _uuid(principal.user_id)
        if principal is not None and principal.kind == "run_token":
            raise PermissionDenied("This is for people; a run token does not open it.")
        if principal is None or user_id is None:
            raise NotFound("There is no such user.")
        if principal.kind != "user_token":
            return user_id, None
        session_id = _uuid(principal.session_id)
        if session_id is None or not await self._identity.sessions.is_open(session_id, user_id):
            raise refused_token()
        return user_id, session_id

    def _address(self, context: Context) -> str:
        metadata = dict(context.invocation_metadata() or ())
        forwarded = metadata.get("x-forwarded-for", "")
        return client_address(
            context.peer(),
            forwarded if isinstance(forwarded, str) else "",
            self._identity.settings.trusted_proxies,
        )


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
