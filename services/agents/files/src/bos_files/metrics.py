"""Domain metrics of the files agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from bos_chassis.metrics import SharedMetrics, current_exemplar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics import MetricWrapperBase


class FilesMetrics(SharedMetrics):
    """Prometheus metrics of workspaces. No label names a user or a file."""

    def __init__(self) -> None:
        self.uploads = Counter(
            "bos_files_uploads",
            "Uploads: stored, existed, refused, broken off",
            ("outcome",),
            registry=None,
        )
        self.uploads_open = Gauge("bos_files_uploads_open", "Uploads under way", registry=None)
        self.written = Counter(
            "bos_files_written",
            "Files that steps wrote, by what was made: text, pdf, csv, xlsx, download",
            ("kind",),
            registry=None,
        )
        self.deleted = Counter(
            "bos_files_deleted", "Files that steps deleted, once approved", registry=None
        )
        self.downloads = Counter(
            "bos_files_downloads",
            "Downloads from other servers by outcome: stored, refused, failed",
            ("outcome",),
            registry=None,
        )
        self.queries = Counter(
            "bos_files_queries",
            "Queries over uploaded files by outcome: ok, cancelled, or the reason of the failure",
            ("outcome",),
            registry=None,
        )
        self.query_seconds = Histogram(
            "bos_files_query_duration_seconds",
            "Time of queries over uploaded files, with waiting and reading the files",
            registry=None,
        )

    def queried(self, outcome: str, seconds: float) -> None:
        """Count one query that ended as ``outcome``."""
        self.queries.labels(outcome).inc()
        self.query_seconds.observe(seconds, current_exemplar())

    def parts(self) -> Iterable[MetricWrapperBase]:
        """All of them."""
        return (
            *(self.uploads, self.uploads_open, self.written, self.deleted, self.downloads),
            *(self.queries, self.query_seconds),
        )
