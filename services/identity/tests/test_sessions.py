"""End of sessions: by a new password in every case, and above the limit."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import pytest
from identity_harness import PASSWORD, Caller, Starter, until

from bos.identity.v1 import ChangePasswordRequest, LogInRequest
from bos_errors import InvalidArgument, Unauthenticated
from bos_postgres import connect


async def refused(work: Awaitable[Any]) -> None:
    with pytest.raises(Unauthenticated):
        await work


@pytest.mark.parametrize("step", ["the password", "the sessions"])
async def test_cancelled_password_change_is_atomic(
    identity: Caller, postgres_dsn: str, step: str
) -> None:
    await identity.register()
    here, thief = await identity.log_in(), await identity.log_in()
    new = "another one, longer"
    table = "users" if step == "the password" else "sessions"
    async with (
        connect(postgres_dsn, schema="identity") as connection,
        connect(postgres_dsn) as watcher,
    ):
        # The change waits at this step, and its client gives up.
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(f"SELECT FROM {table} FOR NO KEY UPDATE")
        request = ChangePasswordRequest(current_password=PASSWORD, new_password=new)
        call = identity.begun(
            "ChangePassword", request, ("authorization", f"Bearer {here.tokens.access_token}")
        )
        ended = asyncio.ensure_future(_end(call))

        async def waits() -> bool:
            return bool(
                await watcher.fetchval(
                    "SELECT count(*) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND wait_event_type = 'Lock'"
                )
            )

        await until(waits)
        call.cancel()
        await ended

        async def gave_up() -> bool:
            return not await waits()

        await until(gave_up)
        await transaction.rollback()
    # Either all of it has happened, or nothing.
    changed = True
    try:
        await identity.log_in(password=new)
    except Unauthenticated:
        changed = False
    try:
        await identity.refresh(thief.tokens.refresh_token)
        still_in = True
    except Unauthenticated:
        still_in = False
    assert changed != still_in


async def _end(call: Any) -> None:
    with suppress(asyncio.CancelledError):
        await call


async def test_session_limit_ends_the_session_idle_longest(start: Starter) -> None:
    identity = await start(max_sessions=3)
    await identity.register()
    logins = [await identity.log_in() for _ in range(3)]
    logins[0].tokens.CopyFrom(await identity.refresh(logins[0].tokens.refresh_token))
    newest = await identity.log_in()
    await refused(identity.refresh(logins[1].tokens.refresh_token))
    open_ones = {s.session_id for s in await identity.sessions(newest.tokens.access_token)}
    assert open_ones == {login.session.session_id for login in (logins[0], logins[2], newest)}
    await identity.register("eve")
    assert await identity.log_in("eve")  # whose sessions are her own
    assert len(await identity.sessions(newest.tokens.access_token)) == 3


async def test_concurrent_logins_keep_the_session_limit(start: Starter, postgres_dsn: str) -> None:
    replicas = [await start(max_sessions=3, hash_queue=30, account_attempts=50) for _ in range(2)]
    await replicas[0].register()
    await asyncio.gather(*(replicas[number % 2].log_in() for number in range(16)))
    async with connect(postgres_dsn, schema="identity") as connection:
        assert await connection.fetchval("SELECT count(*) FROM sessions WHERE is_active") == 3


async def test_unreadable_client_name_is_refused(identity: Caller) -> None:
    await identity.register()
    request = LogInRequest(username="ada", password=PASSWORD, client_name="a\u202eb")
    with pytest.raises(InvalidArgument):
        await identity.call("LogIn", request)
