"""Statements that are part of a trace have spans, which say nothing of what they are about."""

import asyncpg
import pytest

from bos_chassis.telemetry import Telemetry
from bos_postgres import acquire, execute, fetch, open_database


async def test_statements_within_a_span_have_spans_below_it(postgres_dsn: str) -> None:
    telemetry = Telemetry.for_tests("memory")
    async with open_database(postgres_dsn, schema="public", telemetry=telemetry) as pool:
        await execute(pool, "CREATE TABLE facts (text text)")
        assert not telemetry.spans
        with telemetry.tracer.start_as_current_span("work") as work:
            await execute(pool, "INSERT INTO facts VALUES ($1)", "a secret of Ada")
            assert await fetch(pool, "SELECT text FROM facts -- Ada's")
        await fetch(pool, "SELECT 1")
    *statements, _ = telemetry.spans
    assert {"INSERT", "SELECT"} <= {span.name for span in statements}
    for span in statements:
        assert span.parent.span_id == work.get_span_context().span_id
        assert span.attributes["db.system.name"] == "postgresql"
        assert "Ada" not in span.to_json()


async def test_a_statement_that_fails_has_the_type_of_its_error(postgres_dsn: str) -> None:
    telemetry = Telemetry.for_tests("memory")
    async with open_database(postgres_dsn, schema="public", telemetry=telemetry) as pool:
        with telemetry.tracer.start_as_current_span("work"), pytest.raises(asyncpg.PostgresError):
            async with pool.acquire() as connection:
                await connection.execute("SELECT 'Ada'::integer")
    failed = [span for span in telemetry.spans if not span.status.is_unset]
    assert [(s.attributes or {}).get("error.type") for s in failed] == [
        "InvalidTextRepresentationError"
    ]
    assert "Ada" not in failed[0].to_json()


async def test_without_telemetry_there_are_no_spans(postgres_dsn: str) -> None:
    telemetry = Telemetry.for_tests("memory")
    async with (
        open_database(postgres_dsn, schema="public") as pool,
        acquire(pool) as connection,
    ):
        with telemetry.tracer.start_as_current_span("work"):
            assert await connection.fetchval("SELECT 1") == 1
    assert [span.name for span in telemetry.spans] == ["work"]
