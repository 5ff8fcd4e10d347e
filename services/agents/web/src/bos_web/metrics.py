"""Domain metrics of the web agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_BUCKETS_S = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 60.0)


class BrowserMetrics:
    """Pages shown in browsers; no label names a page."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.pages = Counter(
            "bos_web_browser_pages",
            "Pages shown in a browser, by outcome: rendered, or the error type",
            ("outcome",),
            registry=registry,
        )
        self.seconds = Histogram(
            "bos_web_browser_seconds",
            "Time of a page in a browser, its start included",
            buckets=_BUCKETS_S,
            registry=registry,
        )
