"""Each fault raises its alert: the rules that are shipped, over what a real Prometheus scraped.

Raised means that the rule holds; for how long, before it fires, is tested by promtool.
`make test-observability` installs Prometheus and runs this.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from prometheus_server import Prometheus, running_prometheus

from bos.documents.v1 import DocumentsServiceStub
from bos_chassis.metrics import disk
from bos_documents.service import serve as serve_documents
from bos_documents.settings import DocumentsSettings
from bos_errors import BosError
from bos_mcp_db.settings import DatabaseSettings
from bos_postgres import connect, create_database
from bos_testkit.certificates import Authority
from bos_testkit.postgres import PostgresServer
from bos_testkit.processes import free_port

from .faults_harness import (
    BOTH,
    LIST_TABLES,
    REPLIES,
    SEARCHED,
    Certificates,
    FaultsHarness,
    Part,
    open_faults_harness,
)
from .library import upload

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

_LOADED = 3
_DISK_BYTES = 100 * 2**30
_SLOW_S = 0.4
_PAUSE_S = 0.2


@dataclass
class DiskUsage:
    """Bytes of a disk, by the names of `shutil.disk_usage`."""

    total: int = _DISK_BYTES
    free: int = _DISK_BYTES // 2


@dataclass
class Watched:
    """Running services, and the Prometheus that reads them."""

    harness: FaultsHarness
    prometheus: Prometheus
    indexless: Part
    """A documents service whose Qdrant is not there."""
    more_url: str

    async def raised(self, alert: str, **labels: str) -> bool:
        """Whether an alert's rule holds now."""
        matching = ",".join(f'{name}="{value}"' for name, value in labels.items())
        return bool(await self.prometheus.query(f'ALERTS{{alertname="{alert}",{matching}}}'))

    async def until(self, alert: str, *, raised: bool = True, **labels: str) -> None:
        """Return once the alert's rule holds, or does no more."""
        async with asyncio.timeout(120):
            while await self.raised(alert, **labels) != raised:  # noqa: ASYNC110  Prometheus is asked
                await asyncio.sleep(_PAUSE_S)

    @asynccontextmanager
    async def asking(self, question: str) -> AsyncIterator[None]:
        """Questions are asked, one after the other, for the block, also after one was refused."""

        async def ask() -> None:
            while True:
                try:
                    await self.harness.ask(question)
                except (BosError, TimeoutError):
                    await asyncio.sleep(_PAUSE_S)

        tasks = [asyncio.create_task(ask()) for _ in range(_LOADED)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture(scope="module")
def disk_usage() -> Iterator[DiskUsage]:
    """Disk sizes as services see them: half is free, however full the real disk is."""
    usage = DiskUsage()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk.shutil, "disk_usage", lambda _: usage)
        yield usage


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def watched(
    company: DatabaseSettings,
    store_url: str,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
    disk_usage: DiskUsage,
    clean_environment: None,
) -> AsyncIterator[Watched]:
    folder = tmp_path_factory.mktemp("alerts")
    made = [
        await create_database(postgres_server.dsn(), f"alerts_{secrets.token_hex(6)}")
        for _ in range(2)
    ]
    certificates = Certificates(Authority(folder / "authority"), timedelta(days=30))
    async with open_faults_harness(
        company, store_url, made[0], folder, certificates, REPLIES
    ) as harness:
        indexless = Part("documents", _without_index(made[1], folder), certificates.issue("more"))
        ports = [*harness.metrics_ports, indexless.metrics_port]
        async with running_prometheus(folder, ports) as prometheus:
            await indexless.start()
            try:
                found = Watched(harness, prometheus, indexless, made[1])
                await prometheus.until(f'count(up{{job="bos"}} == 1) == {len(ports)}')
                async with found.asking(BOTH):
                    await prometheus.until("sum(rate(bos_runs_total[10m])) > 0")
                yield found
            finally:
                await indexless.stop()


def _without_index(dsn: str, folder: Path) -> Any:
    def serve(server: Any, telemetry: Any) -> Any:
        settings = DocumentsSettings.load(
            server=server,
            store_url=dsn,
            files_url=(folder / "more-files").as_uri(),
            spool_folder=folder / "more-spool",
            qdrant_url=f"http://127.0.0.1:{free_port()}",
            poll_s=0.5,
        )
        return serve_documents(settings, telemetry, models=None)

    return serve


