"""The gRPC face of administration: every method looks at the caller's role first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bos.identity.v1 import (
    AdministrationServiceServicer,
    CreateInvitationResponse,
    CreatePasswordResetResponse,
    CreateServiceAccountResponse,
    DeactivateUserResponse,
    DeleteUserResponse,
    ListInvitationsResponse,
    ListUsersResponse,
    ReactivateUserResponse,
    RevokeInvitationResponse,
    SetUserGroupsResponse,
    SetUserRolesResponse,
)
from bos_chassis.paging import decoded, encoded
from bos_errors import InvalidArgument, NotFound
from bos_identity.accounts import LOCAL_USERNAME
from bos_identity.administration.invitations import NewInvitation
from bos_identity.administration.users import no_user
from bos_identity.credentials.callers import as_uuid
from bos_identity.names import clean_name

if TYPE_CHECKING:
    from uuid import UUID

    import grpc
    from structlog.typing import FilteringBoundLogger

    from bos.identity.v1 import (
        CreateInvitationRequest,
        CreatePasswordResetRequest,
        CreateServiceAccountRequest,
        DeactivateUserRequest,
        DeleteUserRequest,
        ListInvitationsRequest,
        ListUsersRequest,
        ReactivateUserRequest,
        RevokeInvitationRequest,
        SetUserGroupsRequest,
        SetUserRolesRequest,
    )
    from bos_identity.administration.invitations import Invitations
    from bos_identity.administration.resets import Resets
    from bos_identity.administration.users import Users
    from bos_identity.client_address import Addresses
    from bos_identity.credentials.callers import Caller, Callers
    from bos_identity.deletion.data_services import DataServices
    from bos_identity.deletion.runner import DeletionRunner
    from bos_identity.deletion.store import AccountDeletions
    from bos_postgres.audit import By

    Context = grpc.aio.ServicerContext[Any, Any]

SERVICE_NAME = "bos.identity.v1.AdministrationService"
_PAGE = 50
_INVITATION_S = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class AdministrationServicer(AdministrationServiceServicer):
    """Implements ``bos.identity.v1.AdministrationService``; requests are validated before."""

    users: Users
    invitations: Invitations
    resets: Resets
    deletions: AccountDeletions
    data_services: DataServices
    runner: DeletionRunner
    callers: Callers
    addresses: Addresses
    log: FilteringBoundLogger

    async def ListUsers(self, request: ListUsersRequest, context: Context) -> ListUsersResponse:
        """A page of accounts."""
        await self._administrator()
        if "\0" in request.username:
            return ListUsersResponse()
        most = request.page_size or _PAGE
        after = decoded(request.page_token) if request.page_token else ""
        if "\0" in after:
            raise InvalidArgument.field("page_token", "is not a token of this service")
        users = await self.users.list(request.username, after, most + 1)
        response = ListUsersResponse(users=users[:most])
        if len(users) > most:
            response.next_page_token = encoded(users[most - 1].username.lower())
        return response

    async def CreateServiceAccount(
        self, request: CreateServiceAccountRequest, context: Context
    ) -> CreateServiceAccountResponse:
        """Make an account for a service."""
        by = await self._administrator()
        if request.username.lower() == LOCAL_USERNAME:
            raise InvalidArgument.field("username", "is reserved; choose another one")
        display_name = clean_name("display_name", request.display_name) or request.username
        user = await self.users.add_service(
            request.username, display_name, request.roles, request.groups, self._by(by, context)
        )
        self._changed("service account made", user.user_id, by, roles=list(user.roles))
        return CreateServiceAccountResponse(user=user)

    async def SetUserRoles(
        self, request: SetUserRolesRequest, context: Context
    ) -> SetUserRolesResponse:
        """Replace the roles of an account."""
        by = await self._administrator()
        user = await self.users.set_roles(
            _user(request.user_id), request.roles, self._by(by, context)
        )
        self._changed("roles set", user.user_id, by, roles=list(user.roles))
        return SetUserRolesResponse(user=user)

    async def SetUserGroups(
        self, request: SetUserGroupsRequest, context: Context
    ) -> SetUserGroupsResponse:
        """Replace the groups of an account."""
        by = await self._administrator()
        user = await self.users.set_groups(
            _user(request.user_id), request.groups, self._by(by, context)
        )
        self._changed("groups set", user.user_id, by, groups=list(user.groups))
        return SetUserGroupsResponse(user=user)

    async def DeactivateUser(
        self, request: DeactivateUserRequest, context: Context
    ) -> DeactivateUserResponse:
        """Close an account."""
        by = await self._administrator()
        user = await self.users.deactivate(_user(request.user_id), self._by(by, context))
        self._changed("user deactivated", user.user_id, by)
        return DeactivateUserResponse(user=user)

    async def ReactivateUser(
        self, request: ReactivateUserRequest, context: Context
    ) -> ReactivateUserResponse:
        """Open an account again."""
        by = await self._administrator()
        user = await self.users.reactivate(_user(request.user_id), self._by(by, context))
        self._changed("user reactivated", user.user_id, by)
        return ReactivateUserResponse(user=user)

    async def DeleteUser(self, request: DeleteUserRequest, context: Context) -> DeleteUserResponse:
        """Close an account for good, or return how far its deletion is."""
        by = await self._administrator()
        self.data_services.names()  # refused while it could not be done
        response = await self.deletions.begin(_user(request.user_id), self._by(by, context))
        self.runner.wake()
        self._changed("account deletion asked for", request.user_id, by)
        return response

    async def CreatePasswordReset(
        self, request: CreatePasswordResetRequest, context: Context
    ) -> CreatePasswordResetResponse:
        """Make a code for a new password."""
        by = await self._administrator()
        code, expires = await self.resets.make(
            _user(request.user_id), by.user_id, self._by(by, context)
        )
        self._changed("password reset made", request.user_id, by)
        response = CreatePasswordResetResponse(code=code)
        response.expire_time.FromDatetime(expires)
        return response

    async def CreateInvitation(
        self, request: CreateInvitationRequest, context: Context
    ) -> CreateInvitationResponse:
        """Make an invitation."""
        by = await self._administrator()
        life_s = request.lifetime.ToSeconds() if request.HasField("lifetime") else _INVITATION_S
        new = NewInvitation(request.roles, request.groups, float(life_s), by.user_id)
        invitation, code = await self.invitations.make(new, self._by(by, context))
        self.log.info(
            "invitation made",
            invitation=invitation.invitation_id,
            by=str(by.user_id),
            roles=list(invitation.roles),
            groups=list(invitation.groups),
        )
        return CreateInvitationResponse(invitation=invitation, code=code)

    async def ListInvitations(
        self, request: ListInvitationsRequest, context: Context
    ) -> ListInvitationsResponse:
        """The invitations that can be used."""
        await self._administrator()
        return ListInvitationsResponse(invitations=await self.invitations.list())

    async def RevokeInvitation(
        self, request: RevokeInvitationRequest, context: Context
    ) -> RevokeInvitationResponse:
        """Make an invitation useless."""
        by = await self._administrator()
        invitation_id = as_uuid(request.invitation_id)
        if invitation_id is None or not await self.invitations.revoke(
            invitation_id, self._by(by, context)
        ):
            raise NotFound("There is no such invitation, or it was used.")
        self.log.info("invitation revoked", invitation=str(invitation_id), by=str(by.user_id))
        return RevokeInvitationResponse()

    async def _administrator(self) -> Caller:
        """Who administers.

        Raises:
            PermissionDenied: The caller does not, at this moment.
        """
        caller = await self.callers.caller()
        caller.require_administrator()
        return caller

    def _by(self, caller: Caller, context: Context) -> By:
        return caller.by(self.addresses.of(context))

    def _changed(self, what: str, user_id: str, by: Caller, **more: list[str]) -> None:
        self.log.info(what, user=user_id, by=str(by.user_id), **more)


def _user(user_id: str) -> UUID:
    found = as_uuid(user_id)
    if found is None:
        raise no_user()
    return found
