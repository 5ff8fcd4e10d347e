"""Client of a user's connections to outside systems, such as a mailbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.identity.v1 import (
    ConnectionServiceStub,
    DeleteConnectionRequest,
    ListConnectionsRequest,
    PutConnectionRequest,
)
from bos_client.calling import ServiceClient

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bos.identity.v1 import Connection, ConnectionServiceAsyncStub


class ConnectionClient(ServiceClient):
    """A client of identity for the caller's connections; see :class:`ServiceClient`."""

    async def connect(
        self, kind: str, secret: str, fields: Mapping[str, str], label: str = ""
    ) -> Connection:
        """Store a connection in place of the former one of its kind."""
        request = PutConnectionRequest(kind=kind, label=label, fields=fields, secret=secret)
        return (await self._unary(self._stub.PutConnection, request)).connection

    async def connections(self) -> Sequence[Connection]:
        """The caller's connections, without secrets."""
        return (await self._unary(self._stub.ListConnections, ListConnectionsRequest())).connections

    async def disconnect(self, kind: str) -> None:
        """Delete a connection with its secret.

        Raises:
            NotFound: there is none of this kind.
        """
        await self._unary(self._stub.DeleteConnection, DeleteConnectionRequest(kind=kind))

    @property
    def _stub(self) -> ConnectionServiceAsyncStub:
        return ConnectionServiceStub(self._channel)
