"""Domain metrics of the web agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Histogram

from bos_chassis.metrics import SharedMetrics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics import MetricWrapperBase

_BUCKETS_S = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 60.0)


class BrowserMetrics(SharedMetrics):
    """Pages shown in browsers; no label names a page."""

    def __init__(self) -> None:
        self.pages = Counter(
            "bos_web_browser_pages",
            "Pages shown in a browser, by outcome: rendered, or the error type",
            ("outcome",),
            registry=None,
        )
        self.seconds = Histogram(
            "bos_web_browser_seconds",
            "Time of a page in a browser, its start included",
            buckets=_BUCKETS_S,
            registry=None,
        )

    def parts(self) -> Iterable[MetricWrapperBase]:
        """All of them."""
        return (self.pages, self.seconds)
