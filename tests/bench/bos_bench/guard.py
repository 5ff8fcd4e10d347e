"""The SQL guard: every query passes it twice, in the agent and in front of the database."""

import asyncio
import time
from collections.abc import Callable

import sqlglot

from bos_bench.measure import Effort, Figures, Part, medians
from bos_sqlguard import Guard, GuardPolicy

QUERY = """\
WITH quarter AS (
    SELECT i.customer_id, SUM(i.amount) AS revenue, COUNT(*) AS invoices
    FROM invoices AS i
    WHERE i.issued_on >= DATE '2026-07-01' AND i.issued_on < DATE '2026-10-01'
      AND i.status <> 'cancelled'
    GROUP BY i.customer_id
),
total AS (
    SELECT SUM(revenue) AS revenue FROM quarter
)
SELECT c.name, c.country, q.revenue, q.invoices,
       ROUND(100 * q.revenue / NULLIF(t.revenue, 0), 2) AS share,
       CASE WHEN q.revenue > 100000 THEN 'key' ELSE 'other' END AS class,
       COALESCE(p.open_amount, 0) AS open_amount
FROM quarter AS q
JOIN customers AS c ON c.customer_id = q.customer_id
CROSS JOIN total AS t
LEFT JOIN (SELECT customer_id, SUM(open_amount) AS open_amount FROM payments
           GROUP BY customer_id) AS p ON p.customer_id = q.customer_id
ORDER BY q.revenue DESC
LIMIT 5"""


async def measure(effort: Effort) -> Part:
    """Processor time of reading the query, of checking it, and of checking what was written."""
    guard = Guard(GuardPolicy("postgres", frozenset({"customers", "invoices", "payments"})))
    verdict = guard.check(QUERY)
    if not verdict.is_safe or verdict.safe_sql is None:
        raise RuntimeError(f"the guard refuses the query: {verdict.violations}")
    safe_sql = verdict.safe_sql
    rounds: list[Figures] = []
    for _ in range(effort.rounds):
        parse = _microseconds(lambda: sqlglot.parse(QUERY, read="postgres"), effort.round_s / 2)
        first = _microseconds(lambda: guard.check(QUERY), effort.round_s / 2)
        again = _microseconds(lambda: guard.check(safe_sql), effort.round_s / 2)
        rounds.append(
            {
                "parse_us": parse,
                "check_us": first,
                "check_again_us": again,
                "check_over_parse_ratio": first / parse,
                "check_again_over_parse_ratio": again / parse,
            }
        )
        await asyncio.sleep(0)
    return {"a query of 20 lines": {"postgres": medians(rounds)}}


def _microseconds(work: Callable[[], object], seconds: float) -> float:
    cpu, count = time.process_time(), 0
    end = time.perf_counter() + seconds
    while count == 0 or time.perf_counter() < end:
        work()
        count += 1
    return (time.process_time() - cpu) / count * 1e6
