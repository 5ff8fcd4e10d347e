"""Export of spans in batches, whose flush returns whether they arrived.

OpenTelemetry's own processor looks at no result of its exporter.
"""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult


class CheckedExporter(SpanExporter):
    """Passes spans on and keeps how that went the last time; all other methods are the other's."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.succeeded = True
        """Whether the last batch was taken; true before the first."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch, and keep how that went."""
        self.succeeded = False
        result = self._exporter.export(spans)
        self.succeeded = result is SpanExportResult.SUCCESS
        return result

    def shutdown(self) -> None:
        """Close the connection; a batch under way may fail."""
        self._exporter.shutdown()


class CheckedBatches(BatchSpanProcessor):
    """Exports spans in batches, from a thread of its own.

    Args:
        exporter: Where they go.
        every_ms: Milliseconds until spans that have ended are exported.
    """

    def __init__(self, exporter: SpanExporter, every_ms: int) -> None:
        self._checked = CheckedExporter(exporter)
        super().__init__(self._checked, schedule_delay_millis=every_ms)

    def force_flush(self, timeout_millis: int | None = None) -> bool:
        """Export what waits now; whether the last batch was taken, also one under way by then.

        Args:
            timeout_millis: Not observed: the timeout of the exporter bounds each batch.
        """
        return super().force_flush(timeout_millis) and self._checked.succeeded
