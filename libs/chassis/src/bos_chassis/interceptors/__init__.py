"""Interceptors of server calls, one concern per module.

Each concern is a small :class:`~bos_chassis.interceptors.concern.Concern` with hooks for the begin
and the end of a call and for a request. :class:`~bos_chassis.interceptors.chain.Chain` is the one
gRPC interceptor that runs them, so a streamed message passes one loop and not one per concern.
:func:`~bos_chassis.interceptors.standard.server_chain` says which there are, in which order.
"""

from bos_chassis.interceptors.auth import Authentication
from bos_chassis.interceptors.chain import Chain
from bos_chassis.interceptors.concern import Concern, ServerCall
from bos_chassis.interceptors.concurrency import (
    ConcurrencyLimiter,
    LoadShedder,
    MethodShedder,
    RequestSizes,
)
from bos_chassis.interceptors.deadlines import Deadlines
from bos_chassis.interceptors.health import Health
from bos_chassis.interceptors.metrics import Metrics
from bos_chassis.interceptors.request_log import RequestLog
from bos_chassis.interceptors.sampled import Sampled
from bos_chassis.interceptors.standard import server_chain
from bos_chassis.interceptors.tracing import Tracing
from bos_chassis.interceptors.validation import Validation

__all__ = [
    "Authentication",
    "Chain",
    "Concern",
    "ConcurrencyLimiter",
    "Deadlines",
    "Health",
    "LoadShedder",
    "MethodShedder",
    "Metrics",
    "RequestLog",
    "RequestSizes",
    "Sampled",
    "ServerCall",
    "Tracing",
    "Validation",
    "server_chain",
]
