"""Logs, traces and metrics of one service, handed down explicitly: nothing here is a global.

A process makes one :class:`Telemetry` with :func:`setup_telemetry` and derives others from it with
:meth:`Telemetry.named` for services that share the process; they share registry and exporter.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import uuid
from collections import Counter as Counts
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import structlog
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
)

from bos_chassis.log_fields import add_log_fields
from bos_chassis.metrics.standard import FileMetrics, RpcMetrics
from bos_chassis.tracing.export import CheckedBatches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
    from opentelemetry.sdk.trace.sampling import Sampler
    from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

    from bos_chassis.settings import TelemetrySettings
    from bos_chassis.tracing.spans import FinishedSpan

_EXPORT_TIMEOUT_S = 3
# What has ended and was not exported is lost when the process is killed.
_EXPORT_INTERVAL_MS = 1_000
_LIBRARY_LINES = 20
_LIBRARY_INTERVAL_S = 10.0


@dataclass(frozen=True, slots=True)
class _Shared:
    """What all services of one process have in common."""

    registry: CollectorRegistry
    rpc_metrics: RpcMetrics
    file_metrics: FileMetrics
    sampler: Sampler
    span_processor: SpanProcessor | None
    log_sink: WrappedLogger
    log_processors: tuple[Processor, ...]
    log_level: int
    memory: InMemorySpanExporter | None = None
    log_capture: structlog.testing.LogCapture | None = None


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The telemetry of one service."""

    service: str
    """Name of the service, as in logs, trace resources and the ``service`` label."""
    provider: TracerProvider
    """Tracer provider whose resource carries the service's name."""
    _shared: _Shared = field(repr=False)
    tracer: trace.Tracer = field(init=False, repr=False)
    """Tracer whose spans carry this service's name."""

    def __post_init__(self) -> None:
        # Once: getting a tracer costs three times as much as a span that is not recorded.
        object.__setattr__(self, "tracer", self.provider.get_tracer("bos"))

    @classmethod
    def for_tests(cls, service: str = "test") -> Telemetry:
        """Telemetry that keeps spans and log events in memory (:attr:`spans`, :attr:`logs`)."""
        memory, capture = InMemorySpanExporter(), structlog.testing.LogCapture()
        registry = CollectorRegistry()
        shared = _Shared(
            registry=registry,
            rpc_metrics=RpcMetrics(registry),
            file_metrics=FileMetrics(registry),
            sampler=ParentBased(TraceIdRatioBased(1.0)),
            span_processor=SimpleSpanProcessor(memory),
            log_sink=structlog.PrintLogger(sys.stderr),
            log_processors=(*_common_processors(), capture),
            log_level=logging.DEBUG,
            memory=memory,
            log_capture=capture,
        )
        return cls(service, _provider(service, shared), shared)

    def named(self, service: str) -> Telemetry:
        """Telemetry for another service of the same process, on the same registry and exporter."""
        return Telemetry(service, _provider(service, self._shared), self._shared)

    @property
    def registry(self) -> CollectorRegistry:
        """Registry of domain metrics; shared by all services of the process."""
        return self._shared.registry

    @property
    def rpc_metrics(self) -> RpcMetrics:
        """RED metrics of RPCs."""
        return self._shared.rpc_metrics

    @property
    def file_metrics(self) -> FileMetrics:
        """Metrics of files that may be replaced."""
        return self._shared.file_metrics

    def export(self, spans: Iterable[FinishedSpan]) -> None:
        """Export spans that another record than a running span was kept of, if they are sampled."""
        if (processor := self._shared.span_processor) is not None:
            for span in spans:
                if span.context.trace_flags.sampled:
                    processor.on_end(span.readable(self.provider.resource))

    async def flush(self, timeout_s: float) -> bool:
        """Send the spans that wait for their export now.

        Args:
            timeout_s: Seconds to wait for that, at most.

        Returns:
            Whether all were taken in that time; without a collector there is nothing to send.
        """
        if (processor := self._shared.span_processor) is None:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.to_thread(processor.force_flush, int(timeout_s * 1_000))
        except TimeoutError:
            return False

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """Ended spans, oldest first; only with :meth:`for_tests`, empty otherwise."""
        memory = self._shared.memory
        return () if memory is None else memory.get_finished_spans()

    @property
    def logs(self) -> list[EventDict]:
        """Logged events, oldest first; only with :meth:`for_tests`, empty otherwise."""
        capture = self._shared.log_capture
        return [] if capture is None else capture.entries

    def logger(self, name: str) -> FilteringBoundLogger:
        """A logger of constant events with fields: ``log.info("step finished", step=key)``."""
        logger: FilteringBoundLogger = structlog.wrap_logger(
            self._shared.log_sink,
            processors=self._shared.log_processors,
            wrapper_class=structlog.make_filtering_bound_logger(self._shared.log_level),
        ).bind(service=self.service, logger=name)
        return logger


