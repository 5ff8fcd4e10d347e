"""Prometheus metrics of the memory service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class MemoryMetrics:
    """Metrics of memory; no label names a user or a conversation."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.turns = Counter("bos_memory_turns", "Turns recorded", registry=registry)
        self.extractions = Counter(
            "bos_memory_extractions",
            "Questions looked through for personal facts: nothing found, known, remembered, "
            "outdated, failed or left out",
            ("outcome",),
            registry=registry,
        )
        self.summaries = Counter(
            "bos_memory_summaries",
            "Summaries of conversations: by the model, by rule, failed or put off",
            ("outcome",),
            registry=registry,
        )
