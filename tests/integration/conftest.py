import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_asyncio
from pydantic import SecretStr

from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_demo.service import serve as serve_demo
from bos_demo.settings import DemoSettings
from bos_gateway.service import migrate_store
from bos_mcp_db.settings import DatabaseSettings
from bos_postgres import create_database
from bos_standalone.service import Standalone, serve_all
from bos_standalone.settings import StandaloneSettings
from bos_standalone.stores import COMPANY_DATABASE, company_database, ensure_database
from bos_testkit.postgres import PostgresServer, copy_database, migrated_template
from bos_testkit.scripted_model.server import ScriptedModel

from .harness import Harness, open_harness
from .rest_harness import RestHarness, rest_harness


@pytest.fixture(scope="session")
def company(postgres_server: PostgresServer) -> DatabaseSettings:
    """The sample company, by the role that may only read it; loaded once per session."""

    async def load() -> DatabaseSettings:
        dsn = await ensure_database(postgres_server.dsn(), COMPANY_DATABASE)
        settings = DemoSettings.load(database_url=SecretStr(dsn))
        async with serve_demo(settings, Telemetry.for_tests("demo")) as demo:
            return await company_database(demo)

    return asyncio.run(load())


@pytest.fixture(scope="session")
def run_log_template(postgres_server: PostgresServer) -> str:
    """The run log's tables, which gateways find up to date."""
    return migrated_template(postgres_server, "run_log_template", migrate_store)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store_url(postgres_server: PostgresServer, run_log_template: str) -> str:
    """A database for the run log of one module."""
    name = f"store_{secrets.token_hex(6)}"
    return await copy_database(postgres_server, run_log_template, name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rest_product(
    tmp_path_factory: pytest.TempPathFactory, started_before: Callable[[Path], Path]
) -> AsyncIterator[RestHarness]:
    """The whole product with REST, as a process of its own; one for the tests of a module."""
    folder = tmp_path_factory.mktemp("product")
    started_before(folder / ".data")
    async with rest_harness(folder) as harness:
        yield harness


class StartHarness(Protocol):
    """Starts a harness that ends with the test; options are those of ``open_harness``."""

    async def __call__(self, **options: Any) -> Harness: ...


@pytest_asyncio.fixture(loop_scope="module")
async def start_harness(
    company: DatabaseSettings,
    postgres_server: PostgresServer,
    run_log_template: str,
    clean_environment: None,
) -> AsyncIterator[StartHarness]:
    async with AsyncExitStack() as harnesses:

        async def start(**options: Any) -> Harness:
            name = f"store_{secrets.token_hex(6)}"
            store_url = await copy_database(postgres_server, run_log_template, name)
            return await harnesses.enter_async_context(open_harness(company, store_url, **options))

        yield start


class StartProduct(Protocol):
    """Starts the all-in-one on the company and an empty store, until the test ends."""

    async def __call__(
        self, model: ScriptedModel | None = None, **variables: str
    ) -> tuple[Standalone, BosClient]: ...


@pytest.fixture
async def start_product(
    company: DatabaseSettings,
    postgres_server: PostgresServer,
    clean_environment: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[StartProduct]:
    async with AsyncExitStack() as stack:

        async def start(
            model: ScriptedModel | None = None, **variables: str
        ) -> tuple[Standalone, BosClient]:
            for name, value in {
                "BOS_DATABASE_URL": company.url.get_secret_value(),
                "BOS_DATABASE_ALLOWED_TABLES": ",".join(
                    f"company.{table}" for table in company.allowed_tables
                ),
                "BOS_STANDALONE_REST": "false",
                **variables,
            }.items():
                monkeypatch.setenv(name, value)
            if model is not None:
                monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
                monkeypatch.setenv("BOS_MODEL", "any-name")
            store = await create_database(postgres_server.dsn(), f"own_{secrets.token_hex(6)}")
            monkeypatch.setenv("BOS_STORE_URL", store)
            settings = StandaloneSettings.load(data_dir=tmp_path / "data", grace_s=0.1)
            product = await stack.enter_async_context(
                serve_all(settings, Telemetry.for_tests("standalone"))
            )
            bos = BosClient(product.target, api_key=product.api_key)
            return product, await stack.enter_async_context(bos)

        yield start