async def test_nothing_is_raised_while_all_is_well(watched: Watched) -> None:
    """Comes first: what rules see of a fault stays in their windows for a while."""
    async with watched.asking(SEARCHED):
        await watched.prometheus.until("sum(rate(bos_step_duration_seconds_count[10m])) > 0")
    # What depends on the machine is left out: how fast it is, and what its kernel allows.
    raised = await watched.prometheus.query(
        'ALERTS{alertname!~"BosSandboxDown|BosRunLogSlow|BosPar.*"}'
    )
    assert [each["metric"]["alertname"] for each in raised] == []


async def test_model_that_is_limited_raises_an_alert(watched: Watched) -> None:
    assert not await watched.raised("BosModelErrors")
    watched.harness.model.knobs.fail_next(100_000, status=429, retry_after=60)
    async with watched.asking(BOTH):
        await watched.until("BosModelErrors")
    watched.harness.model.knobs.clear()


@pytest.mark.parametrize(
    ("part", "agent", "question"),
    [
        ("sql", "sql", BOTH),
        ("mcp_db", "sql", BOTH),
        ("computation", "computation", BOTH),
        ("sandbox", "computation", BOTH),
        ("rag", "rag", SEARCHED),
        ("documents", "rag", SEARCHED),
        ("planner", "", LIST_TABLES),
        ("composer", "", LIST_TABLES),
        ("memory", "", LIST_TABLES),
    ],
)
async def test_service_that_is_down_raises_an_alert_until_it_is_back(
    watched: Watched, part: str, agent: str, question: str
) -> None:
    down = watched.harness.parts[part]
    instance = f"127.0.0.1:{down.metrics_port}"
    assert not await watched.raised("BosTargetDown", instance=instance)
    await down.stop()
    async with watched.asking(question):
        await watched.until("BosTargetDown", instance=instance)
        if agent:
            await watched.until("BosStepsFail", agent=agent)
    await down.start()
    await watched.until("BosTargetDown", raised=False, instance=instance)


async def test_expired_certificate_raises_its_alert_until_replaced(watched: Watched) -> None:
    certificates, served = watched.harness.certificates, watched.harness.parts["planner"]
    async with watched.asking(LIST_TABLES):
        for expired in (False, True, False):
            certificates.issue("planner", expired=expired)
            async with asyncio.timeout(120):
                # Files are looked at with every new connection.
                while await watched.raised("BosCertificateExpires", service="planner") != expired:
                    served.link.cut()
                    await asyncio.sleep(_PAUSE_S)


async def test_qdrant_away_raises_an_alert_once_documents_waited(
    watched: Watched,
) -> None:
    assert not await watched.raised("BosDocumentsBacklog")
    credentials = watched.harness.certificates.credentials()
    async with grpc.aio.secure_channel(watched.indexless.address, credentials) as channel:
        stub = DocumentsServiceStub(channel)
        await stub.UploadDocument(upload("a.txt", b"A line about pumps."), timeout=60)
    async with connect(watched.more_url, schema="documents") as session:
        await session.execute("UPDATE jobs SET created_at = created_at - interval '1 hour'")
    await watched.until("BosDocumentsBacklog")


async def test_disk_that_is_nearly_full_raises_an_alert_until_there_is_room(
    watched: Watched, disk_usage: DiskUsage
) -> None:
    assert not await watched.raised("BosDiskFull")
    disk_usage.free = disk_usage.total // 20
    await watched.until("BosDiskFull", service="documents")
    disk_usage.free = disk_usage.total // 2
    await watched.until("BosDiskFull", raised=False)


async def test_way_to_postgresql_that_is_slow_raises_an_alert(watched: Watched) -> None:
    watched.harness.postgres.delay_s = _SLOW_S
    async with watched.asking(BOTH):
        await watched.until("BosRunLogSlow")
    watched.harness.postgres.delay_s = 0.0


async def test_postgresql_away_raises_an_alert_and_nothing_is_lost(
    watched: Watched,
) -> None:
    for alert in ("BosRunLogWritesFail", "BosNoGateway"):
        assert not await watched.raised(alert)
    # Runs that wait for the model: else all might have ended, with nothing left to be written.
    watched.harness.model.knobs.hold()
    async with watched.asking(BOTH):
        await watched.prometheus.until("sum(bos_runs_active) > 0")
        watched.harness.postgres.cut()
        watched.harness.postgres.drop()
        watched.harness.model.knobs.clear()
        await watched.until("BosRunLogWritesFail")
        await watched.until("BosNoGateway")
        watched.harness.postgres.mend()
        await watched.until("BosNoGateway", raised=False)
    async with asyncio.timeout(120):
        while await watched.harness.count("count(*) FROM runs WHERE finished_at IS NULL"):  # noqa: ASYNC110
            await asyncio.sleep(_PAUSE_S)
