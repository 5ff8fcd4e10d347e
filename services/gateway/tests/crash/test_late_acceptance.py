"""A run that was accepted while a new lease was being taken."""

import asyncio
from uuid import uuid4

import grpc

from bos.composer.v1 import ComposerServiceStub
from bos.gateway.v1 import RUN_STATUS_FAILED
from bos.planner.v1 import PlannerServiceStub
from bos.runlog.v1 import LogEvent, RunAccepted
from bos_chassis.channels import Channels
from bos_chassis.telemetry import Telemetry
from bos_gateway.core.fold import fold
from bos_gateway.effects.connections import ConnectionSecrets
from bos_gateway.effects.context import Deps
from bos_gateway.effects.memory_budget import MemoryBudget
from bos_gateway.effects.registry import Registry
from bos_gateway.effects.run_tokens import Tokens
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.ownership.clock import DatabaseClock
from bos_gateway.ownership.owners import Adopted
from bos_gateway.run_log.records import NewRun
from bos_gateway.run_log.run_files import RunFiles
from bos_gateway.run_log.secrets import RunSecrets
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.run_log.writer import LogWriter
from bos_gateway.runs.feed import RunFeed
from bos_gateway.runs.orchestrator import Orchestrator
from bos_gateway.service import migrate_store, new_run_id
from bos_gateway.settings import GatewaySettings
from bos_gateway.verified_queries.stored import VerifiedQueries
from bos_postgres import open_database


async def test_run_accepted_during_lease_renewal_goes_on(
    postgres_dsn: str,
) -> None:
    """Its commit came after the lease's, and its answer before; it is not taken over then."""
    await migrate_store(postgres_dsn)
    telemetry = Telemetry.for_tests("late")
    metrics = GatewayMetrics(telemetry.registry)
    settings = GatewaySettings.load(
        store_url=postgres_dsn,
        planner_target="127.0.0.1:1",
        composer_target="127.0.0.1:1",
        agent_targets={"echo": "127.0.0.1:1"},
    )
    run_id = new_run_id()
    first = LogEvent(run_accepted=RunAccepted(user_id="u"))
    run = NewRun(run_id, "u", str(run_id), b"digest", "", "What?", first)
    feed = RunFeed([first])
    held = False
    async with (
        open_database(postgres_dsn, schema=SCHEMA, max_size=1) as pool,
        LogWriter(postgres_dsn, uuid4(), metrics=metrics, telemetry=telemetry) as writer,
        Channels(telemetry) as channels,
        grpc.aio.insecure_channel("127.0.0.1:1") as nowhere,
    ):
        tokens = Tokens(None)
        orchestrator = Orchestrator(
            Adopted(run_id, 1),
            fold(str(run_id), [first]),
            feed,
            {},
            writer,
            Deps(
                planner=PlannerServiceStub(nowhere),
                composer=ComposerServiceStub(nowhere),
                registry=Registry({}, channels, tokens, telemetry),
                tokens=tokens,
                settings=settings,
                metrics=metrics,
                telemetry=telemetry,
                clock=DatabaseClock(telemetry, metrics),
                secrets=RunSecrets(None, pool, telemetry),
                files=RunFiles(None),
                file_budget=MemoryBudget(0),
                result_budget=MemoryBudget(0),
                connections=ConnectionSecrets(channels, None),
                verified_queries=VerifiedQueries(pool, pool, metrics, 0),
            ),
            lambda: held,
        )
        assert await writer.accept(run)
        ending = asyncio.create_task(orchestrator.fail())
        await asyncio.sleep(0)
        assert not ending.done()
        held = True
        async with asyncio.timeout(60):
            await ending
    assert feed.events[-1].run_finished.response.status == RUN_STATUS_FAILED
