"""Checks of the run log's database: can it be used, is it up to date, who owns what.

And of what is kept of credentials: is there a key, and does it open what is stored.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import asyncpg

import bos_postgres as postgres
from bos.gateway.v1 import RUN_STATUS_ACCEPTED, RUN_STATUS_WAITING_FOR_APPROVAL
from bos.runlog.v1 import LogEvent
from bos_errors import BosError, ConfigurationError, Unavailable
from bos_gateway.key_ring import SealedSecrets, SecretsUnreadable
from bos_gateway.operator.commands.findings import Finding, Level, ok, problem, warning
from bos_gateway.run_log.session import MIGRATIONS, MOST_SESSIONS, SCHEMA
from bos_gateway.run_log.statements import SCHEMA_VERSION

if TYPE_CHECKING:
    from bos_gateway.operator.commands.deployment import Deployment

    Session = asyncpg.Connection[asyncpg.Record]

_CONNECT_S: Final = 3.0
_STATEMENT_S: Final = 2.0
_ALL_S: Final = 8.0
_OLDEST_VERSION: Final = 15  # the oldest that its makers still mend
_CLOCK_S: Final = 2.0
_CLOCK_BAD_S: Final = 30.0
# A lease lives for three seconds, and is looked for every second.
_ADOPTION_S: Final = 15.0
_MOST_SECRETS: Final = 1000

_APPLIED = f"SELECT version FROM {SCHEMA}.schema_migrations"  # noqa: S608  our own text
_NEW_RUN = """
INSERT INTO runs (run_id, user_id, request_id, request_digest, question, status)
VALUES ($1, 'bos doctor', $1::uuid::text, '', '', $2)
"""
_NEW_EVENT = """
INSERT INTO run_events (run_id, sequence, event_id, epoch, kind, schema_version, payload,
                        created_at)
VALUES ($1, 1, $1, 1, 'run_accepted', $2, $3, now())
"""
_REPLICAS = """
SELECT count(*) FILTER (WHERE lease_until >= now()) AS alive,
       count(*) FILTER (WHERE lease_until < now()) AS expired
FROM replicas
"""
# Gateways alive are counted with one more, which a rolling restart starts before it stops another.
_CONNECTIONS = """
SELECT current_setting('max_connections')::int
       - current_setting('superuser_reserved_connections')::int
       - coalesce(current_setting('reserved_connections', true), '0')::int AS usable,
       (SELECT count(*)::int FROM pg_stat_activity
        WHERE backend_type = 'client backend' AND usename <> current_user) AS others,
       (SELECT count(*)::int FROM replicas WHERE lease_until >= now()) + 1 AS gateways
"""
_UNFINISHED = """
SELECT count(*) AS runs,
       count(*) FILTER (WHERE r.replica_id IS NULL) AS free,
       count(*) FILTER (WHERE p.lease_until < now()
                        OR r.replica_id IS NOT NULL AND p.replica_id IS NULL) AS of_dead,
       coalesce(max(extract(epoch FROM now() - coalesce(p.lease_until, r.retry_at)))
                FILTER (WHERE p.replica_id IS NULL OR p.lease_until < now()), 0)::float8 AS since_s
