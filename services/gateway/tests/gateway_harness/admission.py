"""What tests of admission and of a day's tokens share: log writers, a user with an account."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

from prometheus_client import CollectorRegistry

from bos.runlog.v1 import LogEvent, RunAccepted, RunSettings
from bos_chassis.settings import AuthSettings
from bos_chassis.telemetry import Telemetry
from bos_gateway.admission.daily_quota import DayBudget
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.run_log.quota import settle
from bos_gateway.run_log.records import NewRun
from bos_gateway.run_log.writer import LogWriter
from bos_gateway.service import new_run_id
from bos_gateway.settings import GatewaySettings
from gateway_harness.callers import bearer

KEY = "a-key-that-is-long-enough-0123456789"
AS_ANNA = bearer(KEY)


def as_account() -> AuthSettings:
    """Settings of a gateway to which anna's key is an account of hers."""
    return AuthSettings.load(static_key=KEY, static_key_user="anna")


@asynccontextmanager
async def writers(store: str, count: int) -> AsyncIterator[list[LogWriter]]:
    """Writers of as many replicas."""
    metrics = GatewayMetrics(CollectorRegistry())
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                LogWriter(store, uuid4(), metrics=metrics, telemetry=Telemetry.for_tests())
            )
            for _ in range(count)
        ]


def settings_of(**bounds: int) -> GatewaySettings:
    return GatewaySettings.load(
        store_url="postgresql://bos@127.0.0.1/bos",
        planner_target="127.0.0.1:1",
        composer_target="127.0.0.1:1",
        agent_targets={},
        max_run_tokens=20_000,
        **bounds,
    )


def bounded(pool: Any, *, mine: int = 0, all_: int = 0) -> DayBudget:
    """What one replica knows of the day."""
    return DayBudget(pool, settings_of(max_user_day_tokens=mine, max_day_tokens=all_))


def run_of(
    user: str, tokens: int = 0, request_id: str = "", *, active: int = 0, waiting: int = 0
) -> NewRun:
    run_id = new_run_id()
    body = RunAccepted(user_id=user, settings=RunSettings(max_tokens=tokens))
    about = (user, request_id or str(run_id), b"digest", "", "What?")
    accepted = LogEvent(run_accepted=body)
    return NewRun(run_id, *about, accepted, max_active=active, max_waiting=waiting)


async def accept(day: DayBudget, log: LogWriter, run: NewRun) -> NewRun:
    """The run as a replica stored it."""
    async with day.admitted(run) as run:
        assert await log.accept(run)
    return run


async def days(pool: Any) -> dict[str, int]:
    """Tokens of ended runs by user, of everybody under the empty name, over all days."""
    await settle(pool)
    rows = await pool.fetch("SELECT user_id, sum(tokens)::int FROM token_days GROUP BY 1")
    return dict(map(tuple, rows))


async def unsettled(pool: Any) -> int:
    """Tokens that are in the rows of runs and in no sum yet."""
    held = "SELECT coalesce(sum(tokens), 0)::int FROM runs WHERE token_day IS NOT NULL"
    return await pool.fetchval(held)
