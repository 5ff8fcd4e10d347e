"""Client of what administrators do with accounts, and of API keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.identity.v1 import (
    AdministrationServiceStub,
    ApiKeyServiceStub,
    CreateApiKeyRequest,
    CreateInvitationRequest,
    CreatePasswordResetRequest,
    CreateServiceAccountRequest,
    DeactivateUserRequest,
    DeleteUserRequest,
    ListApiKeysRequest,
    ListInvitationsRequest,
    ListUsersRequest,
    ReactivateUserRequest,
    RevokeApiKeyRequest,
    RevokeInvitationRequest,
    SetUserGroupsRequest,
    SetUserRolesRequest,
)
from bos_client.calling import ServiceClient
from bos_errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos.identity.v1 import (
        AdministrationServiceAsyncStub,
        ApiKey,
        ApiKeyServiceAsyncStub,
        CreateApiKeyResponse,
        CreateInvitationResponse,
        CreatePasswordResetResponse,
        DeleteUserResponse,
        Invitation,
        ListUsersResponse,
        User,
    )


class AdministrationClient(ServiceClient):
    """A client of identity for administrators; see :class:`ServiceClient`."""

    async def users(self, page_size: int = 0, page_token: str = "") -> ListUsersResponse:
        """A page of accounts, by username."""
        request = ListUsersRequest(page_size=page_size, page_token=page_token)
        return await self._unary(self._stub.ListUsers, request)

    async def user(self, username: str) -> User:
        """The account with this username.

        Raises:
            NotFound: there is none.
        """
        found = await self._unary(self._stub.ListUsers, ListUsersRequest(username=username))
        for user in found.users:
            return user
        raise NotFound(f"There is no user {username}.")

    async def add_service(
        self, username: str, roles: Sequence[str], groups: Sequence[str], display_name: str = ""
    ) -> User:
        """Make an account for a service."""
        request = CreateServiceAccountRequest(
            username=username, display_name=display_name, roles=roles, groups=groups
        )
        return (await self._unary(self._stub.CreateServiceAccount, request)).user

    async def set_roles(self, user_id: str, roles: Sequence[str]) -> User:
        """Replace the roles of an account."""
        request = SetUserRolesRequest(user_id=user_id, roles=roles)
        return (await self._unary(self._stub.SetUserRoles, request)).user

    async def set_groups(self, user_id: str, groups: Sequence[str]) -> User:
        """Replace the groups of an account."""
        request = SetUserGroupsRequest(user_id=user_id, groups=groups)
        return (await self._unary(self._stub.SetUserGroups, request)).user

    async def deactivate(self, user_id: str) -> User:
        """Close an account; its sessions and keys end."""
        request = DeactivateUserRequest(user_id=user_id)
        return (await self._unary(self._stub.DeactivateUser, request)).user

    async def reactivate(self, user_id: str) -> User:
        """Open an account again."""
        request = ReactivateUserRequest(user_id=user_id)
        return (await self._unary(self._stub.ReactivateUser, request)).user

    async def delete(self, user_id: str) -> DeleteUserResponse:
        """Delete an account with everything of it; done again, how far that is.

        Raises:
            NotFound: it is gone.
        """
        return await self._unary(self._stub.DeleteUser, DeleteUserRequest(user_id=user_id))

    async def password_reset(self, user_id: str) -> CreatePasswordResetResponse:
        """A code that sets a new password once."""
        request = CreatePasswordResetRequest(user_id=user_id)
        return await self._unary(self._stub.CreatePasswordReset, request)

    async def invite(
        self, roles: Sequence[str], groups: Sequence[str], life_s: int | None = None
    ) -> CreateInvitationResponse:
        """An invitation: a code to register with once."""
        request = CreateInvitationRequest(roles=roles, groups=groups)
        if life_s is not None:
            request.lifetime.FromSeconds(life_s)
        return await self._unary(self._stub.CreateInvitation, request)

    async def invitations(self) -> Sequence[Invitation]:
        """Those that can be used."""
        return (await self._unary(self._stub.ListInvitations, ListInvitationsRequest())).invitations

    async def revoke_invitation(self, invitation_id: str) -> None:
        """Make an invitation useless."""
        request = RevokeInvitationRequest(invitation_id=invitation_id)
        await self._unary(self._stub.RevokeInvitation, request)

    @property
    def _stub(self) -> AdministrationServiceAsyncStub:
        return AdministrationServiceStub(self._channel)


class ApiKeyClient(ServiceClient):
    """A client of identity for API keys; see :class:`ServiceClient`."""

    async def make(
        self, name: str, scopes: Sequence[str], life_s: int | None = None, user_id: str = ""
    ) -> CreateApiKeyResponse:
        """A key; ``user_id`` names a service account, for administrators."""
        request = CreateApiKeyRequest(name=name, scopes=scopes, user_id=user_id)
        if life_s is not None:
            request.lifetime.FromSeconds(life_s)
        return await self._unary(self._stub.CreateApiKey, request)

    async def keys(self, user_id: str = "") -> Sequence[ApiKey]:
        """The good keys of the caller, or of another account, for administrators."""
        request = ListApiKeysRequest(user_id=user_id)
        return (await self._unary(self._stub.ListApiKeys, request)).api_keys

    async def revoke(self, key_id: str) -> None:
        """End a key."""
        await self._unary(self._stub.RevokeApiKey, RevokeApiKeyRequest(key_id=key_id))

    @property
    def _stub(self) -> ApiKeyServiceAsyncStub:
        return ApiKeyServiceStub(self._channel)
