"""Deletion of an account removes its data from every table and folder, and no other's."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bos.gateway.v1 import FEEDBACK_RATING_UP
from bos_chassis.auth.account_data import HOLDERS
from bos_postgres import connect, create_database
from bos_testkit.postgres import PostgresServer

from .isolation_harness import PASSWORD, SECRET, IsolationHarness, open_isolation_harness

pytestmark = pytest.mark.isolation

_TABLES = """
SELECT format('%I.%I', n.nspname, c.relname) AS name
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
      AND c.relkind IN ('r', 'p')
      AND c.relname NOT LIKE 'audit\\_%'
"""
_HOLD_HER = {
    "documents.chunks",
    "documents.documents",
    "files.files",
    "files.versions",
    "gateway.approvals",
    "gateway.run_events",
    "gateway.run_feedback",
    "gateway.runs",
    "gateway.verified_queries",
    "gateway.webhooks",
    "identity.api_keys",
    "identity.invitations",
    "identity.sessions",
    "identity.users",
    "memory.conversations",
    "memory.messages",
    "memory.user_long_term_memory",
}


async def holding(dsn: str, *texts: str) -> dict[str, list[str]]:
    """The rows, by table, that hold one of the texts in any column, as text or as bytes."""
    wanted = [*texts, *(text.encode().hex() for text in texts)]
    found: dict[str, list[str]] = {}
    async with connect(dsn) as connection:
        for table in await connection.fetch(_TABLES):
            rows = await connection.fetch(f"SELECT t::text FROM {table['name']} AS t")
            if holds := [row[0] for row in rows if any(text in row[0] for text in wanted)]:
                found[table["name"]] = sorted(holds)
    return found


def files_holding(folder: Path, text: bytes) -> list[Path]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return [file for file in files if text in file.read_bytes()]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what the database alone knows."""
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110  Nothing sets an event.
            await asyncio.sleep(0.01)


async def value(dsn: str, sql: str, *arguments: object) -> Any:
    async with connect(dsn) as connection:
        return await connection.fetchval(sql, *arguments)


@asynccontextmanager
async def opened(server: PostgresServer, folder: Path) -> AsyncIterator[IsolationHarness]:
    """Ada has judged a run of hers; eve administers, has asked something, and is remembered."""
    dsn = await create_database(server.dsn(), f"accounts_{secrets.token_hex(6)}")
    async with open_isolation_harness(dsn, folder) as harness:
        roles = {"user_id": harness.people["eve"].user_id, "roles": ["user", "administrator"]}
        await harness.call("ada", "AdministrationService.SetUserRoles", **roles)
        harness.people["eve"] = await harness.log_in("eve")
        await harness.ended("eve", "What is hers?", "request-of-eve")
        update = "MemoryService.UpdateLongTermMemory"
        await harness.call("eve", update, memory__critical__user_name="green")
        await harness.call(
            "ada",
            "FeedbackService.SetRunFeedback",
            run_id=harness.runs["ended"],
            feedback__rating=FEEDBACK_RATING_UP,
            feedback__note=f"Yes: the {SECRET}",
        )
        yield harness


async def test_account_is_deleted_with_all_data_and_late_arrivals(
    clean_environment: None, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    async with opened(postgres_server, tmp_path) as harness:
        dsn = harness.dsn
        ada, eve = harness.people["ada"], harness.people["eve"]
        of_ada = (ada.user_id, "ada@example.com", SECRET)
        assert set(await holding(dsn, *of_ada)) >= _HOLD_HER
        assert len(files_holding(tmp_path, SECRET.encode())) >= 2  # of a run, and a document
        hers = await holding(dsn, eve.user_id)
        assert set(hers) >= {"gateway.runs", "memory.user_long_term_memory", "identity.users"}
        await harness.call("ada", "AccountService.DeleteAccount", current_password=PASSWORD)

        async def erased() -> bool:
            return await value(dsn, "SELECT erased_at FROM identity.account_deletions") is not None

        await until(erased)
        # What was on its way then may come in yet: that is what the last round is for.
        assert "gateway.runs" not in await holding(dsn, *of_ada)
        # Her last access token is good for a while yet elsewhere.
        await harness.ended("ada", f"Once more: the {SECRET}?", "request-that-is-late")
        assert "gateway.runs" in await holding(dsn, SECRET)
        await value(dsn, "UPDATE identity.account_deletions SET ends_at = now(), next_at = now()")

        async def gone() -> bool:
            sql = "SELECT count(*) FROM identity.users WHERE user_id = $1::uuid"
            return await value(dsn, sql, ada.user_id) == 0

        await until(gone)
        assert await holding(dsn, *of_ada) == {}
        assert files_holding(tmp_path, SECRET.encode()) == []
        after = await holding(dsn, eve.user_id)
        for table in ("gateway.runs", "gateway.run_events", "memory.user_long_term_memory"):
            assert after.get(table) == hers.get(table)


async def test_an_export_holds_what_is_ones_own_and_nothing_of_others(
    clean_environment: None, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    async with opened(postgres_server, tmp_path) as harness:
        exported: dict[str, dict[str, bytes]] = {}
        for name in harness.people:
            files = exported.setdefault(name, {})
            for part in await harness.call(name, "AccountService.ExportAccount"):
                files[part.path] = files.get(part.path, b"") + part.content
        ada, eve = (b"".join(exported[name].values()) for name in ("ada", "eve"))
        assert {path.partition("/")[0] for path in exported["ada"]} == {"identity", *HOLDERS}
        for run_id in harness.runs.values():
            assert SECRET.encode() in exported["ada"][f"gateway/runs/{run_id}.json"]
        webhooks = exported["ada"]["gateway/webhooks.json"]
        assert harness.things["webhook"].encode() in webhooks
        assert b"whsec_" not in webhooks
        assert "gateway/webhooks.json" not in exported["eve"]
        verified = exported["ada"]["gateway/verified-queries.json"]
        assert harness.things["query"].encode() in verified
        assert SECRET.encode() in verified
        assert "gateway/verified-queries.json" not in exported["eve"]
        assert f"The plans of the {SECRET}".encode() in exported["ada"].values()
        document = exported["ada"][f"documents/documents/{harness.things['document']}.bin"]
        assert document == f"The {SECRET} of the documents.".encode()
        contents = [each for path, each in exported["ada"].items() if path.startswith("files/")]
        assert f"The {SECRET} of the workspace.".encode() in contents
        assert f"Yes: the {SECRET}".encode() in ada
        assert b"ada@example.com" in ada
        assert b"green" in eve
        assert SECRET.encode() not in eve
        assert harness.people["ada"].user_id.encode() not in eve
        assert b"green" not in ada
