"""A five-step run through the real gateway: what Bos adds to the calls of the agents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import grpc

from bos_bench.asking import Asker
from bos_bench.doubles import QUESTION, BareLoop, Harness, five_agents, open_harness
from bos_bench.measure import Effort, Figures, Part, Table, closed_loop, compared, warm_up
from bos_bench.store import Store
from bos_chassis.settings import TelemetrySettings
from bos_chassis.telemetry import Telemetry, setup_telemetry

_ROWS = 200


async def measure(store: Store, telemetry: Telemetry, effort: Effort) -> Part:
    """Runs per second, latency and processor time, beside the bare loop; statements per run."""
    async with open_harness(telemetry, five_agents()) as harness:
        runs = await _runs(store, harness, "bench_run", effort, effort.at_once)
        log = {"one after another": await _commits(store, harness, effort)}
    async with open_harness(telemetry, five_agents(_ROWS)) as harness:
        tables = await _runs(store, harness, "bench_tables", effort, effort.at_once[:2])
    return {"five steps": runs, f"five steps, {_ROWS} rows each": tables, "log": log}


async def _runs(
    store: Store, harness: Harness, database: str, effort: Effort, at_once: Sequence[int]
) -> Table:
    dsn = await store.fresh_log(database)
    async with AsyncExitStack() as stack:
        asker = await stack.enter_async_context(_asking(harness, dsn))
        await warm_up(effort.warm_up, asker.run)
        bare = await stack.enter_async_context(BareLoop(harness))
        await warm_up(effort.warm_up, bare.run)
        return await compared(
            effort, at_once, lambda count: _compare(store, asker, bare, count, effort.round_s)
        )


class LoggedAsker(Asker):
    """An asker that also knows what the gateway's log did.

    Args:
        channel: To the gateway.
        telemetry: Of the gateway.
    """

    def __init__(self, channel: grpc.aio.Channel, telemetry: Telemetry) -> None:
        super().__init__(channel, QUESTION)
        self._telemetry = telemetry

    def statements(self) -> float:
        """Statements of the log's writer so far."""
        value = self._telemetry.registry.get_sample_value("bos_run_log_batch_events_count")
        return value or 0.0


@asynccontextmanager
async def _asking(harness: Harness, dsn: str) -> AsyncIterator[LoggedAsker]:
    """A gateway with metrics of its own, and a client of it."""
    settings = TelemetrySettings.load(log_level="warning", otlp_endpoint=None)
    with setup_telemetry("bench-gateway", settings) as telemetry:
        async with (
            harness.gateway(dsn, telemetry) as address,
            grpc.aio.insecure_channel(address) as channel,
        ):
            yield LoggedAsker(channel, telemetry)


async def _compare(
    store: Store, asker: LoggedAsker, bare: BareLoop, count: int, seconds: float
) -> Figures:
    asker.first_text_s.clear()
    statements, server_cpu = asker.statements(), store.cpu_s()
    ours = await closed_loop(count, seconds, asker.run)
    statements, server_cpu = asker.statements() - statements, store.cpu_s() - server_cpu
    theirs = await closed_loop(count, seconds, bare.run)
    first_text = sorted(asker.first_text_s)
    return {
        "runs_per_s": ours.per_s,
        "p50_ms": ours.percentile_ms(0.5),
        "p95_ms": ours.percentile_ms(0.95),
        "first_text_p50_ms": first_text[len(first_text) // 2] * 1000,
        "cpu_ms": ours.cpu_ms,
        "server_cpu_ms": server_cpu / ours.count * 1000,
        "statements": statements / ours.count,
        "bare_runs_per_s": theirs.per_s,
        "bare_p50_ms": theirs.percentile_ms(0.5),
        "bare_cpu_ms": theirs.cpu_ms,
        "added_p50_ms": ours.percentile_ms(0.5) - theirs.percentile_ms(0.5),
        "cpu_ratio": ours.cpu_ms / theirs.cpu_ms,
    }


async def _commits(store: Store, harness: Harness, effort: Effort) -> Figures:
    """Transactions of a run when nothing else shares its commits.

    Counted by PostgreSQL over the whole life of a gateway, less that of one without a run, so
    that nothing the gateway does beside its writer is overlooked.
    """
    name = "bench_commits"
    dsn = await store.fresh_log(name)
    marks = [await store.commits(name)]
    statements = 0.0
    counted = 2 * effort.warm_up
    for runs in (0, counted):
        async with _asking(harness, dsn) as asker:
            before = asker.statements()
            for worker in range(runs):
                await asker.run(worker)
            statements = asker.statements() - before
        marks.append(await store.commits(name))
    idle, busy = marks[1] - marks[0], marks[2] - marks[1]
    return {
        "writer_statements": statements / counted,
        "all_transactions": (busy - idle) / counted,
    }
