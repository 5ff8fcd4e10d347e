"""Watching a document: changes, bounds, clients that go, documents that go."""

import asyncio
from contextlib import AsyncExitStack, suppress

import pytest
from documents_harness import READY, Caller, Starter

from bos.documents.v1 import DocumentState, WatchDocumentRequest
from bos_errors import NotFound, ResourceExhausted
from bos_testkit.waiting import eventually

TEN = "\f".join(f"Page {number}" for number in range(10))


async def reading(documents: Caller) -> str:
    """The id of a document whose reading is held up."""
    documents.engines.parser.held = asyncio.Event()
    return str((await documents.upload(TEN)).document.document_id)


async def test_stream_shows_progress_and_ends_with_the_document(documents: Caller) -> None:
    document_id = await reading(documents)
    seen = []
    async for each in documents.watch(document_id):
        seen.append(each)
        if each.progress.pages_parsed == 1:
            documents.engines.parser.held.set()
    assert seen[-1].state == READY
    assert seen[-1].progress.pages_parsed == seen[-1].progress.pages_total == 10
    parsed = [each.progress.pages_parsed for each in seen]
    assert parsed == sorted(parsed)
    states = list(dict.fromkeys(each.state for each in seen))
    assert states == sorted(states), "it goes one way"
    assert [each.state async for each in documents.watch(document_id)] == [READY]


async def test_watch_of_a_deleted_document_ends(documents: Caller) -> None:
    document_id = await reading(documents)
    stream = documents.watch(document_id)
    await anext(stream)
    await documents.delete(document_id)
    with pytest.raises(NotFound):
        async for _ in stream:  # it may have changed before it was deleted
            pass


@pytest.mark.parametrize("bound", ["max_watches", "max_watches_per_user"])
async def test_watches_are_bounded_and_free_their_place(start: Starter, bound: str) -> None:
    documents = await start(**{bound: 1})
    document_id = await reading(documents)
    request = WatchDocumentRequest(document_id=document_id)
    call = documents.stub.WatchDocument(request, timeout=100)
    await call.read()
    with pytest.raises(ResourceExhausted) as refused:
        await anext(documents.watch(document_id))
    assert refused.value.reason == "WATCH_LIMIT"
    call.cancel()
    documents.engines.parser.held.set()
    async with asyncio.timeout(60):
        found = None
        while found is None:
            with suppress(ResourceExhausted):
                found = await documents.until_ended(document_id)
    assert found.state == READY


async def test_stream_ends_when_the_service_stops(start: Starter) -> None:
    async with AsyncExitStack() as stack:
        documents = await start(stack=stack)
        document_id = await reading(documents)
        states = []

        async def watch() -> None:
            states.extend([each.state async for each in documents.watch(document_id)])

        task = asyncio.create_task(watch())
        await eventually(lambda: 1 in documents.engines.parser.read)
    await asyncio.wait([task])
    assert DocumentState.DOCUMENT_STATE_READY not in states


async def test_change_by_another_replica_is_shown(start: Starter) -> None:
    first, second = await start(poll_s=30.0), await start(poll_s=30.0)
    for each in (first, second):
        each.engines.parser.held = asyncio.Event()
    uploaded = (await first.upload(TEN)).document
    ended = [
        asyncio.create_task(each.until_ended(uploaded.document_id)) for each in (first, second)
    ]
    await eventually(lambda: bool(first.engines.parser.read or second.engines.parser.read))
    for each in (first, second):
        each.engines.parser.held.set()
    async with asyncio.timeout(25):
        assert [found.state for found in await asyncio.gather(*ended)] == [READY, READY]
