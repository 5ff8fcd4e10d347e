import asyncio

import pytest

from bos_errors import ConfigurationError
from bos_postgres import Notices, connect


async def next_payload(notices: Notices) -> str:
    while (item := await anext(notices)) is None:
        continue
    return item


async def test_the_first_item_asks_to_read_then_payloads_follow(postgres_dsn: str) -> None:
    async with (
        asyncio.timeout(60),
        Notices(postgres_dsn, "runs", poll_s=20) as notices,
        connect(postgres_dsn) as sender,
    ):
        assert await anext(notices) is None
        await sender.execute("SELECT pg_notify('runs', 'one'), pg_notify('other', 'no')")
        await sender.execute("SELECT pg_notify('runs', 'two')")
        assert await anext(notices) == "one"
        assert await anext(notices) == "two"


async def test_silence_asks_to_read_now_and_then(postgres_dsn: str) -> None:
    async with asyncio.timeout(60), Notices(postgres_dsn, "runs", poll_s=0.02) as notices:
        assert [await anext(notices) for _ in range(3)] == [None, None, None]


async def test_a_lost_session_listens_again_and_asks_to_read(postgres_dsn: str) -> None:
    async with (
        asyncio.timeout(60),
        Notices(postgres_dsn, "runs", poll_s=0.02, application_name="ears") as notices,
        connect(postgres_dsn) as other,
    ):
        await anext(notices)
        await other.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE application_name = 'ears'"
        )
        while not await other.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ears'"
        ):
            assert await anext(notices) is None
        assert await anext(notices) is None
        await other.execute("SELECT pg_notify('runs', 'again')")
        assert await next_payload(notices) == "again"


async def test_an_overflow_asks_to_read_instead_of_growing(postgres_dsn: str) -> None:
    async with (
        asyncio.timeout(60),
        Notices(postgres_dsn, "runs", poll_s=20) as notices,
        connect(postgres_dsn) as sender,
    ):
        await anext(notices)
        await sender.execute("SELECT pg_notify('runs', n::text) FROM generate_series(1, 5000) n")
        async with asyncio.timeout(60):
            await notices._missed.wait()
        assert await anext(notices) is None
        await sender.execute("SELECT pg_notify('runs', 'last')")
        while (item := await anext(notices)) != "last":
            if item is None:  # what came while the rest of the flood filled the queue is dropped
                await sender.execute("SELECT pg_notify('runs', 'last')")


async def test_a_channel_name_that_needs_quoting_is_refused(postgres_dsn: str) -> None:
    with pytest.raises(ConfigurationError, match="channel name"):
        Notices(postgres_dsn, "Runs!")
