"""What tests of admission and of a day's tokens share: log writers, somebody with an account."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from prometheus_client import CollectorRegistry

from bos_chassis.settings import AuthSettings
from bos_chassis.telemetry import Telemetry
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.run_log import SCHEMA, LogWriter
from bos_postgres import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY = "a-key-that-is-long-enough-0123456789"
AS_ANNA = (("authorization", f"Bearer {KEY}"),)


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


async def execute(store: str, statement: str, *values: object) -> None:
    """Run a statement behind everybody's back."""
    async with connect(store, schema=SCHEMA) as connection:
        await connection.execute(statement, *values)
