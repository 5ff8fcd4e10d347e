"""Jobs: attempts, back-off, quarantine, leases, deletion of what is being read, repair."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from documents_doubles import WordEmbedder, engines
from documents_harness import FAILED, READY, TEXT, Caller, Starter

from bos.documents.v1 import DocumentState
from bos_documents.context import ENTRIES
from bos_documents.index.port import IndexedChunk
from bos_documents.service import SCHEMA
from bos_documents.store.jobs import JobLost, Jobs, Stage
from bos_errors import NotFound
from bos_postgres import open_database
from bos_testkit.waiting import eventually


async def test_poison_file_is_given_up_after_its_attempts(documents: Caller) -> None:
    found = (await documents.upload("Fine\f!dies")).document
    failed = await documents.until_ended(found.document_id)
    assert failed.state == FAILED
    assert failed.failure.reason == "DOCUMENT_UNREADABLE"
    assert "3 times" in failed.failure.message
    assert failed.progress.attempts == 3
    assert documents.engines.parser.read.count(1) == 1, "read pages are not read again"
    assert documents.engines.parser.read.count(2) == 3


async def test_parser_start_failure_does_not_count_as_an_attempt(documents: Caller) -> None:
    parser = documents.engines.parser
    parser.absent = True
    found = (await documents.upload("!absent for now")).document
    await eventually(lambda: len(parser.read) > 5)
    assert (await documents.get(found.document_id)).state not in (READY, FAILED)
    parser.absent = False
    assert (await documents.until_ended(found.document_id)).state == READY
    assert (await documents.get(found.document_id)).progress.attempts == 0


@pytest.mark.parametrize("what", ["index", "embedder"])
async def test_unavailable_services_only_delay_a_document(documents: Caller, what: str) -> None:
    away = getattr(documents.engines, what)
    away.away = True
    found = (await documents.upload()).document
    await eventually(
        lambda: documents.metric("bos_documents_stages_total", stage="index", outcome="failed") > 4
    )
    shown = await documents.get(found.document_id)
    assert shown.state == DocumentState.DOCUMENT_STATE_INDEXING
    # It is due again and again; what counts is how long its owner has been waiting.
    await documents.rows("UPDATE jobs SET created_at = created_at - interval '1 hour'")
    await eventually(lambda: documents.metric("bos_documents_oldest_job_seconds") > 3000)
    away.away = False
    assert (await documents.until_ended(found.document_id)).chunk_count == 3
    await eventually(lambda: documents.metric("bos_documents_oldest_job_seconds") == 0)


@pytest.mark.parametrize(("error", "times"), [(MemoryError, 5), (ZeroDivisionError, 10_000)])
async def test_defect_of_ours_ends_the_document_and_not_the_worker(
    documents: Caller, error: type[Exception], times: int
) -> None:
    """Unlike a lack of memory, which does not count as an attempt."""
    failures = iter(range(times))

    async def before_page(number: int) -> None:
        if next(failures, None) is not None:
            raise error

    documents.engines.parser.before_page = before_page
    found = (await documents.upload()).document
    ended = await documents.until_ended(found.document_id)
    if error is MemoryError:
        assert (ended.state, ended.progress.attempts) == (READY, 0)
    else:
        assert ended.failure.reason == "DOCUMENT_UNREADABLE"


async def test_deletion_beats_the_reading_under_way(documents: Caller) -> None:
    parser = documents.engines.parser
    parser.held = asyncio.Event()
    found = (await documents.upload()).document
    await eventually(lambda: 1 in parser.read)
    await documents.delete(found.document_id)
    parser.held.set()
    assert await documents.value("SELECT count(*) FROM documents") == 0
    assert documents.files() == []
    assert documents.engines.index.points() == []
    with pytest.raises(NotFound):
        await documents.get(found.document_id)


async def test_deletion_beats_the_indexing_under_way(documents: Caller) -> None:
    embedder = documents.engines.embedder
    embedder.held = asyncio.Event()
    found = (await documents.upload()).document
    await documents.until("SELECT state FROM documents", "indexing")
    await documents.delete(found.document_id)
    embedder.held.set()
    await documents.ready("Another")
    assert {point[3] for point in documents.engines.index.points()}.isdisjoint({found.document_id})


async def test_deletion_waits_for_the_lease_of_another_replica(start: Starter) -> None:
    async with AsyncExitStack() as stack:
        used = engines(start.folder)
        used.embedder.held = asyncio.Event()  # type: ignore[attr-defined]
        first = await start(stack=stack, engines_=used, lease_s=2.0)
        found = (await first.upload()).document
        await first.until("SELECT state FROM documents", "indexing")
        second = await start(lease_s=2.0)
        await second.delete(found.document_id)
        assert await second.documents() == []
        assert await second.value("SELECT count(*) FROM chunks") == 0
        await second.until("SELECT count(*) FROM documents", 0)
        assert second.engines.index.points() == []
        assert second.files() == []


async def test_deletion_goes_on_once_the_index_is_back(documents: Caller) -> None:
    found = await documents.ready()
    documents.engines.index.away = True
    await documents.delete(found.document_id)
    assert await documents.documents() == []
    with pytest.raises(NotFound):
        await documents.delete(found.document_id)
    documents.engines.index.away = False
    await documents.until("SELECT count(*) FROM documents", 0)
    assert documents.engines.index.points() == []


async def test_index_that_lost_chunks_is_repaired_from_the_store(start: Starter) -> None:
    documents = await start(check_interval_s=0.1)
    found = await documents.ready()
    index = documents.engines.index
    await documents.until_idle()
    await index.delete_document("local", found.document_id)
    assert index.points() == []
    await eventually(lambda: len(index.points()) == 3 + ENTRIES)
    await documents.until_idle()
    assert (await documents.get(found.document_id)).state == READY
    assert len(await documents.texts("a")) == 3
    assert documents.metric("bos_documents_repairs_total", what="document") >= 1


async def test_index_that_forgets_while_it_is_filled_is_filled_again(documents: Caller) -> None:
    index, upsert, lost = documents.engines.index, documents.engines.index.upsert, []

    async def forgetful(user_id: str, model: str, chunks: Any) -> None:
        await upsert(user_id, model, chunks)
        if not lost:
            lost.append(chunks[0].chunk_id)
            await index.delete_chunks(user_id, model, lost)

    index.upsert = forgetful
    assert (await documents.ready()).chunk_count == 3
    assert len(index.points()) == 3 + ENTRIES


async def test_orphaned_vectors_are_not_shown_and_removed(documents: Caller) -> None:
    await documents.ready()
    gone = str(uuid4())
    orphans = [
        IndexedChunk(each, gone, (1.0,) + (0.0,) * 63, "penalty percent apples")
        for each in (str(uuid4()), gone)
    ]
    index = documents.engines.index
    await index.upsert("local", documents.engines.model, orphans)
    assert len(await documents.texts("penalty percent apples")) == 3
    await eventually(lambda: len(index.points()) == 3 + ENTRIES)
    assert documents.metric("bos_documents_repairs_total", what="orphans") == 2


async def test_chunks_of_a_reading_under_way_are_no_orphans(documents: Caller) -> None:
    await documents.ready("Old text of words")
    publish = asyncio.Event()
    count = documents.engines.index.count

    async def held(*given: Any) -> int:
        await publish.wait()
        return int(await count(*given))

    documents.engines.index.count = held
    new = (await documents.upload("New text of words")).document
    await eventually(lambda: len(documents.engines.index.points()) == 2 + 2 * ENTRIES)
    assert await documents.texts("words") == ["Old text of words"]
    publish.set()
    await documents.until_ended(new.document_id)
    assert len(await documents.texts("words")) == 2


async def test_other_model_reindexes_beside_the_index_that_serves(start: Starter) -> None:
    async with AsyncExitStack() as stack:
        old = await start(stack=stack)
        found = await old.ready()
        ids = {each.chunk.chunk_id for each in (await old.search("a")).passages}
    used = engines(start.folder, "words-2")
    embedder = used.embedder
    assert isinstance(embedder, WordEmbedder)
    embedder.held = asyncio.Event()
    new = await start(engines_=used)
    await new.until("SELECT count(*) FROM jobs WHERE stage = 'index'", 1)
    assert (await new.get(found.document_id)).state == READY
    assert await new.texts("penalty percent") == ["Penalty is two percent."], "by words"
    embedder.held.set()
    await new.until_idle()
    await new.until("SELECT model FROM documents", used.model)
    await eventually(lambda: {point[1] for point in new.engines.index.points()} == {used.model})
    assert {each.chunk.chunk_id for each in (await new.search("a")).passages} == ids
    assert (await new.search("penalty")).passages[0].HasField("dense_score")


@pytest.fixture
async def jobs_pool(postgres_dsn: str) -> AsyncIterator[Any]:
    async with open_database(postgres_dsn, schema=SCHEMA, max_size=20) as pool:
        yield pool


async def added(pool: Any, user: str = "ada") -> Any:
    """The id of a document that waits to be read."""
    document_id = uuid4()
    await pool.execute(
        "INSERT INTO documents (document_id, user_id, digest, size_bytes, name, state) "
        "VALUES ($1, $2, $3, 1, 'a', 'queued')",
        *(document_id, user, document_id.bytes * 2),
    )
    await pool.execute(
        "INSERT INTO jobs (document_id, user_id, generation, stage) VALUES ($1, $2, 1, 'parse')",
        *(document_id, user),
    )
    return document_id


async def test_one_of_many_replicas_gets_a_job(jobs_pool: Any) -> None:
    document_id = await added(jobs_pool)
    owners = [Jobs(jobs_pool, uuid4(), 60.0) for _ in range(20)]
    claimed = await asyncio.gather(*(each.claim() for each in owners))
    assert [job.document_id for job in claimed if job] == [document_id]


async def test_one_user_with_many_documents_holds_up_no_other(jobs_pool: Any) -> None:
    jobs = Jobs(jobs_pool, uuid4(), 60.0)
    for user in ("ada", "ada", "ada", "eve"):
        await added(jobs_pool, user)
    claimed = [await jobs.claim(), await jobs.claim()]
    assert {job.user_id for job in claimed if job} == {"ada", "eve"}


async def test_former_owner_writes_nothing_more(jobs_pool: Any) -> None:
    document_id = await added(jobs_pool)
    old, new = Jobs(jobs_pool, uuid4(), 60.0), Jobs(jobs_pool, uuid4(), 60.0)
    first = await old.claim()
    assert first is not None
    assert await new.claim() is None
    await jobs_pool.execute("UPDATE jobs SET lease_until = now() - interval '1 minute'")
    second = await new.claim()
    assert second is not None
    assert (second.fence, second.deaths) == (first.fence + 1, 1)
    with pytest.raises(JobLost):
        async with old.step(first):
            pytest.fail("the former owner was let in")
    assert await old.renew([first]) == set()
    await old.release(first, 0.0)
    async with new.step(second):
        assert await new.renew([second]) == {document_id}
    await new.release(replace(second, attempts=1), 60.0)
    assert await new.claim() is None, "not before its time"


async def test_released_job_counts_no_death(jobs_pool: Any) -> None:
    document_id = await added(jobs_pool)
    jobs = Jobs(jobs_pool, uuid4(), 60.0)
    first = await jobs.claim()
    assert first is not None
    await jobs.release(first)
    assert await jobs.claim(leaving_out=[document_id]) is None
    again = await jobs.claim()
    assert again is not None
    assert (again.deaths, again.stage) == (0, Stage.PARSE)


async def test_stopped_service_leaves_its_jobs_to_others(start: Starter) -> None:
    async with AsyncExitStack() as stack:
        used = engines(start.folder)
        used.parser.held = asyncio.Event()  # type: ignore[attr-defined]
        first = await start(stack=stack, engines_=used)
        found = (await first.upload()).document
        await first.until("SELECT count(*) FROM pages", 1)
    second = await start()
    assert (await second.until_ended(found.document_id)).state == READY
    assert second.engines.parser.read == [2], "the first page was stored"
    assert await second.value("SELECT count(*) FROM jobs WHERE deaths > 0") == 0


async def test_lost_file_is_said_and_mended_by_uploading_anew(documents: Caller) -> None:
    found = await documents.ready()
    for path in documents.files():
        path.write_bytes(b"damaged")
    await documents.rows("UPDATE documents SET serving = 0, state = 'failed'")
    await documents.reindex(found.document_id)
    failed = await documents.until_ended(found.document_id)
    assert failed.failure.reason == "DOCUMENT_FILE_LOST"
    again = await documents.upload(TEXT)
    assert again.document.document_id == found.document_id
    assert (await documents.until_ended(found.document_id)).state == READY
