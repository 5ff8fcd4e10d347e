"""The gRPC face of identity: translation only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    ResetPasswordResponse,
    RevokeSessionResponse,
)
from bos_chassis.auth.proxy_tokens import PROXY_TOKEN_KEY
from bos_chassis.client_address import client_address, network
from bos_errors import PermissionDenied
from bos_identity.administration.registration import all_local, passed_on
from bos_identity.client_address import Addresses
from bos_identity.credentials.callers import as_uuid, key_refused
from bos_identity.sessions import Origin, no_session
from bos_identity.signing.key_ring import ALGORITHM

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
        ResetPasswordRequest,
        RevokeSessionRequest,
    )
    from bos_chassis.auth.proxy_tokens import ProxyTokenVerifier
    from bos_identity.administration.registration import Registration
    from bos_identity.credentials.callers import Callers
    from bos_identity.identity import Identity
    from bos_identity.signing.key_ring import KeyRing

    Context = grpc.aio.ServicerContext[Any, Any]

SERVICE_NAME = "bos.identity.v1.IdentityService"
OPEN_METHODS = (
    "RegisterUser",
    "LogIn",
    "RefreshSession",
    "LogOut",
    "ResetPassword",
    "GetJsonWebKeySet",
    "GetOpenIdConfiguration",
)
"""What needs no access token: it is how one is got, given back, or verified."""


class IdentityServicer(IdentityServiceServicer):
    """Implements ``bos.identity.v1.IdentityService``; requests are validated before."""

    def __init__(
        self,
        identity: Identity,
        registration: Registration,
        callers: Callers,
        keys: KeyRing,
        proxies: ProxyTokenVerifier | None = None,
    ) -> None:
        self._proxies = proxies
        self._addresses = Addresses(proxies)
        self._identity = identity
        self._registration = registration
        self._callers = callers
        self._keys = keys

    async def RegisterUser(
        self, request: RegisterUserRequest, context: Context
    ) -> RegisterUserResponse:
        """Make an account."""
        origin = self.origin(context)
        metadata = _metadata(context)
        # A caller behind a gateway of unknown address is no neighbour.
        believed = origin.address or ("unknown" if PROXY_TOKEN_KEY in metadata else "")
        local = all_local(context.peer(), metadata.get("x-forwarded-for", ""), believed)
        local = local and not passed_on(metadata)
        user = await self._registration.register(request, origin, is_local=local)
        return RegisterUserResponse(user=user)

    async def LogIn(self, request: LogInRequest, context: Context) -> LogInResponse:
        """Open a session."""
        return await self._identity.log_in(request, self.origin(context))

    async def RefreshSession(
        self, request: RefreshSessionRequest, context: Context
    ) -> RefreshSessionResponse:
        """New tokens for an old one."""
        address = self._addresses.of(context)
        tokens = await self._identity.refresh(request.refresh_token, address)
        return RefreshSessionResponse(tokens=tokens)

    async def LogOut(self, request: LogOutRequest, context: Context) -> LogOutResponse:
        """End a session by its token."""
        await self._identity.log_out(request.refresh_token, self._addresses.of(context))
        return LogOutResponse()

    async def ListSessions(
        self, request: ListSessionsRequest, context: Context
    ) -> ListSessionsResponse:
        """The caller's sessions."""
        caller = await self._callers.caller()
        found = await self._identity.sessions.list(caller.user_id)
        sessions = [stored.session for stored in found]
        for session in sessions:
            session.current = session.session_id == str(caller.session_id)
        return ListSessionsResponse(sessions=sessions)

    async def RevokeSession(
        self, request: RevokeSessionRequest, context: Context
    ) -> RevokeSessionResponse:
        """End one of the caller's sessions."""
        caller = await self._callers.caller()
        session_id = as_uuid(request.session_id)
        if session_id is None:
            raise no_session(request.session_id)
        by = caller.by(self._addresses.of(context))
        revoked = await self._identity.sessions.revoke(session_id, caller.user_id, by)
        revoked.session.current = session_id == caller.session_id
        return RevokeSessionResponse(session=revoked.session)

    async def GetUser(self, request: GetUserRequest, context: Context) -> GetUserResponse:
        """The caller."""
        caller = await self._callers.caller()
        user = await self._identity.user(caller.user_id)
        if caller.rights.roles != set(user.roles) or caller.rights.groups != set(user.groups):
            # The holder of the static key has those of the settings.
            user.roles[:] = sorted(caller.rights.roles)
            user.groups[:] = sorted(caller.rights.groups)
        user.sign_in.CopyFrom(await self._callers.sign_in(caller))
        return GetUserResponse(user=user)

    async def ChangePassword(
        self, request: ChangePasswordRequest, context: Context
    ) -> ChangePasswordResponse:
        """Another password for the caller."""
        caller = await self._callers.caller()
        if caller.is_key:
            raise key_refused()
        await self._identity.change_password(
            caller.user_id,
            caller.session_id,
            request.current_password,
            request.new_password,
            caller.by(self._addresses.of(context)),
        )
        return ChangePasswordResponse()

    async def ResetPassword(
        self, request: ResetPasswordRequest, context: Context
    ) -> ResetPasswordResponse:
        """Another password by an administrator's code."""
        address = self._addresses.of(context)
        origin = Origin(address, network(address))
        username = await self._identity.reset_password(request.code, request.new_password, origin)
        return ResetPasswordResponse(username=username)

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

    def origin(self, context: Context) -> Origin:
        """Where a call comes from.

        Raises:
            PermissionDenied: It comes through a gateway that is not known.
        """
        metadata = _metadata(context)
        proxied = self._proxies.verify(metadata) if self._proxies else None
        if proxied is None and PROXY_TOKEN_KEY in metadata:
            # Taken for the client, the proxy would be slowed down for the guesses of all its users;
            # and a token made up must not hide where a caller is.
            raise PermissionDenied(
                "The call comes through a gateway that identity does not know. Its operator has "
                "to name the gateway's key in BOS_AUTH_PROXY_PUBLIC_KEYS, and to set the clocks.",
                reason="PROXY_UNKNOWN",
            )
        address = client_address(context.peer(), proxied)
        return Origin(address, network(address))


def _metadata(context: Context) -> dict[str, str]:
    return {k: v for k, v in context.invocation_metadata() or () if isinstance(v, str)}
