"""The run log alone: what group commit costs and gains.

Against it stands a writer that does the least that any log must do: one INSERT per transaction,
without asking who owns the run, on up to 16 connections.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from uuid import UUID, uuid4

import asyncpg
from prometheus_client import CollectorRegistry

from bos.agent.v1 import AGENT_EXECUTION_STATUS_SUCCEEDED, AgentResult
from bos.gateway.v1 import AgentRequest
from bos.runlog.v1 import LogEvent, RunAccepted, StepFinished
from bos_bench.measure import Effort, Figures, Part, Sample, closed_loop, compared, warm_up
from bos_bench.store import Store
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import to_value_map
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.run_log.records import Append, NewRun
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.run_log.writer import LogWriter
from bos_gateway.service import new_run_id
from bos_postgres import connect

_PLAIN_CONNECTIONS = 16
_PLAIN_INSERT = """
INSERT INTO run_events (run_id, sequence, event_id, epoch, kind, schema_version, payload,
                        created_at)
VALUES ($1, $2, $3, 1, $4, 1, $5, $6)
"""


async def measure(store: Store, telemetry: Telemetry, effort: Effort) -> Part:
    """Events per second of the log's writer and of the plain one, and runs accepted per second."""
    name = "bench_log"
    dsn = await store.fresh_log(name)
    metrics = GatewayMetrics(CollectorRegistry())
    async with AsyncExitStack() as stack:
        writer = await stack.enter_async_context(
            LogWriter(dsn, uuid4(), metrics=metrics, telemetry=telemetry)
        )
        plain = await stack.enter_async_context(_plain_writer(dsn))
        log = _Log(writer, metrics, [_new_run() for _ in range(max(effort.at_once))])
        await log.accept_all()
        await warm_up(effort.warm_up, log.append)
        append = await compared(
            effort,
            effort.at_once,
            lambda count: _compare(store, log, plain, count, effort.round_s),
        )
        accept = await compared(
            effort, effort.at_once, lambda count: _accepted(store, log, count, effort.round_s)
        )
    return {"append": append, "accept": accept}


class _Log:
    """The writer under test, with a run for each worker."""

    def __init__(self, writer: LogWriter, metrics: GatewayMetrics, runs: Sequence[NewRun]) -> None:
        self._writer = writer
        self._metrics = metrics
        self._runs = runs
        self._next_sequence = [2] * len(runs)

    async def accept_all(self) -> None:
        await asyncio.gather(*(self._writer.accept(run) for run in self._runs))

    async def accept(self, _: int) -> None:
        await self._writer.accept(_new_run())

    async def append(self, worker: int) -> None:
        sequence = self._next_sequence[worker]
        self._next_sequence[worker] += 1
        run_id = self._runs[worker].run_id
        await self._writer.append(Append(run_id, 1, sequence, [_event()]))

    def statements(self) -> float:
        """Statements sent so far."""
        return count_of(self._metrics)


class _PlainWriter:
    """One INSERT and one commit per event."""

    def __init__(self, connections: Sequence[asyncpg.Connection[asyncpg.Record]]) -> None:
        self._free: asyncio.LifoQueue[asyncpg.Connection[asyncpg.Record]] = asyncio.LifoQueue()
        for connection in connections:
            self._free.put_nowait(connection)
        self._run = _new_run()
        self._sequences: Iterator[int] = itertools.count(2)

    async def accept(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        run = self._run
        await connection.execute(
            "INSERT INTO runs (run_id, user_id, request_id, request_digest, question, status) "
            "VALUES ($1, $2, $3, $4, $5, 1)",
            *(run.run_id, run.user_id, run.request_id, run.request_digest, run.question),
        )

    async def append(self, _: int) -> None:
        event = _event()
        connection = await self._free.get()
        try:
            await connection.execute(
                _PLAIN_INSERT,
                self._run.run_id,
                next(self._sequences),
                uuid4(),
                event.WhichOneof("event"),
                event.SerializeToString(),
                event.create_time.ToDatetime(tzinfo=UTC),
            )
        finally:
            self._free.put_nowait(connection)


@asynccontextmanager
async def _plain_writer(dsn: str) -> AsyncIterator[_PlainWriter]:
    async with AsyncExitStack() as stack:
        connections = [
            await stack.enter_async_context(connect(dsn, schema=SCHEMA))
            for _ in range(_PLAIN_CONNECTIONS)
        ]
        plain = _PlainWriter(connections)
        await plain.accept(connections[0])
        for _ in connections:
            await warm_up(2, plain.append)
        yield plain


async def _compare(
    store: Store, log: _Log, plain: _PlainWriter, appenders: int, seconds: float
) -> Figures:
    statements, server_cpu = log.statements(), store.cpu_s()
    ours = await closed_loop(appenders, seconds, log.append)
    statements, server_cpu = log.statements() - statements, store.cpu_s() - server_cpu
    plain_server_cpu = store.cpu_s()
    theirs = await closed_loop(appenders, seconds, plain.append)
    plain_server_cpu = store.cpu_s() - plain_server_cpu
    return {
        "events_per_s": ours.per_s,
        "p50_ms": ours.percentile_ms(0.5),
        "p95_ms": ours.percentile_ms(0.95),
        "cpu_us": ours.cpu_ms * 1000,
        "server_cpu_us": server_cpu / ours.count * 1e6,
        "events_per_statement": ours.count / statements,
        "plain_events_per_s": theirs.per_s,
        "plain_cpu_us": theirs.cpu_ms * 1000,
        "plain_server_cpu_us": plain_server_cpu / theirs.count * 1e6,
        "throughput_ratio": ours.per_s / theirs.per_s,
    }


async def _accepted(store: Store, log: _Log, callers: int, seconds: float) -> Figures:
    statements, server_cpu = log.statements(), store.cpu_s()
    sample: Sample = await closed_loop(callers, seconds, log.accept)
    statements, server_cpu = log.statements() - statements, store.cpu_s() - server_cpu
    return {
        "runs_per_s": sample.per_s,
        "p50_ms": sample.percentile_ms(0.5),
        "p95_ms": sample.percentile_ms(0.95),
        "cpu_us": sample.cpu_ms * 1000,
        "server_cpu_us": server_cpu / sample.count * 1e6,
        "runs_per_statement": sample.count / statements,
    }


def count_of(metrics: GatewayMetrics) -> float:
    """Statements that a writer has sent: each is one observation of its batch size."""
    (family,) = metrics.batch_events.collect()
    return next(one.value for one in family.samples if one.name.endswith("_count"))


def _new_run() -> NewRun:
    run_id: UUID = new_run_id()
    question = "Which five customers brought the most revenue last quarter?"
    accepted = RunAccepted(user_id="bench", request=AgentRequest(question=question))
    event = LogEvent(run_accepted=accepted)
    event.create_time.FromDatetime(datetime.now(UTC))
    return NewRun(run_id, "bench", str(run_id), b"digest", "", question, event)


def _event() -> LogEvent:
    """The end of a step with a small result: of the usual kinds the one in the middle by size."""
    result = AgentResult(
        agent_id="sql_0",
        agent_name="sql",
        status=AGENT_EXECUTION_STATUS_SUCCEEDED,
        answer="Acme Industries brought the most revenue, 182,340.50 EUR.",
        data=to_value_map({"customer": "Acme Industries", "revenue": 182340.5, "rows": 5}),
    )
    event = LogEvent(step_finished=StepFinished(step_id="top", result=result, attempts=1))
    event.create_time.FromDatetime(datetime.now(UTC))
    return event
