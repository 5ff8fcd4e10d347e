"""The gRPC face of one's account as a whole: delete it, take everything along."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.protobuf.json_format import MessageToDict

from bos.identity.v1 import (
    AccountServiceServicer,
    DeleteAccountResponse,
    ExportAccountResponse,
)
from bos_identity.credentials.callers import key_refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import grpc
    from structlog.typing import FilteringBoundLogger

    from bos.identity.v1 import DeleteAccountRequest, ExportAccountRequest
    from bos_identity.api_keys.store import ApiKeys
    from bos_identity.client_address import Addresses
    from bos_identity.connections.store import Connections
    from bos_identity.credentials.callers import Caller, Callers
    from bos_identity.deletion.data_services import DataServices
    from bos_identity.deletion.runner import DeletionRunner
    from bos_identity.deletion.store import AccountDeletions
    from bos_identity.identity import Identity
    from bos_identity.openid.identities import ExternalIdentities

    Context = grpc.aio.ServicerContext[Any, Any]

SERVICE_NAME = "bos.identity.v1.AccountService"


@dataclass(frozen=True, slots=True)
class AccountServicer(AccountServiceServicer):
    """Implements ``bos.identity.v1.AccountService``; requests are validated before."""

    identity: Identity
    api_keys: ApiKeys
    connections: Connections
    external: ExternalIdentities
    deletions: AccountDeletions
    services: DataServices
    runner: DeletionRunner
    callers: Callers
    addresses: Addresses
    log: FilteringBoundLogger

    async def DeleteAccount(
        self, request: DeleteAccountRequest, context: Context
    ) -> DeleteAccountResponse:
        """Close the caller's account for good."""
        caller = await self._person()
        by = caller.by(self.addresses.of(context))
        self.services.names()  # refused while it could not be done
        given = caller.user_id, caller.session_id, request.current_password
        await self.identity.require_owner(*given, by)
        await self.deletions.begin(caller.user_id, by)
        self.runner.wake()
        self.log.info("account deletion asked for", user=str(caller.user_id), by="its owner")
        return DeleteAccountResponse()

    async def ExportAccount(
        self, request: ExportAccountRequest, context: Context
    ) -> AsyncIterator[ExportAccountResponse]:
        """Everything of the caller, identity's own part first."""
        caller = await self._person()
        names = self.services.names()
        by = caller.by(self.addresses.of(context))
        await self.deletions.exported(caller.user_id, by)
        self.log.info("account export", user=str(caller.user_id))
        yield ExportAccountResponse(path="identity/account.json", content=await self._own(caller))
        for name in names:
            async for part in self.services.export(name, caller.user_id):
                yield ExportAccountResponse(path=f"{name}/{part.path}", content=part.content)

    async def _own(self, caller: Caller) -> bytes:
        sessions = await self.identity.sessions.list(caller.user_id)
        keys = await self.api_keys.list_own(caller.user_id)
        connections = await self.connections.list_own(caller.user_id)
        linked = await self.external.of(caller.user_id)
        own = {
            "user": MessageToDict(await self.identity.user(caller.user_id)),
            "sessions": [MessageToDict(stored.session) for stored in sessions],
            "api_keys": [MessageToDict(key) for key in keys],
            "connections": [MessageToDict(each) for each in connections],
            "external_identities": [
                {
                    "issuer": each.issuer,
                    "subject": each.subject,
                    "linkTime": each.linked_at.isoformat(),
                }
                for each in linked
            ],
        }
        return json.dumps(own, ensure_ascii=False, indent=2).encode()

    async def _person(self) -> Caller:
        caller = await self.callers.caller()
        if caller.is_key:
            raise key_refused()
        return caller
