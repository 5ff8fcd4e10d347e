"""How many calls may follow runs on this replica at the same time."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from bos_chassis.errors import ResourceExhausted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bos_gateway.metrics import GatewayMetrics


class Streams:
    """Counts the calls that stay open until a run ends.

    The bound is below that of all calls of the server (``BOS_SERVER_MAX_CONCURRENT_RPCS``), so that
    those who want to cancel a run, and health checks, get through.

    Args:
        limit: Such calls at once.
        metrics: Where refusals are counted.
    """

    def __init__(self, limit: int, metrics: GatewayMetrics) -> None:
        self._limit = limit
        self._metrics = metrics
        self.open = 0
        """Such calls now."""

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Room for one more call, for as long as it is entered.

        Raises:
            ResourceExhausted: there is none.
        """
        if self.open >= self._limit:
            self._metrics.refused.labels("stream_limit").inc()
            raise ResourceExhausted(
                "Too many callers follow questions here at the moment; try again shortly.",
                reason="REPLICA_FULL",
                retry_after_s=1.0,
            )
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1
