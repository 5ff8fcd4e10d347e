"""Bounds of what one user may have, under concurrent uploads and on a full disk."""

import asyncio
import errno
import os
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import pytest
from documents_harness import FAILED, READY, Caller, Starter, parts_of

from bos_documents.files import Spool
from bos_errors import BosError, DeadlineExceeded, ResourceExhausted, Unavailable
from bos_testkit.waiting import eventually


async def outcomes(documents: Caller, texts: list[str]) -> list[Any]:
    return await asyncio.gather(
        *(documents.upload(text, name=text[:9]) for text in texts), return_exceptions=True
    )


def reasons(found: list[Any]) -> list[str]:
    return [each.reason for each in found if isinstance(each, BosError)]


async def test_count_of_documents_holds_under_concurrent_uploads(start: Starter) -> None:
    documents = await start(max_documents_per_user=7, max_uploads_per_user=20)
    found = await outcomes(documents, [f"Text number {n}" for n in range(20)])
    assert reasons(found) == ["DOCUMENT_COUNT_LIMIT"] * 13
    listed = await documents.documents()
    assert len(listed) == 7
    await documents.delete(listed[0].document_id)
    assert not (await documents.upload("One more")).existed


async def test_bytes_of_a_user_hold_under_concurrent_uploads(start: Starter) -> None:
    documents = await start(max_bytes_per_user=5_000, max_uploads_per_user=20)
    found = await outcomes(documents, [f"{n:04} " + "x" * 995 for n in range(20)])
    assert reasons(found) == ["DOCUMENT_BYTES_LIMIT"] * 15
    assert sum(each.size_bytes for each in await documents.documents()) == 5_000


async def test_pages_of_a_user_hold_under_concurrent_reading(start: Starter) -> None:
    documents = await start(max_pages_per_user=6, workers=4)
    texts = ["\f".join(f"Page {p} of {n}" for p in range(3)) for n in range(4)]
    ids = [(await documents.upload(text)).document.document_id for text in texts]
    ended = [await documents.until_ended(each) for each in ids]
    states = [each.state for each in ended]
    assert (states.count(READY), states.count(FAILED)) == (2, 2)
    assert {each.failure.reason for each in ended if each.state == FAILED} == {
        "DOCUMENT_PAGES_LIMIT"
    }
    ready = next(each for each in ended if each.state == READY)
    failed = next(each for each in ended if each.state == FAILED)
    await documents.delete(ready.document_id)
    await documents.reindex(failed.document_id)
    assert (await documents.until_ended(failed.document_id)).state == READY


async def test_same_content_at_once_is_stored_once(start: Starter) -> None:
    documents = await start(max_uploads_per_user=20, max_documents_per_user=1)
    found = await outcomes(documents, ["The same text"] * 20)
    assert reasons(found) == []
    assert len({each.document.document_id for each in found}) == 1
    assert [each.existed for each in found].count(False) == 1
    assert len(documents.files()) == 1
    await documents.until_ended(found[0].document.document_id)
    assert await documents.texts("same") == ["The same text"]


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


class Slow:
    """An upload that begins and does not go on."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def parts(self) -> AsyncIterator[Any]:
        header, content = parts_of(b"Slowly")
        yield header
        await self.go_on.wait()
        yield content


async def test_uploads_of_one_user_at_once_are_bounded(start: Starter) -> None:
    documents = await start(max_uploads_per_user=2)
    slow = Slow()
    under_way = [asyncio.create_task(documents.upload_parts(slow.parts())) for _ in range(2)]
    await eventually(lambda: documents.metric("bos_documents_uploads_open") == 2)
    found = await outcomes(documents, ["Another"])
    assert isinstance(found[0], ResourceExhausted)
    assert found[0].reason == "UPLOAD_LIMIT"
    slow.go_on.set()
    await asyncio.gather(*under_way)
    assert not (await documents.upload("Another")).existed


async def test_upload_that_takes_too_long_is_ended(start: Starter) -> None:
    documents = await start(upload_timeout_s=0.2)
    slow = Slow()
    with pytest.raises(DeadlineExceeded):
        await documents.upload_parts(slow.parts())
    assert await documents.value("SELECT count(*) FROM documents") == 0
    slow.go_on.set()


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ((os, "fsync"), "ARTEFACTS_UNAVAILABLE"),
        ((Spool, "_unnamed"), "DOCUMENT_STORAGE_UNAVAILABLE"),
    ],
    ids=["files", "spool"],
)
async def test_full_disk_refuses_the_upload_and_leaves_nothing(
    documents: Caller, monkeypatch: pytest.MonkeyPatch, place: tuple[Any, str], reason: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(*place, full)
        with pytest.raises(Unavailable) as refused:
            await documents.upload()
    assert refused.value.reason == reason
    assert "No space" not in refused.value.message
    assert await documents.documents() == []
    assert documents.files() == []
    assert (await documents.ready()).chunk_count == 3


async def test_full_disk_while_reading_delays_and_nothing_more(
    documents: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed() -> float:
        labels = {"stage": "parse", "outcome": "failed"}
        return documents.metric("bos_documents_stages_total", **labels)

    with monkeypatch.context() as patched:
        patched.setattr(tempfile, "mkstemp", full)
        found = (await documents.upload()).document
        await eventually(lambda: failed() > 0)
    assert (await documents.until_ended(found.document_id)).state == READY
