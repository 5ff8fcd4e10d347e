from bos_postgres import connect, require_session_features
from bos_postgres.sessions import are_separate_sessions, keeps_settings


async def test_a_direct_connection_is_a_session(postgres_dsn: str) -> None:
    await require_session_features(postgres_dsn)


async def test_connections_that_share_a_server_process_are_distinguished(postgres_dsn: str) -> None:
    async with connect(postgres_dsn) as first, connect(postgres_dsn) as second:
        assert await are_separate_sessions(first, second)
        assert not await are_separate_sessions(first, first)


async def test_settings_that_were_dropped_on_the_way_are_noticed(postgres_dsn: str) -> None:
    async with connect(postgres_dsn, statement_timeout_s=1) as connection:
        assert not await keeps_settings(connection)
