"""``bos audit``: the audit trails of all services, for those who have to account for them."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final

import asyncpg
import click
from attrs import asdict

from bos_errors import BosError, FailedPrecondition, Unavailable
from bos_gateway.operator.commands.bounded import run_bounded
from bos_gateway.operator.commands.deployment import find_audit_stores
from bos_postgres import connect, statement_errors
from bos_postgres.audit import Checkpoint, SealedEntry, checkpoint, read, verify

_CONNECT_S: Final = 5.0
_TRAILS: Final = """
SELECT schemaname, current_database() AS database, pg_postmaster_start_time() AS server
FROM pg_tables WHERE tablename = 'audit_trail' ORDER BY schemaname
"""
_Anchors = dict[str, dict[int, bytes]]

_stores = click.option(
    "--store-url",
    "urls",
    multiple=True,
    envvar="BOS_AUDIT_STORE_URLS",
    help="Database with trails, repeatable; by default those of all services that keep one.",
)


@click.group()
def audit() -> None:
    """Who did what: log-ins, keys, roles, questions, approvals, deletions. No content.

    Reads the services' databases themselves: those that BOS_GATEWAY_STORE_URL,
    BOS_IDENTITY_STORE_URL, BOS_MEMORY_STORE_URL, BOS_DOCUMENTS_STORE_URL and BOS_FILES_STORE_URL
    name, else the one of the standalone that runs in this folder.
    """


@audit.command()
@_stores
@click.option("--user", default="", help="Only what the user (or key) of this id did.")
def export(urls: tuple[str, ...], user: str) -> None:
    """All trails, one JSON object per line.

    The first line of a service is its checkpoint, behind which the trail begins. Keep exports where
    the database's administrators cannot reach: `bos audit verify --against` compares.
    """
    _run(_export(urls, user))


@audit.command(name="verify")
@_stores
@click.option(
    "--against",
    type=click.File(encoding="utf-8"),
    help="An earlier export, whose rows must still be there, unless retention dropped them.",
)
def verify_command(urls: tuple[str, ...], against: IO[str] | None) -> None:
    """Check that no row of any trail was changed, added or taken out since it was sealed."""
    _run(_verify(urls, {} if against is None else _anchors(against)))


async def _export(urls: tuple[str, ...], user: str) -> None:
    async for service, session in trails(urls):
        start = await checkpoint(session)
        _line(service=service, checkpoint=start.position, hash=start.hash.hex())
        async for entry in _entries(session, start.position):
            if user in ("", entry.actor):
                values = asdict(entry) | {"hash": entry.hash.hex()}
                values["occurred_at"] = entry.occurred_at.isoformat(timespec="microseconds")
                _line(service=service, **values)


async def _verify(urls: tuple[str, ...], anchors: _Anchors) -> None:
    broken = []
    async for service, session in trails(urls):
        expected = anchors.pop(service, {})
        start = end = await checkpoint(session)
        problem = _missing(expected, start)
        count = 0
        async for entry in _entries(session, start.position):
            defect = verify(end, [entry])
            end, count = Checkpoint(entry.position, entry.hash), count + 1
            if defect is not None:
                problem = f"row {defect.position} {defect.problem}"
            elif expected.pop(entry.position, entry.hash) != entry.hash:
                problem = f"row {entry.position} is not the one of the export"
            if problem:
                break
        else:
            last = max(expected, default=0)
            if last > end.position:
                problem = f"rows up to {last} were exported, and the trail ends at {end.position}"
        click.echo(f"{service}: {problem or f'{count} rows, whole, up to {end.position}'}")
        broken += [service] if problem else []
    broken += [f"{service} (no trail any more)" for service in anchors]
    if broken:
        raise FailedPrecondition(f"Not as it was sealed: {', '.join(broken)}.")


def _missing(expected: dict[int, bytes], start: Checkpoint) -> str:
    """What the checkpoint says against the export, if anything."""
    wrong = expected.get(start.position, start.hash) != start.hash
    for position in [each for each in expected if each <= start.position]:
        del expected[position]  # dropped since
    return f"the checkpoint at {start.position} is not the row of the export" if wrong else ""


def _anchors(lines: Iterable[str]) -> _Anchors:
    found: _Anchors = defaultdict(dict)
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            position = row["position"] if "position" in row else row["checkpoint"]
            found[str(row["service"])][int(position)] = bytes.fromhex(row["hash"])
        except (ValueError, KeyError, TypeError):
            raise click.ClickException(
                f"Line {number} of the file is no line of `bos audit export`."
            ) from None
    return found


async def trails(
    urls: tuple[str, ...],
) -> AsyncGenerator[tuple[str, asyncpg.Connection[asyncpg.Record]]]:
    """Every schema with an audit trail, with a session in it."""
    seen, names = set[tuple[object, ...]](), set[str]()
    for url in urls or find_audit_stores(Path.cwd()):
        async with _session(url) as session:
            trails = await session.fetch(_TRAILS)
        for row in trails:
            if tuple(row) in seen:  # services that share a database
                continue
            seen.add(tuple(row))
            schema = row["schemaname"]
            name = schema if schema not in names else f"{schema}@{row['database']}"
            names.add(name)
            async with _session(url, schema) as session:
                yield name, session
    if not names:
        raise Unavailable("There is no audit trail in this database; ask `bos doctor`.")


@asynccontextmanager
async def _session(
    url: str, schema: str | None = None
) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    async with connect(
        url, application_name="bos-operator", schema=schema, connect_timeout_s=_CONNECT_S
    ) as session:
        try:
            with statement_errors(session):
                yield session
        except (asyncpg.UndefinedTableError, asyncpg.InsufficientPrivilegeError) as error:
            raise Unavailable("The audit trail cannot be read there; ask `bos doctor`.") from error


async def _entries(
    session: asyncpg.Connection[asyncpg.Record], after: int
) -> AsyncIterator[SealedEntry]:
    while page := await read(session, after):
        for entry in page:
            yield entry
        after = page[-1].position


def _line(**values: Any) -> None:
    shown: Mapping[str, Any] = {
        key: value.isoformat() if isinstance(value, datetime) else value
        for key, value in values.items()
    }
    click.echo(json.dumps(shown, ensure_ascii=True, default=dict))


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        run_bounded(work)
    except BosError as error:
        raise click.ClickException(error.message) from None
    sys.stdout.flush()
