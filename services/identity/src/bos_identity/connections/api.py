"""gRPC servicers of connections: for their users, and for the gateway that needs their secrets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bos.identity.v1 import (
    ConnectionSecretServiceServicer,
    ConnectionServiceServicer,
    DeleteConnectionResponse,
    GetConnectionSecretsResponse,
    ListConnectionsResponse,
    PutConnectionResponse,
)
from bos_chassis.auth.callers import current_principal
from bos_errors import InvalidArgument, NotFound, PermissionDenied
from bos_identity.connections.store import NewConnection
from bos_identity.credentials.callers import as_uuid, key_refused
from bos_identity.names import clean_name

if TYPE_CHECKING:
    import grpc
    from structlog.typing import FilteringBoundLogger

    from bos.identity.v1 import (
        DeleteConnectionRequest,
        GetConnectionSecretsRequest,
        ListConnectionsRequest,
        PutConnectionRequest,
    )
    from bos_identity.client_address import Addresses
    from bos_identity.connections.store import Connections
    from bos_identity.credentials.callers import Caller, Callers

    Context = grpc.aio.ServicerContext[Any, Any]

SERVICE_NAME = "bos.identity.v1.ConnectionService"
SECRET_SERVICE_NAME = "bos.identity.v1.ConnectionSecretService"  # noqa: S105  a name
AUDIENCE = "identity"
"""Whom the gateway's own tokens for this service are made out to."""


@dataclass(frozen=True, slots=True)
class ConnectionServicer(ConnectionServiceServicer):
    """Implements ``bos.identity.v1.ConnectionService``; requests are validated before."""

    connections: Connections
    callers: Callers
    addresses: Addresses
    log: FilteringBoundLogger

    async def PutConnection(
        self, request: PutConnectionRequest, context: Context
    ) -> PutConnectionResponse:
        """Store a connection."""
        caller = await self._person()
        for name, value in request.fields.items():
            if not value.isprintable():
                raise InvalidArgument.field(f"fields.{name}", "must hold no control characters")
        if not request.secret.strip() or "\0" in request.secret:
            raise InvalidArgument.field("secret", "must not be blank, nor hold a NUL character")
        label = clean_name("label", request.label)
        new = NewConnection(caller.user_id, request.kind, label, dict(request.fields))
        by = caller.by(self.addresses.of(context))
        stored = await self.connections.put(new, request.secret, by)
        self.log.info("connection stored", user=str(caller.user_id), kind=request.kind)
        return PutConnectionResponse(connection=stored)

    async def ListConnections(
        self, request: ListConnectionsRequest, context: Context
    ) -> ListConnectionsResponse:
        """The caller's connections."""
        caller = await self.callers.caller()
        return ListConnectionsResponse(connections=await self.connections.list_own(caller.user_id))

    async def DeleteConnection(
        self, request: DeleteConnectionRequest, context: Context
    ) -> DeleteConnectionResponse:
        """Delete a connection."""
        caller = await self._person()
        by = caller.by(self.addresses.of(context))
        if not await self.connections.delete(caller.user_id, request.kind, by):
            raise NotFound("There is no such connection.")
        self.log.info("connection deleted", user=str(caller.user_id), kind=request.kind)
        return DeleteConnectionResponse()

    async def _person(self) -> Caller:
        caller = await self.callers.caller()
        if caller.is_key:
            raise key_refused()
        return caller


@dataclass(frozen=True, slots=True)
class ConnectionSecretServicer(ConnectionSecretServiceServicer):
    """Implements ``bos.identity.v1.ConnectionSecretService`` for tokens of the gateway's own."""

    connections: Connections

    async def GetConnectionSecrets(
        self, request: GetConnectionSecretsRequest, context: Context
    ) -> GetConnectionSecretsResponse:
        """The connections, with secrets, of the user whom the gateway's token names."""
        principal = current_principal()
        # The authenticator of this service lets nothing else in; this is the second lock.
        if principal is None or principal.kind != "run_token" or principal.step_key:
            raise PermissionDenied("Only the gateway asks for this.", reason="GATEWAY_ONLY")
        user_id = as_uuid(principal.user_id)
        if user_id is None:  # such as the one user where authentication is off
            return GetConnectionSecretsResponse()
        found = await self.connections.hand_out(
            user_id, request.kinds, run_id=principal.run_id, agent=request.agent
        )
        return GetConnectionSecretsResponse(connections=found)
