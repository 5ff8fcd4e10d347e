"""The gRPC face of API keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bos.identity.v1 import (
    ApiKeyServiceServicer,
    CreateApiKeyResponse,
    ListApiKeysResponse,
    RevokeApiKeyResponse,
)
from bos_errors import InvalidArgument, NotFound
from bos_identity.api_keys.store import NewKey
from bos_identity.credentials.callers import as_uuid, key_refused
from bos_identity.names import clean_name

if TYPE_CHECKING:
    from uuid import UUID

    import grpc
    from structlog.typing import FilteringBoundLogger

    from bos.identity.v1 import (
        CreateApiKeyRequest,
        ListApiKeysRequest,
        RevokeApiKeyRequest,
    )
    from bos_identity.api_keys.store import ApiKeys
    from bos_identity.client_address import Addresses
    from bos_identity.credentials.callers import Caller, Callers

    Context = grpc.aio.ServicerContext[Any, Any]

SERVICE_NAME = "bos.identity.v1.ApiKeyService"
_LIFE_S = 90 * 86400.0


@dataclass(frozen=True, slots=True)
class ApiKeyServicer(ApiKeyServiceServicer):
    """Implements ``bos.identity.v1.ApiKeyService``; requests are validated before."""

    keys: ApiKeys
    callers: Callers
    addresses: Addresses
    log: FilteringBoundLogger

    async def CreateApiKey(
        self, request: CreateApiKeyRequest, context: Context
    ) -> CreateApiKeyResponse:
        """Make a key."""
        caller = await self.callers.caller()
        if caller.is_key:
            # Or a key could live indefinitely and gain rights.
            raise key_refused()
        name = clean_name("name", request.name)
        if not name:
            raise InvalidArgument.field("name", "must not be blank")
        user_id = self._account(caller, request.user_id)
        life_s = request.lifetime.ToSeconds() if request.HasField("lifetime") else _LIFE_S
        new = NewKey(user_id, name, request.scopes, float(life_s), caller.user_id)
        key, secret = await self.keys.make(new, caller.by(self.addresses.of(context)))
        self.log.info(
            "API key made",
            key=key.key_id,
            user=key.user_id,
            by=str(caller.user_id),
            scopes=list(key.scopes),
        )
        return CreateApiKeyResponse(api_key=key, secret=secret)

    async def ListApiKeys(
        self, request: ListApiKeysRequest, context: Context
    ) -> ListApiKeysResponse:
        """The keys of an account."""
        caller = await self.callers.caller()
        user_id = self._account(caller, request.user_id)
        own = user_id == caller.user_id
        return ListApiKeysResponse(
            api_keys=await (self.keys.list_own(user_id) if own else self.keys.list_of(user_id))
        )

    async def RevokeApiKey(
        self, request: RevokeApiKeyRequest, context: Context
    ) -> RevokeApiKeyResponse:
        """End a key."""
        caller = await self.callers.caller()
        key_id = as_uuid(request.key_id)
        by = caller.by(self.addresses.of(context))
        revoked = key_id is not None and (
            await self.keys.revoke_own(key_id, caller.user_id, by)
            or (caller.may_administer and await self.keys.revoke_any(key_id, by))
        )
        if not revoked:
            raise NotFound("There is no such API key.")
        self.log.info("API key revoked", key=str(key_id), by=str(caller.user_id))
        return RevokeApiKeyResponse()

    def _account(self, caller: Caller, user_id: str) -> UUID:
        """Owner of the keys: the caller, or, for administrators, any user."""
        if user_id in ("", str(caller.user_id)):
            return caller.user_id
        caller.require_administrator()
        found = as_uuid(user_id)
        if found is None:
            raise NotFound("There is no such user.")
        return found
