"""The A2A 1.0 endpoint: runs as tasks, over HTTP+JSON, JSON-RPC and gRPC."""

from bos_protocols.a2a.handler import BosTasks
from bos_protocols.a2a.quiet import quiet_sdk
from bos_protocols.a2a.routes import a2a_routes
from bos_protocols.a2a.rpc import a2a_servicer, at_the_gateway

__all__ = ["BosTasks", "a2a_routes", "a2a_servicer", "at_the_gateway", "quiet_sdk"]
