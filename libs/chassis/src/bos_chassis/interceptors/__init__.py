"""What happens around every server call, one concern per module.

Each concern is a small :class:`~bos_chassis.interceptors.concern.Concern` with hooks for the begin
and the end of a call and for a request. :class:`~bos_chassis.interceptors.chain.Chain` is the one
gRPC interceptor that runs them, so a streamed message passes one loop and not one per concern.
"""

from bos_chassis.interceptors.auth import Authentication
from bos_chassis.interceptors.chain import Chain, server_chain
from bos_chassis.interceptors.concern import Concern, ServerCall
from bos_chassis.interceptors.deadlines import Deadlines
from bos_chassis.interceptors.metrics import Metrics
from bos_chassis.interceptors.request_log import RequestLog
from bos_chassis.interceptors.tracing import Tracing
from bos_chassis.interceptors.validation import Validation

__all__ = [
    "Authentication",
    "Chain",
    "Concern",
    "Deadlines",
    "Metrics",
    "RequestLog",
    "ServerCall",
    "Tracing",
    "Validation",
    "server_chain",
]