FROM runs AS r LEFT JOIN replicas AS p ON p.replica_id = r.replica_id
WHERE r.finished_at IS NULL AND r.status <> $1
"""
_TOKENS = """
WITH today AS (SELECT (now() AT TIME ZONE 'UTC')::date AS day), spent AS (
    SELECT user_id, tokens FROM token_days JOIN today USING (day) WHERE user_id <> ''
    UNION ALL
    SELECT r.user_id, r.tokens FROM runs AS r JOIN today ON r.token_day = today.day
)
SELECT coalesce(sum(tokens), 0)::bigint AS tokens, count(DISTINCT user_id) AS users FROM spent
"""
_SECRETS = """
SELECT s.run_id, s.key_id, s.ciphertext FROM run_secrets AS s JOIN runs AS r USING (run_id)
WHERE r.finished_at IS NULL ORDER BY s.created_at DESC LIMIT $1
"""
_WEBHOOK_SECRETS = """
SELECT webhook_id AS run_id, key_id, secret AS ciphertext FROM webhooks
ORDER BY created_at DESC LIMIT $1
"""


async def check_store(deployment: Deployment) -> list[Finding]:
    """Everything about the database, within a bounded time."""
    dsn = deployment.store_url
    found: list[Finding] = []
    try:
        async with (
            asyncio.timeout(_ALL_S),
            postgres.connect(
                dsn,
                application_name="bos-doctor",
                schema=SCHEMA,
                statement_timeout_s=_STATEMENT_S,
                connect_timeout_s=_CONNECT_S,
            ) as session,
        ):
            with postgres.statement_errors(session):
                found.append(await _version(session, dsn))
                found.append(await _clock(session))
                found.append(await _sessions(dsn))
                found.append(await _migrations(session))
                if found[-1].level is not Level.PROBLEM:
                    found.append(await _write(session))
                    found.extend(await _ownership(session))
                    found.append(await _connections(session))
                    found.extend(await _tokens(session))
                    found.append(await check_secrets(session, deployment))
                    found.extend(await check_webhooks(session, deployment))
    except BosError as error:
        advice = f"{deployment.remedy}, or correct BOS_GATEWAY_STORE_URL."
        found.append(problem("store", error.message, advice))
    except TimeoutError:
        text = "The database is too slow to answer."
        found.append(problem("store", text, "Look at its load and log."))
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        text = f"The database refuses a statement ({type(error).__name__})."
        advice = "Look at its log; the gateway's user must own the schema."
        found.append(problem("store", text, advice))
    return found


async def _version(session: Session, dsn: str) -> Finding:
    name = await session.fetchval("SHOW server_version")
    text = f"{postgres.describe(dsn)} answers, PostgreSQL {name}"
    if session.get_server_version().major < _OLDEST_VERSION:
        return problem("store", text, f"Upgrade PostgreSQL to {_OLDEST_VERSION} or later.")
    return ok("store", text)


async def _clock(session: Session) -> Finding:
    before = time.time()
    theirs = await session.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
    after = time.time()
    # It was read somewhere between the two, so only what lies outside of them is a difference.
    apart = max(before - theirs, theirs - after, 0.0)
    text = f"this machine and PostgreSQL differ by {apart:.1f} s"
    if apart <= _CLOCK_S:
        return ok("clock", text)
    advice = "Synchronise the clocks of both machines (NTP): deadlines of runs rely on them."
    return (problem if apart > _CLOCK_BAD_S else warning)("clock", text, advice)


async def _sessions(dsn: str) -> Finding:
    try:
        async with asyncio.timeout(_CONNECT_S):
            await postgres.require_session_features(dsn)
    except ConfigurationError as error:
        return problem("sessions", error.message, "Use PostgreSQL's own port in the store's URL.")
    except (Unavailable, TimeoutError):
        text = "Two more connections could not be opened."
        advice = "Look whether max_connections is reached, or a pooler makes clients wait."
        return problem("sessions", text, advice)
    return ok("sessions", "connections are sessions; no transaction pooler in between")


async def _connections(session: Session) -> Finding:
    (row,) = await session.fetch(_CONNECTIONS)
    needed = row["gateways"] * MOST_SESSIONS + row["others"]
    text = (
        f"{row['gateways']} gateway(s), one of them for a restart, and {row['others']} session(s) "
        f"of others may need {needed} of {row['usable']} connections"
    )
    if needed <= row["usable"]:
        return ok("connections", text)
    more = f"Raise max_connections by {needed - row['usable']} or more, and restart PostgreSQL."
    return warning("connections", text, more)


async def _migrations(session: Session) -> Finding:
    """A problem unless the tables can be used by this version."""
    wanted = {path.name.partition("_")[0] for path in postgres.migration_files(MIGRATIONS)}
    advice = "Start a gateway of this version: it migrates before it serves."
    try:
        applied = {row["version"] for row in await session.fetch(_APPLIED)}
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        text = f"there is no schema {SCHEMA} of a gateway"
        return problem("migrations", text, advice)
    except asyncpg.InsufficientPrivilegeError:
        text = f"this user may not read the schema {SCHEMA}"
        return problem("migrations", text, "Use the user that the gateway has.")
    if missing := sorted(wanted - applied):
        return problem("migrations", f"missing: {', '.join(missing)}", advice)
    if newer := sorted(applied - wanted):
        text = f"applied by a newer version: {', '.join(newer)}"
        return warning("migrations", text, "Use the doctor of that version.")
    return ok("migrations", f"all {len(wanted)} are applied")


async def _tokens(session: Session) -> list[Finding]:
    """What counts against the bounds of the day, if there are any."""
    (row,) = await session.fetch(_TOKENS)
    if not row["users"]:
        return []
    text = f"{row['tokens']} model tokens held or consumed today (UTC) by {row['users']} user(s)"
    return [ok("tokens", text)]


async def _write(session: Session) -> Finding:
    run_id, event = uuid4(), LogEvent(create_time=datetime.now(UTC))
    attempt = session.transaction()
    await attempt.start()
    try:
        await session.execute(_NEW_RUN, run_id, RUN_STATUS_ACCEPTED)
        await session.execute(_NEW_EVENT, run_id, SCHEMA_VERSION, event.SerializeToString())
    except asyncpg.ReadOnlySQLTransactionError:
        advice = "Connect to the primary, not to a standby; or end default_transaction_read_only."
        return problem("writing", "the database is read-only", advice)
    except asyncpg.InsufficientPrivilegeError:
        text = f"this user may not write in the schema {SCHEMA}"
        advice = "Use the user that the gateway has, and let it own the schema."
        return problem("writing", text, advice)
    except (asyncpg.DiskFullError, asyncpg.OutOfMemoryError) as error:
        text = f"the database cannot write ({type(error).__name__})"
        return problem("writing", text, "Make room on the machine of the database.")
    finally:
        await attempt.rollback()
    return ok("writing", "a run and an event can be written (rolled back)")


async def _ownership(session: Session) -> tuple[Finding, Finding]:
    (replicas,) = await session.fetch(_REPLICAS)
    (runs,) = await session.fetch(_UNFINISHED, RUN_STATUS_WAITING_FOR_APPROVAL)
    alive = replicas["alive"]
    text = f"{alive} alive"
    if replicas["expired"]:
        text += f", leases of {replicas['expired']} have run out"
    first = ok("gateways", text)
    if not alive:
        first = problem("gateways", f"no gateway holds a lease ({text})", "Start a gateway.")
    text = f"{runs['runs']} under way"
    if not runs["free"] + runs["of_dead"]:
        return first, ok("runs", f"{text}, each owned by a gateway that is alive")
    since_s = max(0.0, runs["since_s"])
    text += (
        f": {runs['free']} released, {runs['of_dead']} of dead gateways, "
        f"not taken over for up to {since_s:.0f} s"
    )
    if not alive:
        return first, problem("runs", text, "Start a gateway: it takes them over.")
    if since_s < _ADOPTION_S:
        return first, warning("runs", text, "Look again in a few seconds.")
    advice = (
        "Look into the gateways' logs: they may be full (BOS_GATEWAY_MAX_ACTIVE_RUNS), or too old "
        "for these runs."
    )
    return first, problem("runs", text, advice)


async def check_secrets(session: Session, deployment: Deployment) -> Finding:
    """Whether the credentials of the runs under way survive their gateway; shows none of them."""
    rows = await session.fetch(_SECRETS, _MOST_SECRETS)
    unreadable = [row for row in rows if not _readable(deployment, row)]
    if unreadable:
        ids = ", ".join(sorted({row["key_id"] for row in unreadable}))
        text = f"credentials of {len(unreadable)} run(s) cannot be read; encrypted by {ids}"
        advice = (
            "Add the key of that id to BOS_GATEWAY_SECRETS_KEYS of every gateway, behind the "
            "newest one, until these runs have ended. If it is there, the rows were changed."
        )
        return problem("secrets", text, advice)
    if not deployment.secrets_key_ids:
        return warning(
            "secrets",
            "no key: a run that changes its gateway loses the credentials given with its question",
            "Set BOS_GATEWAY_SECRETS_KEYS of every gateway to id=KEY, with KEY made by "
            "`openssl rand -base64 32`.",
        )
    ids = ", ".join(sorted(deployment.secrets_key_ids))
    return ok("secrets", f"credentials of {len(rows)} run(s) under way can be read; keys: {ids}")


async def check_webhooks(session: Session, deployment: Deployment) -> list[Finding]:
    """Whether events for webhooks can be signed; nothing if there are none."""
    rows = await session.fetch(_WEBHOOK_SECRETS, _MOST_SECRETS)
    unreadable = [row for row in rows if not _readable(deployment, row)]
    if unreadable:
        ids = ", ".join(sorted({row["key_id"] for row in unreadable}))
        text = f"secrets of {len(unreadable)} webhook(s) cannot be read; encrypted by {ids}"
        advice = (
            "Add the key of that id to BOS_GATEWAY_SECRETS_KEYS of every gateway, behind the "
            "newest one, or have their owners add them anew: their events cannot be signed."
        )
        return [problem("webhooks", text, advice)]
    return [ok("webhooks", f"secrets of {len(rows)} webhook(s) can be read")] if rows else []


def _readable(deployment: Deployment, row: asyncpg.Record) -> bool:
    if deployment.secrets is None:
        return row["key_id"] in deployment.secrets_key_ids
    try:
        deployment.secrets.open(row["run_id"], SealedSecrets(row["key_id"], row["ciphertext"]))
    except SecretsUnreadable:
        return False
    return True
