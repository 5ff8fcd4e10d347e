"""Traces as a collector gets them: a receiver of OTLP, and what must hold of every trace."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.sdk.trace import ReadableSpan

_SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"


@dataclass(frozen=True)
class SeenSpan:
    """A span that was exported; ids in hexadecimal."""

    trace_id: str
    span_id: str
    parent_id: str
    """Empty for a root."""
    service: str
    name: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...]
    """Ids of spans, and what the link to each is for."""
    failed: bool

    @classmethod
    def of(cls, span: ReadableSpan) -> SeenSpan:
        """What an exporter would make of a span of this process."""
        assert span.start_time is not None
        return cls(
            f"{span.context.trace_id:032x}",
            f"{span.context.span_id:016x}",
            "" if span.parent is None else f"{span.parent.span_id:016x}",
            str(span.resource.attributes["service.name"]),
            span.name,
            span.start_time,
            span.end_time or 0,
            dict(span.attributes or {}),
            tuple(
                (f"{link.context.span_id:016x}", str((link.attributes or {}).get("bos.link", "")))
                for link in span.links
            ),
            not span.status.is_unset and not span.status.is_ok,
        )


def read_spans(request: bytes) -> list[SeenSpan]:
    """The spans of an ExportTraceServiceRequest, or of TracesData: the same on the wire."""
    found = []
    for resource in ExportTraceServiceRequest.FromString(request).resource_spans:
        service = _values(resource.resource.attributes).get("service.name", "")
        for scope in resource.scope_spans:
            for span in scope.spans:
                links = tuple(
                    (link.span_id.hex(), str(_values(link.attributes).get("bos.link", "")))
                    for link in span.links
                )
                found.append(
                    SeenSpan(
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        service,
                        span.name,
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        _values(span.attributes),
                        links,
                        span.status.code == Status.STATUS_CODE_ERROR,
                    )
                )
    return found


@dataclass
class Trace:
    """All spans of one trace; what was exported twice is there once."""

    spans: dict[str, SeenSpan] = field(default_factory=dict)

    @classmethod
    def all_of(cls, spans: Iterable[SeenSpan]) -> dict[str, Trace]:
        """Traces by id.

        Raises:
            AssertionError: two different spans have the same id.
        """
        found: dict[str, Trace] = defaultdict(cls)
        for span in spans:
            known = found[span.trace_id].spans.setdefault(span.span_id, span)
            assert known == span, f"one id for two spans: {known}, {span}"
        return dict(found)

    def check(self) -> None:
        """One root; every span has a parent that was exported, and an end.

        Raises:
            AssertionError: it is not so.
        """
        tree = "\n".join(sorted(self.tree()))
        roots = [span for span in self.spans.values() if not span.parent_id]
        assert len(roots) == 1, f"{len(roots)} roots:\n{tree}"
        lost = [each for each in self.spans.values() if each.parent_id and not self.parent(each)]
        assert not lost, f"without parent: {[(each.service, each.name) for each in lost]}\n{tree}"
        for span in self.spans.values():
            assert 0 < span.start_ns <= span.end_ns, f"no end: {span}"

    def parent(self, span: SeenSpan) -> SeenSpan | None:
        """Whom a span is a child of, if that was exported."""
        return self.spans.get(span.parent_id)

    def named(self, name: str) -> list[SeenSpan]:
        """Spans of a name, those that began first in front."""
        found = [span for span in self.spans.values() if span.name == name]
        return sorted(found, key=lambda span: span.start_ns)

    def one(self, name: str) -> SeenSpan:
        """The span of a name, of which there is one."""
        (span,) = self.named(name)
        return span

    def edges(self) -> set[tuple[str, str]]:
        """Parent and child, each as service and name: ``gateway: plan``."""
        return {
            (_named(parent), _named(span))
            for span in self.spans.values()
            if (parent := self.parent(span)) is not None
        }

    def tree(self) -> list[str]:
        """Each span with its ancestors, as far as they are there."""
        return [" > ".join(reversed(self._upwards(span))) for span in self.spans.values()]

    def _upwards(self, span: SeenSpan) -> list[str]:
        path, seen = [_named(span)], {span.span_id}
        at: SeenSpan | None = span
        while at is not None and (at := self.parent(at)) is not None and at.span_id not in seen:
            seen.add(at.span_id)
            path.append(_named(at))
        return path


@dataclass
class SpanReceiver:
    """An OTLP receiver that keeps all that it is sent."""

    endpoint: str = ""
    """As ``BOS_OTLP_ENDPOINT`` takes it."""
    spans: list[SeenSpan] = field(default_factory=list)


@contextmanager
def span_receiver() -> Iterator[SpanReceiver]:
    """Receive OTLP over gRPC on this machine until the block is left."""
    receiver = SpanReceiver()

    def export(request: bytes, _: grpc.ServicerContext) -> bytes:
        receiver.spans.extend(read_spans(request))
        return b""

    server = grpc.server(ThreadPoolExecutor(1))
    handlers: dict[str, Any] = {"Export": grpc.unary_unary_rpc_method_handler(export)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    receiver.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(None).wait()


def _named(span: SeenSpan) -> str:
    return f"{span.service}: {span.name}"


def _values(attributes: Iterable[KeyValue]) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(_value(each) for each in value.array_value.values)
    return None if kind is None else getattr(value, kind)
