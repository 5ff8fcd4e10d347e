"""Parser processes that cannot cut themselves off from the network: said, counted, refused."""

import os
from pathlib import Path

import pytest

from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_documents.engines import open_engines
from bos_documents.metrics import DocumentsMetrics
from bos_documents.parsing import pool as pool_module
from bos_documents.parsing.pool import ParserPool
from bos_documents.parsing.port import ParserFailed
from bos_documents.ports import Engines
from bos_documents.settings import DocumentsSettings

pytestmark = [pytest.mark.process, pytest.mark.security]

TEXT = b"The carrier delivers within five days."
REACHABLE, CUT_OFF = "False", "True"


def claiming(offline: str) -> str:
    """Starts a real parser, which claims this of the network."""
    return pool_module._BOOT.replace(
        "; from bos_documents.parsing.worker import main; main(",
        "; from bos_documents.parsing import worker; give_up = worker._give_up; "
        f"worker._give_up = lambda: (give_up(), {offline})[1]; worker.main(",
    )


@pytest.fixture(params=[REACHABLE, CUT_OFF])
def claimed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(pool_module, "_BOOT", claiming(request.param))
    return str(request.param) == CUT_OFF


async def test_pool_reports_whether_a_process_is_offline() -> None:
    known: list[bool] = []
    async with ParserPool(spare=0, started=known.append) as pool, pool.open(TEXT):
        (pid,) = pool.pids
        apart = os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
    assert known == [apart]


async def read(engines: Engines) -> None:
    async with engines.parser.open(TEXT, "a.txt") as document:
        assert document.info.page_count == 1


def settings(folder: Path, *, required: bool) -> DocumentsSettings:
    return DocumentsSettings.load(
        server=ServerSettings.load(),
        auth=AuthSettings.load(),
        store_url="postgresql://unused",
        files_url=(folder / "files").as_uri(),
        index_folder=folder / "index",
        require_offline_parsers=required,
    )


@pytest.mark.parametrize("required", [False, True])
async def test_online_parsers_are_counted_warned_of_and_refused(
    claimed: bool, required: bool, tmp_path: Path
) -> None:
    telemetry = Telemetry.for_tests("documents")
    metrics = DocumentsMetrics(telemetry.registry)
    async with open_engines(
        settings(tmp_path, required=required), telemetry, None, metrics
    ) as used:
        for _ in range(2):
            if required and not claimed:
                with pytest.raises(ParserFailed) as failed:
                    await read(used)
                # The document is not to blame, and so is not given up.
                assert not failed.value.by_document
                assert str(failed.value) == "WORKER_NOT_ISOLATED"
            else:
                await read(used)

    warned = [each for each in telemetry.logs if each["event"] == "parsers can reach the network"]
    if claimed:
        assert warned == []
    else:
        (warning,) = warned
        assert warning["log_level"] == "warning"
        assert warning["documents_wait"] == required

    def started(network: str) -> float:
        name = "bos_documents_parsers_total"
        return telemetry.registry.get_sample_value(name, {"network": network}) or 0

    assert (started("cut_off") >= 2) == claimed
    assert (started("reachable") >= 2) == (not claimed)
