"""Domain metrics of the files agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class FilesMetrics:
    """Prometheus metrics of workspaces. No label names a user or a file."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.uploads = Counter(
            "bos_files_uploads",
            "Uploads: stored, existed, refused, broken off",
            ("outcome",),
            registry=registry,
        )
        self.uploads_open = Gauge("bos_files_uploads_open", "Uploads under way", registry=registry)
        self.written = Counter(
            "bos_files_written",
            "Files that steps wrote, by what was made: text, pdf, csv, xlsx, download",
            ("kind",),
            registry=registry,
        )
        self.deleted = Counter(
            "bos_files_deleted", "Files that steps deleted, once approved", registry=registry
        )
        self.downloads = Counter(
            "bos_files_downloads",
            "Downloads from other servers by outcome: stored, refused, failed",
            ("outcome",),
            registry=registry,
        )
