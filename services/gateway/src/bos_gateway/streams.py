"""How many calls may follow runs on this replica at the same time."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bos_chassis.auth import LOCAL_USER
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
        user_limit: Such calls at once of one account; 0: no bound. Where nobody signs in, all
            callers are one user, for whom only the other bound holds.
        metrics: Where refusals are counted.
    """

    def __init__(self, limit: int, user_limit: int, metrics: GatewayMetrics) -> None:
        self._limit = limit
        self._user_limit = user_limit
        self._metrics = metrics
        self._of_users: Counter[str] = Counter()

    @property
    def open(self) -> int:
        """Such calls now."""
        return self._of_users.total()

    @contextmanager
    def one_more(self, user_id: str) -> Iterator[None]:
        """Room for one more call of a user, for as long as it is entered.

        Raises:
            ResourceExhausted: there is none.
        """
        self._require_room(user_id)
        self._of_users[user_id] += 1
        try:
            yield
        finally:
            self._of_users[user_id] -= 1
            if not self._of_users[user_id]:
                del self._of_users[user_id]

    def _require_room(self, user_id: str) -> None:
        bounded = self._user_limit and user_id != LOCAL_USER
        if bounded and self._of_users[user_id] >= self._user_limit:
            self._metrics.refused.labels("user_stream_limit").inc()
            raise ResourceExhausted(
                "You follow too many questions at the same time; stop following one first.",
                reason="USER_STREAM_LIMIT",
                retry_after_s=1.0,
            )
        if self.open >= self._limit:
            self._metrics.refused.labels("stream_limit").inc()
            raise ResourceExhausted(
                "Too many callers follow questions here at the moment; try again shortly.",
                reason="REPLICA_FULL",
                retry_after_s=1.0,
            )
