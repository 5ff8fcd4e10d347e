"""Runs that are too old are deleted, and a user's runs on demand."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from click.testing import CliRunner
from gateway_harness.answering import refusal
from gateway_harness.harness import Harness, erased
from prometheus_client import CollectorRegistry

from bos.gateway.v1 import RUN_STATUS_CANCELLED
from bos_artefacts import Owner
from bos_cli.main import main
from bos_errors import FailedPrecondition, Unavailable
from bos_gateway.api import LOCAL_USER
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.operator.commands.deployment import find_run_stores
from bos_gateway.run_log.maintenance import Maintenance
from bos_gateway.run_log.retention import Scope, cancel, erase
from bos_gateway.run_log.run_files import RunFiles
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import acquire, connect, open_database
from bos_testkit.agents import SlowAgent
from bos_testkit.plans import step

SECOND = 1 / 86400  # in days


async def run_ids(pool: Any) -> set[str]:
    return {str(row["run_id"]) for row in await pool.fetch("SELECT run_id FROM runs")}


def maintenance(pool: Any, days: float | None, *files: RunFiles, **more: Any) -> Maintenance:
    return Maintenance(pool, days, GatewayMetrics(CollectorRegistry()), *files, **more)


async def age(pool: Any, *runs: UUID | str) -> None:
    """Two days go by since these runs ended."""
    then = "UPDATE runs SET finished_at = now() - interval '2 days' WHERE run_id = ANY ($1)"
    await pool.execute(then, runs)


async def test_runs_are_deleted_in_batches_once_they_are_old_enough(
    harness: Harness, pool: Any
) -> None:
    async with harness.gateway() as gateway:
        *old, young = [(await gateway.ask()).run_id for _ in range(4)]
    await age(pool, *old)
    assert not await maintenance(pool, None).round()
    assert len(await run_ids(pool)) == 4
    day = maintenance(pool, 1.0, batch=2)
    assert await day.round()
    assert len(await run_ids(pool)) == 2
    assert not await day.round()
    assert await run_ids(pool) == {young}
    assert {str(r["run_id"]) for r in await pool.fetch("SELECT run_id FROM run_events")} == {young}


async def test_slow_artefact_store_holds_no_database_session(harness: Harness) -> None:
    class SlowStore(RunFiles):
        enabled = True
        called, go_on = asyncio.Event(), asyncio.Event()

        async def forget(self, owner: Owner) -> int:
            self.called.set()
            await self.go_on.wait()
            return 1

    async with harness.gateway() as gateway:
        await gateway.ask()
    files = SlowStore(None)
    async with open_database(harness.dsn, schema=SCHEMA, max_size=1) as only:
        await only.execute(
            "UPDATE runs SET finished_at = now() - interval '9 days', has_files = true"
        )
        task = asyncio.create_task(maintenance(only, SECOND, files).round())
        await files.called.wait()
        async with acquire(only) as session:
            assert len(await session.fetch("SELECT FROM runs FOR UPDATE NOWAIT")) == 1
        files.go_on.set()
        await task
        assert not await run_ids(only)


async def test_run_under_way_is_never_too_old(harness: Harness, pool: Any) -> None:
    slow = await harness.plan(SlowAgent("slow"))
    async with harness.gateway() as gateway:
        asked = asyncio.create_task(gateway.ask())
        await slow.started.wait()
        await pool.execute("UPDATE runs SET created_at = now() - interval '9 days'")
        await maintenance(pool, SECOND).round()
        slow.release.set()
        assert await run_ids(pool) == {(await asked).run_id}


async def test_erasing_a_user_takes_all_of_theirs_and_nothing_else(
    harness: Harness, pool: Any
) -> None:
    async with harness.gateway() as gateway:
        *mine, other = [(await gateway.ask()).run_id for _ in range(3)]
        await pool.execute("UPDATE runs SET user_id = 'other' WHERE run_id = $1", other)
        events = await pool.fetchval("SELECT count(*) FROM run_events WHERE run_id <> $1", other)
        status, out, err = await erased(harness, "--user", LOCAL_USER)
        assert (status, err) == (0, "")
        assert f"Erased 2 run(s) of user {LOCAL_USER}: {events} event(s), " in out
        assert await run_ids(pool) == {other}
        assert (await refusal(gateway.run(mine[0]))).reason == "NOT_FOUND"
        # Nothing is left: the same command finds nothing, and says so.
        status, out, err = await erased(harness, "--user", LOCAL_USER)
        assert (status, out) == (1, "")
        assert "Nothing is stored" in err
    for arguments in ((), ("--user", "ada", "--run", str(uuid4()))):
        refused = CliRunner().invoke(main, ["runs", "erase", *arguments])
        assert refused.exit_code == 2
        assert "Name either --user or --run." in refused.output


_BESIDE = """
INSERT INTO run_inputs (run_id, kind, payload) VALUES ('{id}', 'cancel', '');
INSERT INTO run_secrets (run_id, key_id, ciphertext) VALUES ('{id}', 'k', '');
INSERT INTO approvals (approval_id, run_id, user_id, status, payload, agent_name, tools, created_at,
                       expire_at)
