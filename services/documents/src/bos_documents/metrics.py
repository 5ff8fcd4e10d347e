"""Domain metrics of the documents service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class DocumentsMetrics:
    """Prometheus metrics of documents. No label names a user or a document."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.uploads = Counter(
            "bos_documents_uploads",
            "Uploads: stored, existed, refused, broken off",
            ("outcome",),
            registry=registry,
        )
        self.uploads_open = Gauge(
            "bos_documents_uploads_open", "Uploads under way", registry=registry
        )
        self.stages = Counter(
            "bos_documents_stages",
            "Stages of jobs: done, failed, rejected, lost to another owner",
            ("stage", "outcome"),
            registry=registry,
        )
        self.parsers = Counter(
            "bos_documents_parsers",
            "Parser processes started, by whether the network is cut off or reachable",
            ("network",),
            registry=registry,
        )
        self.pages = Counter("bos_documents_pages", "Pages parsed", registry=registry)
        self.chunks = Counter("bos_documents_chunks", "Chunks indexed", registry=registry)
        self.descriptions = Counter(
            "bos_documents_descriptions",
            "Descriptions of documents: by the model or by rule",
            ("outcome",),
            registry=registry,
        )
        self.repairs = Counter(
            "bos_documents_repairs",
            "Documents whose vectors were indexed again, and orphaned vectors removed",
            ("what",),
            registry=registry,
        )
        self.searches = Histogram(
            "bos_documents_search_seconds", "Time that searches take", registry=registry
        )
        self.waiting = Gauge(
            "bos_documents_jobs_waiting", "Jobs that are due and have no owner", registry=registry
        )
        self.oldest = Gauge(
            "bos_documents_oldest_job_seconds",
            "How long the oldest of them, or of those that services put off, has been waiting",
            registry=registry,
        )
