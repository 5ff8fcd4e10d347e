"""kill -9 of the service at every stage: another replica goes on, without duplicates."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import grpc
import pytest
from documents_harness import READY, Caller, Starter

from bos.documents.v1 import DocumentsServiceStub
from bos_chassis.telemetry import Telemetry
from bos_documents.context import ENTRIES
from bos_errors import BosError
from bos_testkit.forked import ForkedProcess, forked_process
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.process

CHILD = Path(__file__).parents[1] / "documents_child.py"
TEXT = "\f".join(f"# Part {n}\nFirst line of {n}.\nSecond line of {n}." for n in range(1, 5))
PLACES = (
    *("before parse", "page 3", "before chunk", "before describe", "before index", "embed 4"),
    *("upsert 2", "upsert 8", "before publish", "before clean", "after clean"),
)


@asynccontextmanager
async def child(starter: Starter, place: str) -> AsyncIterator[tuple[ForkedProcess, Caller]]:
    program = (str(CHILD), starter.dsn, str(starter.folder), place)
    forking = forked_process(*program, environment=os.environ, imported=["documents_harness"])
    async with forking as process:
        address = (await process.stdout.readline()).decode().strip()
        async with grpc.aio.insecure_channel(address) as channel:
            stub, telemetry = DocumentsServiceStub(channel), Telemetry.for_tests("child")
            yield process, Caller(stub, None, telemetry, starter.dsn, starter.folder)


async def sent(dying: Caller) -> str:
    """The id of an upload whose answer may be lost with the service."""
    with suppress(BosError):
        await dying.upload(TEXT)
    return str(await dying.value("SELECT document_id FROM documents"))


async def assert_whole(documents: Caller, document_id: str) -> None:
    found = await documents.until_ended(document_id)
    assert found.state == READY, found
    await documents.until_idle()  # the document stays ready while it is read again
    assert (found.chunk_count, found.page_count) == (8, 4)
    rows = await documents.rows(
        "SELECT chunk_id FROM chunks UNION ALL SELECT document_id FROM documents ORDER BY 1"
    )
    points = documents.engines.index.points()
    assert [str(row[0]) for row in rows] == [point[2] for point in points]
    assert len(points) == 8 + ENTRIES
    texts = await documents.texts("line", limit=50)
    assert len(texts) == len(set(texts)) == 8


@pytest.mark.parametrize("place", PLACES)
async def test_document_survives_a_killed_service(start: Starter, place: str) -> None:
    async with child(start, place) as (process, dying):
        document_id = await sent(dying)
        assert await process.wait() == -9
    documents = await start(lease_s=1.0)
    if place not in ("before clean", "after clean"):
        # Nothing is half visible.
        assert await documents.texts("line") == [] or (
            len(await documents.texts("line", limit=50)) == 8
        )
    await assert_whole(documents, document_id)
    read = documents.engines.parser.read
    assert read == ([3, 4] if place == "page 3" else read)


async def test_rereading_that_is_killed_serves_the_old_chunks(start: Starter) -> None:
    async with AsyncExitStack() as stack:
        first = await start(stack=stack)
        document_id = (await first.ready(TEXT)).document_id
    async with child(start, "upsert 4") as (process, dying):
        await dying.reindex(document_id)
        assert await process.wait() == -9
    documents = await start(lease_s=1.0)
    assert len(await documents.texts("line", limit=50)) == 8
    await assert_whole(documents, document_id)


async def test_deletion_that_is_killed_is_finished_by_another(start: Starter) -> None:
    async with child(start, "before delete") as (process, dying):
        document_id = (await dying.ready(TEXT)).document_id
        with pytest.raises((BosError, grpc.aio.AioRpcError)):
            await dying.delete(document_id)
        assert await process.wait() == -9
    documents = await start(lease_s=1.0)
    assert await documents.documents() == []
    await documents.until("SELECT count(*) FROM documents", 0)
    assert documents.engines.index.points() == []
    assert documents.files() == []


async def killed_upload(start: Starter) -> None:
    """A service dies with an upload under way."""
    async with child(start, "put") as (process, dying):
        with pytest.raises((BosError, grpc.aio.AioRpcError)):
            await dying.upload(TEXT)
        assert await process.wait() == -9


async def test_upload_that_is_killed_leaves_nothing_to_see(start: Starter) -> None:
    await killed_upload(start)
    documents = await start(lease_s=1.0)
    assert await documents.documents() == []
    assert await documents.value("SELECT count(*) FROM documents") == 1
    again = await documents.upload(TEXT)
    assert again.existed  # its row was there, and is taken over
    await assert_whole(documents, again.document.document_id)


async def test_abandoned_upload_is_removed_in_time(start: Starter) -> None:
    await killed_upload(start)
    spools = list((start.folder / "spool").iterdir())
    assert len(spools) == 1
    documents = await start(lease_s=1.0)
    assert [each for each in (start.folder / "spool").iterdir() if each in spools] == []
    await documents.rows("UPDATE documents SET touched_at = now() - interval '1 hour'")
    await documents.until("SELECT state FROM documents", "deleting")
    await documents.rows("UPDATE jobs SET not_before = now()")
    await documents.until("SELECT count(*) FROM documents", 0)


async def test_document_that_kills_the_service_each_time_is_given_up(start: Starter) -> None:
    for _ in range(4):
        async with child(start, "before chunk") as (process, dying):
            document_id = await sent(dying)
            assert await process.wait() == -9
    documents = await start(lease_s=1.0)
    found = await documents.until_ended(document_id)
    assert found.failure.reason == "DOCUMENT_UNREADABLE"
    await eventually(lambda: documents.engines.index.points() == [])
    assert (await documents.ready("Another one")).state == READY
