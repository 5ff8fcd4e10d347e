"""Server spans of HTTP requests, for services that are reached over HTTP by services of Bos."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from bos_chassis.tracing import attributes as names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, MutableMapping

    from bos_chassis.telemetry import Telemetry

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    App = Callable[[Scope, Receive, Send], Awaitable[None]]

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class TracedApp:
    """An ASGI application with a span for each request, child of the one that the caller names.

    For applications that no client reaches but through a service of Bos: every caller is trusted.

    Args:
        app: The application.
        telemetry: Of the service.
        untraced: Paths without spans, such as health checks.
    """

    def __init__(self, app: App, telemetry: Telemetry, *, untraced: Collection[str] = ()) -> None:
        self._app = app
        self._tracer = telemetry.tracer
        self._untraced = frozenset(untraced)
        self._propagator = TraceContextTextMapPropagator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; its span ends with the last part of the answer."""
        if scope["type"] != "http" or scope["path"] in self._untraced:
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        span = self._tracer.start_span(
            method,
            context=self._propagator.extract(headers, context=otel_context.Context()),
            kind=trace.SpanKind.SERVER,
            attributes={names.HTTP_REQUEST_METHOD: method},
        )

        async def observed(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                span.set_attribute(names.HTTP_RESPONSE_STATUS_CODE, message["status"])
                if message["status"] >= 500:
                    span.set_status(trace.StatusCode.ERROR)
            await send(message)

        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                await self._app(scope, receive, observed)
        except BaseException as error:
            span.set_attribute(names.ERROR_TYPE, type(error).__qualname__)
            span.set_status(trace.StatusCode.ERROR)
            raise
        finally:
            # The pattern of the path, which the router has found; a path of its own names no user.
            if route := getattr(scope.get("route"), "path", ""):
                span.set_attribute(names.HTTP_ROUTE, route)
                span.update_name(f"{method} {route}")
            span.end()