@contextmanager
def setup_telemetry(name: str, settings: TelemetrySettings) -> Iterator[Telemetry]:
    """The telemetry of a process; call once. Pending spans are flushed on leaving.

    Library logs (standard ``logging``) of at least WARNING join our stream in the same format; of
    what one line of a library's code says again and again, the first lines per interval.
    """
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    exporting = None if settings.otlp_endpoint is None else _otlp(settings.otlp_endpoint)
    renderer = _renderer(settings.log_format)
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    shared = _Shared(
        registry=registry,
        rpc_metrics=RpcMetrics(registry),
        file_metrics=FileMetrics(registry),
        # Without an exporter a span serves by its ids only (in logs), and not recording is cheaper.
        sampler=ALWAYS_OFF
        if exporting is None
        else ParentBased(TraceIdRatioBased(settings.trace_sample_ratio)),
        span_processor=exporting,
        log_sink=structlog.PrintLogger(sys.stderr),
        log_processors=(*_common_processors(), *renderer),
        log_level=level,
    )
    with _library_logs(name, max(level, logging.WARNING), renderer):
        try:
            yield Telemetry(name, _provider(name, shared), shared)
        finally:
            if exporting is not None:
                exporting.shutdown()


def _otlp(endpoint: str) -> SpanProcessor:
    # Imported on demand: the exporter costs 0.1 s of start-up that most processes never need.
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    # The timeout covers all attempts of an export, and so bounds the flush at the end of a process.
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_TIMEOUT_S)
    return CheckedBatches(exporter, _EXPORT_INTERVAL_MS)


@cache
def _process_resource() -> Resource:
    """What all services of a process share; looking for it takes a pool of threads each time."""
    return Resource.create({"service.namespace": "bos", "service.instance.id": str(uuid.uuid4())})


def _provider(service: str, shared: _Shared) -> TracerProvider:
    provider = TracerProvider(
        sampler=shared.sampler,
        resource=_process_resource().merge(Resource({"service.name": service})),
        # The owner of the span processor flushes it; an exit hook per service would do so twice.
        shutdown_on_exit=False,
    )
    if shared.span_processor is not None:
        provider.add_span_processor(shared.span_processor)
    return provider


def _add_trace_ids(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event


def _common_processors() -> tuple[Processor, ...]:
    return (
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_trace_ids,
        add_log_fields,
    )


def _renderer(log_format: str) -> tuple[Processor, ...]:
    # Tracebacks are plain in both: structlog's richer ones print local variables, secrets included.
    if log_format == "console":
        return (
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        )
    return (
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(ensure_ascii=False, default=str),
    )


class _FirstOfEach(logging.Filter):
    """Lets through the first records of each place in the code, per interval.

    What a client sends can make a library complain about each call, traceback included.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._began = 0.0
        self._seen: Counts[tuple[str, int]] = Counts()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        with self._lock:
            now = time.monotonic()
            if now - self._began >= _LIBRARY_INTERVAL_S:
                self._began = now
                self._seen.clear()
            place = (record.pathname, record.lineno)
            self._seen[place] += 1
            return self._seen[place] <= _LIBRARY_LINES


@contextmanager
def _library_logs(name: str, level: int, renderer: tuple[Processor, ...]) -> Iterator[None]:
    def as_event(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        event.pop("_record", None)
        event.pop("_from_structlog", None)
        return {"service": name, **event}

    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(level)
    handler.addFilter(_FirstOfEach())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=(*_common_processors(), structlog.stdlib.add_logger_name),
            processors=(as_event, *renderer),
        )
    )
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
