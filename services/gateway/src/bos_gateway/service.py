"""Start of the gateway's gRPC server, for its own process and for the standalone."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from secrets import randbits
from uuid import UUID, uuid4

from bos.account.v1 import add_AccountDataServiceServicer_to_server
from bos.composer.v1 import ComposerServiceStub
from bos.gateway import v1 as gateway
from bos.memory.v1 import MemoryTurnServiceStub
from bos.planner.v1 import PlannerServiceStub
from bos_artefacts import open_artefacts
from bos_chassis.auth.account_data import SERVICE_NAME as ACCOUNT_SERVICE_NAME
from bos_chassis.auth.proxy_tokens import from_proxy
from bos_chassis.auth.session_check import SessionCheck
from bos_chassis.auth.user_tokens import open_authenticator
from bos_chassis.channels import Channels
from bos_chassis.metrics import DiskMetrics
from bos_chassis.server import GrpcServer, Servicer, grpc_server
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_gateway.account_data import AccountDataServicer
from bos_gateway.admission.accept import Admission
from bos_gateway.admission.daily_quota import DayBudget
from bos_gateway.admission.dry_run import DryRun
from bos_gateway.admission.memory import MemoryClient
from bos_gateway.api import (
    APPROVAL_SERVICE_NAME,
    FEEDBACK_SERVICE_NAME,
    RUN_TOKEN_SERVICE_NAME,
    SERVICE_NAME,
    ApprovalServicer,
    FeedbackServicer,
    OrchestratorServicer,
    RunTokenServicer,
    StreamLimiter,
    caller,
)
from bos_gateway.effects.connections import ConnectionSecrets
from bos_gateway.effects.context import Deps
from bos_gateway.effects.memory_budget import MemoryBudget
from bos_gateway.effects.registry import Registry, watched_registry
from bos_gateway.effects.run_tokens import Tokens
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.operator.api import SERVICE_NAME as OPERATOR_SERVICE_NAME
from bos_gateway.operator.api import OperatorServicer
from bos_gateway.ownership import attempt_checks
from bos_gateway.ownership.clock import DatabaseClock
from bos_gateway.ownership.lease import Lease
from bos_gateway.ownership.owners import Ownership
from bos_gateway.run_log.approvals import ApprovalGauges, Approvals
from bos_gateway.run_log.maintenance import Maintenance, running_maintenance
from bos_gateway.run_log.notifications import Notifications
from bos_gateway.run_log.reader import READER, Runs, StoredCards
from bos_gateway.run_log.run_files import RunFiles
from bos_gateway.run_log.secrets import RunSecrets
from bos_gateway.run_log.session import MIGRATIONS, POOL_SIZE, READERS, SCHEMA, session_name
from bos_gateway.run_log.store_gauges import StoreGauges
from bos_gateway.run_log.writer import LogWriter
from bos_gateway.runs.background import running_replica
from bos_gateway.runs.feedback import Feedback
from bos_gateway.runs.replica import Replica
from bos_gateway.settings import GatewaySettings
from bos_gateway.verified_queries.api import SERVICE_NAME as VERIFIED_QUERY_SERVICE_NAME
from bos_gateway.verified_queries.api import VerifiedQueryServicer
from bos_gateway.verified_queries.stored import VerifiedQueries
from bos_gateway.webhooks.api import SERVICE_NAME as WEBHOOK_SERVICE_NAME
from bos_gateway.webhooks.api import WebhookServicer
from bos_gateway.webhooks.opening import running_webhooks
from bos_http import issuer_document
from bos_postgres import PoolMetrics, migrate, open_database, require_session_features
from bos_postgres.audit import (
    Refusals,
    audit_servicer,
    migrate_audit,
    record_alone,
    record_settings,
    running_audit,
)

_DEADLINE_MARGIN_S = 30.0


async def migrate_store(dsn: str) -> None:
    """Migrate the gateway's schema and its audit trail.

    Raises:
        ConfigurationError, Unavailable: as :func:`bos_postgres.migrate`.
    """
    await migrate_audit(dsn, schema=SCHEMA)
    await migrate(dsn, MIGRATIONS, schema=SCHEMA)


@asynccontextmanager
async def serve(settings: GatewaySettings, telemetry: Telemetry) -> AsyncIterator[GrpcServer]:
    """Serve the gateway until the context is left.

    Args:
        settings: How.
        telemetry: Where its logs, metrics and traces go.

    Raises:
        ConfigurationError: a setting is not usable, such as a store behind a connection pooler.
        Unavailable: the store cannot be reached.
    """
    url = settings.artefacts_url
    artefacts = open_artefacts(url) if url else None
    metrics = GatewayMetrics(telemetry.registry)
    clock = DatabaseClock(telemetry, metrics)
    signer = attempt_checks.signer_of(settings, clock.timestamp, telemetry)
    tokens = Tokens(signer)
    replica_id = uuid4()
    await require_session_features(settings.store_url)
    await migrate_store(settings.store_url)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        auth = await enter(
            open_authenticator(
                settings.auth,
                None,
                telemetry,
                tls=settings.server.tls,
                issuer_document=issuer_document,
            )
        )
        database = partial(open_database, settings.store_url, schema=SCHEMA, stateless=True)
        pool = await enter(
            database(max_size=POOL_SIZE, application_name=session_name("pool", replica_id))
        )
        readers = await enter(
            database(
                max_size=READERS, application_name=session_name("readers", replica_id), role=READER
            )
        )
        pools = PoolMetrics.of(telemetry.registry)
        stack.enter_context(pools.watching(telemetry.service, "main", pool))
        stack.enter_context(pools.watching(telemetry.service, "readers", readers))
        refusals = Refusals(pool, telemetry)
        await enter(running_audit(pool, settings.audit, telemetry))
        await enter(refusals.running())
        await record_settings(pool, SCHEMA, settings)
        if url:
            DiskMetrics.of(telemetry.registry).watch(telemetry.service, "artefacts", url)
        files = RunFiles(artefacts, pool, telemetry)
        channels = await enter(Channels(telemetry, tls=settings.server.tls))
        agents = Registry(settings.agent_targets, channels, tokens, telemetry)
        agents.remember(await StoredCards(pool).latest())
        identity = settings.auth.identity_target if settings.auth.keys_of_identity else None
        registry = await enter(watched_registry(agents, settings.describe_interval_s, telemetry))
        writer = await enter(
            LogWriter(settings.store_url, replica_id, metrics=metrics, telemetry=telemetry)
        )
        verified = VerifiedQueries(pool, readers, metrics, settings.max_verified_queries)
        deps = Deps(
            planner=PlannerServiceStub(channels.get(settings.planner_target)),
            composer=ComposerServiceStub(channels.get(settings.composer_target)),
            registry=registry,
            tokens=tokens,
            settings=settings,
            metrics=metrics,
            telemetry=telemetry,
            clock=clock,
            secrets=RunSecrets(settings.secrets_key_ring(), pool, telemetry),
            files=files,
            file_budget=MemoryBudget(settings.max_waiting_file_bytes),
            result_budget=MemoryBudget(settings.max_held_result_bytes),
            connections=ConnectionSecrets(channels, identity),
            verified_queries=verified,
        )
        runs = Runs(pool, readers)
        ownership = Ownership(pool, replica_id, settings.lease_s, hold_off_s=settings.hold_off_s)
        lease = Lease(
            settings.store_url,
            replica_id,
            lease_s=settings.lease_s,
            renewal_s=settings.lease_renewal_s,
            telemetry=telemetry,
            clock=clock,
        )
        metrics.lease_held.set_function(lambda: lease.held)
        notifications = Notifications(settings.store_url, replica_id, pool)
        memory_client = None
        if settings.memory_target is not None:
            memory = channels.get(settings.memory_target)
            memory.get_state(try_to_connect=True)  # no question has the time to wait for that
            memory_client = MemoryClient(
                MemoryTurnServiceStub(memory), runs, pool, tokens, settings, metrics, telemetry
            )
            await enter(memory_client.running())
        day = DayBudget(pool, settings)
        admission = Admission(runs, writer, deps, day, new_run_id, memory_client)
        replica = Replica(
            writer, runs, ownership, lease, notifications, deps, admission, memory_client
        )
        approvals = Approvals(pool, readers, refusals)
        gauges = ApprovalGauges(pool, metrics), StoreGauges(pool, metrics)
        await enter(running_replica(replica, approvals, *gauges, telemetry))
        maintenance = Maintenance(
            pool,
            settings.retention_days,
            metrics,
            files,
            delivery_days=settings.webhook_history_days,
        )
        await enter(running_maintenance(maintenance, settings.maintenance_interval_s, telemetry))
        streams = StreamLimiter(settings.max_streams, settings.max_streams_per_user, metrics)
        dry_run = DryRun(deps, runs, day)
        audit = partial(record_alone, pool)
        feedback = Feedback(pool, readers, metrics)
        servicer = OrchestratorServicer(
            replica,
            runs,
            registry,
            dry_run,
            streams,
            files,
            clock,
            deps.access,
            audit,
            feedback,
            settings.models,
        )
        sessions = SessionCheck(channels, identity) if identity else None
        decisions = ApprovalServicer(approvals, sessions)
        operators = OperatorServicer(replica, pool, audit, settings)
        webhooks, deliverer = await enter(
            running_webhooks(settings, pool, readers, runs, metrics, telemetry)
        )
        accounts = AccountDataServicer(pool, replica.reader, files, webhooks, feedback, verified)
        services = [
            Servicer(
                operators, gateway.add_OperatorServiceServicer_to_server, OPERATOR_SERVICE_NAME
            ),
            Servicer(servicer, gateway.add_OrchestratorServiceServicer_to_server, SERVICE_NAME),
            Servicer(
                decisions, gateway.add_ApprovalServiceServicer_to_server, APPROVAL_SERVICE_NAME
            ),
            Servicer(
                WebhookServicer(webhooks, deliverer, caller),
                gateway.add_WebhookServiceServicer_to_server,
                WEBHOOK_SERVICE_NAME,
            ),
            Servicer(
                FeedbackServicer(feedback),
                gateway.add_FeedbackServiceServicer_to_server,
                FEEDBACK_SERVICE_NAME,
            ),
            Servicer(
                VerifiedQueryServicer(verified, runs, replica.reader.state, deps.access, caller),
                gateway.add_VerifiedQueryServiceServicer_to_server,
                VERIFIED_QUERY_SERVICE_NAME,
            ),
            Servicer(accounts, add_AccountDataServiceServicer_to_server, ACCOUNT_SERVICE_NAME),
            audit_servicer(pool, SCHEMA),
        ]
        if signer is not None:
            services.append(
                Servicer(
                    RunTokenServicer(attempt_checks.Attempts(pool)),
                    gateway.add_RunTokenServiceServicer_to_server,
                    RUN_TOKEN_SERVICE_NAME,
                    auth=attempt_checks.verifier(signer, settings.auth, telemetry),
                )
            )
        server = await enter(
            grpc_server(
                _server_settings(settings),
                services,
                telemetry=telemetry,
                auth=auth,
                from_proxy=from_proxy(settings.auth, telemetry),
            )
        )
        try:
            yield server
        finally:
            # Before the server drains: streams end at once and their clients go on elsewhere,
            # instead of holding the drain up for all its grace.
            await replica.stop()


def _server_settings(settings: GatewaySettings) -> ServerSettings:
    """A client that sets no deadline must be able to see its run end."""
    server = settings.server
    default_s = max(server.default_deadline_s, settings.run_timeout_s + _DEADLINE_MARGIN_S)
    return server.model_copy(update={"default_deadline_s": default_s})


def new_run_id() -> UUID:
    """A UUID of version 7 (RFC 9562): ids that grow with time keep the log's index compact."""
    milliseconds = time.time_ns() // 1_000_000
    return UUID(int=milliseconds << 80 | 7 << 76 | randbits(12) << 64 | 2 << 62 | randbits(62))
