"""How many requests wait for a person, and for how long: two gauges, from an index, now and then.

Runs that wait belong to nobody, so every gateway counts all of them and shows the same figures: the
more there are, the less often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bos_postgres import fetch

if TYPE_CHECKING:
    import asyncpg

    from bos_gateway.metrics import GatewayMetrics

_LOOK_S: Final = 5.0
# So many are counted in milliseconds; of more, the time to the next look grows with them.
_FEW: Final = 20_000

_WAITING: Final = """
SELECT agent_name, tools, count(*)::bigint AS waiting,
       extract(epoch FROM now() - min(created_at))::float8 AS oldest_s
FROM approvals WHERE status = 1
GROUP BY agent_name, tools
"""


class WaitingApprovals:
    """Keeps the gauges of waiting requests.

    Args:
        pool: Connections whose search path is the gateway's schema.
        metrics: Where the gauges are.
    """

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], metrics: GatewayMetrics) -> None:
        self._pool = pool
        self._metrics = metrics
        self._shown: set[tuple[str, str]] = set()

    async def look(self) -> float:
        """Count; what has waited before and does no more is shown as 0.

        Returns:
            Seconds until the next look.

        Raises:
            BosError: the database is away; the gauges stay as they were.
        """
        rows = await fetch(self._pool, _WAITING)
        found = {
            (row["agent_name"], row["tools"]): (row["waiting"], max(0.0, row["oldest_s"]))
            for row in rows
        }
        self._shown |= found.keys()
        for labels in self._shown:
            waiting, oldest_s = found.get(labels, (0, 0.0))
            self._metrics.approvals_waiting.labels(*labels).set(waiting)
            self._metrics.approvals_oldest_seconds.labels(*labels).set(oldest_s)
        count: int = sum(waiting for waiting, _ in found.values())
        return _LOOK_S * max(1.0, count / _FEW)