VALUES ('{id}', '{id}', 'ada', 2, '', '', '', now(), now());
"""
_TABLES = """
SELECT table_name FROM information_schema.columns
WHERE table_schema = current_schema() AND column_name = 'run_id'
"""


@pytest.mark.parametrize("how", ["erased", "expired"])
async def test_nothing_of_a_run_is_left_in_any_table(harness: Harness, pool: Any, how: str) -> None:
    async with harness.gateway() as gateway:
        gone, kept = [UUID((await gateway.ask()).run_id) for _ in range(2)]
    for run_id in (gone, kept):
        await pool.execute(_BESIDE.format(id=run_id))
    tables = [row["table_name"] for row in await pool.fetch(_TABLES)]
    assert {"runs", "run_events", "run_inputs", "run_secrets", "approvals"} <= set(tables)
    if how == "erased":
        async with connect(harness.dsn, schema=SCHEMA) as session:
            await erase(session, Scope(run_id=gone))
    else:
        await age(pool, gone)
        await maintenance(pool, 1.0).round()
    for table in tables:
        left = await pool.fetch(f"SELECT DISTINCT run_id FROM {table}")
        assert gone not in {row["run_id"] for row in left}, table
    assert await run_ids(pool) == {str(kept)}


async def test_run_under_way_is_erased_only_once_it_was_cancelled(
    harness: Harness, pool: Any
) -> None:
    slow = SlowAgent("slow")
    await harness.add_agent(slow)
    async with harness.gateway() as gateway:
        await gateway.ask()
        harness.planner.steps = [step("a", "slow")]
        asked = asyncio.create_task(gateway.ask())
        await slow.started.wait()
        async with connect(harness.dsn, schema=SCHEMA) as session:
            with pytest.raises(FailedPrecondition) as caught:
                await erase(session, Scope(user_id=LOCAL_USER))
        assert "--cancel" in caught.value.message
        assert len(await run_ids(pool)) == 2
        status, out, err = await erased(harness, "--user", LOCAL_USER, "--cancel")
        assert (status, err) == (0, "")
        assert "Erased 2 run(s)" in out
        assert (await asked).status == RUN_STATUS_CANCELLED
    assert not await run_ids(pool)


async def test_cancelling_without_gateway_gives_up_and_erases_nothing(
    harness: Harness, pool: Any
) -> None:
    async with harness.gateway() as gateway:
        await gateway.ask()
    await pool.execute("UPDATE runs SET finished_at = NULL")
    async with connect(harness.dsn, schema=SCHEMA) as session:
        with pytest.raises(Unavailable):
            await cancel(session, Scope(user_id=LOCAL_USER), timeout_s=0.0)
    assert len(await run_ids(pool)) == 1


def test_only_environment_names_store_in_which_files_are_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOS_GATEWAY_STORE_URL", "postgresql:///bos")
    (tmp_path / ".env").write_text("BOS_GATEWAY_ARTEFACTS_URL=file:///of/another\n", "utf-8")
    assert find_run_stores(tmp_path) == ("postgresql:///bos", None)
    monkeypatch.setenv("BOS_GATEWAY_ARTEFACTS_URL", "file:///of/ours")
    assert find_run_stores(tmp_path) == ("postgresql:///bos", "file:///of/ours")
