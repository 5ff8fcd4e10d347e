"""Domain metrics of the composer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class ComposerMetrics:
    """Prometheus metrics of answers. Labels are bounded."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.citations = Counter(
            "bos_composer_citations",
            "Citation numbers of answers: known, or unknown and therefore dropped",
            ("outcome",),
            registry=registry,
        )
