from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bos_chassis.telemetry import Telemetry
from bos_files.service import migrate_store, serve
from bos_files.settings import FilesSettings
from bos_http import HttpClient, HttpPolicy
from bos_testkit.fixtures.agent_harness import StartAgent
from bos_testkit.internet.world import Internet, Request, Site, answer, wired
from bos_testkit.postgres import PostgresServer, migrated_template
from bos_testkit.scripted_model.replies import Fixture

from .files_harness import Files


@dataclass
class Downloads(Internet):
    answers: dict[str, bytes] = field(default_factory=dict)
    site: Site = field(default_factory=Site)

    async def respond(self, request: Request) -> AsyncIterator[bytes]:
        yield self.answers.get(request.path, answer("404 Not Found"))


@pytest.fixture
async def internet() -> AsyncIterator[Downloads]:
    internet = Downloads()
    async with wired(internet):
        internet.site = await internet.serve(internet.respond, names=("files.example.com",))
        yield internet


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
        internet: Downloads | None = None,
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
        settings = {"harness": Files, **where, **changes}
        files = await start_agent("files", served, FilesSettings, *replies, **settings)
        files.dsn, files.folder = postgres_dsn, folder
        return files

    return start


@pytest.fixture
async def files(start: Any) -> Any:
    return await start(models=False)
