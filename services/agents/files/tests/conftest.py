from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from bos_chassis.telemetry import Telemetry
from bos_files.service import migrate_store, serve
from bos_files.settings import FilesSettings
from bos_http import HttpClient, HttpPolicy
from bos_testkit.postgres import migrated_template

from .files_harness import Files
from .internet import internet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from bos_testkit.fixtures.agent_harness import StartAgent
    from bos_testkit.postgres import PostgresServer
    from bos_testkit.scripted_model.replies import Fixture

    from .internet import Internet

__all__ = ["internet"]


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """The tables of workspaces, migrated once and copied for each test."""
    return migrated_template(postgres_server, "files_template", migrate_store)


@pytest.fixture
async def stack(postgres_dsn: str) -> AsyncIterator[AsyncExitStack]:
    """Closed before the database, which it depends on, is dropped."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def start(start_agent: StartAgent, stack: AsyncExitStack, postgres_dsn: str, tmp_path: Path) -> Any:
    """Start the service; downloads pass through ``internet`` under ``policy``."""

    async def start(
        *replies: Fixture,
        internet: Internet | None = None,
        policy: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> Files:
        http, folder = None, tmp_path / "workspace"
        if internet is not None:
            allowed = {"hosts": ("files.example.com",), "allow_http": True, **(policy or {})}
            telemetry = Telemetry.for_tests("files")
            http = await stack.enter_async_context(
                HttpClient(HttpPolicy.load(**allowed), telemetry, resolver=internet.names)
            )
        served = partial(serve, http=http)
        where = {"store_url": postgres_dsn, "workspace_url": folder.as_uri()}
        files: Files = await start_agent(
            "files", served, FilesSettings, *replies, harness=Files, **{**where, **changes}
        )
        files.dsn, files.folder = postgres_dsn, folder
        return files

    return start
