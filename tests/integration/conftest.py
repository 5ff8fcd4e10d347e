import asyncio
import importlib
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
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


@pytest.fixture(scope="session")
def product_template(postgres_server: PostgresServer) -> str:
    """The tables of all services, as a product finds them at its second start."""

    async def migrate(dsn: str) -> None:
        for service in ("gateway", "identity", "memory", "documents", "files"):
            await importlib.import_module(f"bos_{service}.service").migrate_store(dsn)

    return migrated_template(postgres_server, "product_template", migrate)


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


@dataclass(frozen=True)
class Product:
    """The all-in-one on the company and a store of its own, with a client."""

    standalone: Standalone
    bos: BosClient
    store_url: str


class OpenProduct(Protocol):
    """Starts a product for a block, with this model and these variables."""

    def __call__(
        self, model: ScriptedModel | None = None, **variables: str
    ) -> AbstractAsyncContextManager[Product]: ...


@pytest.fixture(scope="module")
def open_product(
    company: DatabaseSettings,
    postgres_server: PostgresServer,
    product_template: str,
    clean_environment: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> OpenProduct:
    @asynccontextmanager
    async def opened(
        model: ScriptedModel | None = None, **variables: str
    ) -> AsyncIterator[Product]:
        name = f"own_{secrets.token_hex(6)}"
        store = await copy_database(postgres_server, product_template, name)
        allowed = ",".join(f"company.{table}" for table in company.allowed_tables)
        asked = {"OPENAI_BASE_URL": model.base_url, "BOS_MODEL": "any-name"} if model else {}
        async with AsyncExitStack() as stack:
            with pytest.MonkeyPatch.context() as patch:  # settings are read at the start
                for variable, value in {
                    "BOS_DATABASE_URL": company.url.get_secret_value(),
                    "BOS_DATABASE_ALLOWED_TABLES": allowed,
                    "BOS_STANDALONE_REST": "false",
                    "BOS_STORE_URL": store,
                    **asked,
                    **variables,
                }.items():
                    patch.setenv(variable, value)
                folder = tmp_path_factory.mktemp("product")
                settings = StandaloneSettings.load(data_dir=folder / "data", grace_s=0.1)
                serving = serve_all(settings, Telemetry.for_tests("standalone"))
                standalone = await stack.enter_async_context(serving)
            client = BosClient(standalone.target, api_key=standalone.api_key)
            yield Product(standalone, await stack.enter_async_context(client), store)

    return opened
