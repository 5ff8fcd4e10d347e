"""The gRPC binding of A2A, on a port of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NoReturn

import grpc
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.grpc_handler import GrpcHandler, GrpcServerCallContextBuilder
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from a2a.utils.constants import VERSION_HEADER
from starlette.datastructures import Headers

from bos_chassis.auth.callers import Authenticator, Principal
from bos_chassis.server import Servicer
from bos_errors import BosError
from bos_protocols.a2a.handler import RECEIVED, UNWORDED, BosTasks
from bos_protocols.caller import Gateway

_SERVICE = "lf.a2a.v1.A2AService"


def a2a_servicer(tasks: BosTasks) -> Servicer:
    """The service, for a gRPC server."""
    return Servicer(GrpcHandler(tasks, _Context()), add_A2AServiceServicer_to_server, _SERVICE)


def at_the_gateway(gateway: Gateway) -> Authenticator:
    """Callers are those whom the gateway knows."""
    return _AtTheGateway(gateway)


class _AtTheGateway:
    """Asks the gateway about each credential before anything else is done for it."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def authenticate(self, metadata: Mapping[str, str]) -> Principal | None:
        """The caller, by a name of its credential: what it may do is judged behind this."""
        given = metadata.get("authorization", "")
        known = await self._gateway.client(
            Headers({"authorization": given} if given else {})
        ).access()
        name = hashlib.sha256(given.encode()).hexdigest()[:32]
        return Principal(name, "", "", "user_token", roles=frozenset(known.roles))


class _Context(GrpcServerCallContextBuilder):
    def build(self, context: grpc.aio.ServicerContext[Any, Any]) -> ServerCallContext:
        texts = [
            (key.lower().encode(), value.encode())
            for key, value in context.invocation_metadata() or ()
            # A proxy's word about the client is REST's alone to give.
            if isinstance(value, str) and key.lower() in ("authorization", VERSION_HEADER.lower())
        ]
        headers = Headers(raw=texts)
        return ServerCallContext(
            state={"headers": dict(headers), RECEIVED: headers, UNWORDED: _raise}
        )


def _raise(error: BosError) -> NoReturn:
    # The server words errors of Bos as gRPC does.
    raise error
