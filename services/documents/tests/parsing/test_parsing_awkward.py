"""Awkward files: each has a clear outcome, and none stops the pool."""

from collections.abc import AsyncIterator

import pytest
from sample_files.awkward import AWKWARD, Awkward

from bos_documents.parsing.blocks import BlockKind
from bos_documents.parsing.limits import ParsingLimits
from bos_documents.parsing.pool import ParserPool
from bos_documents.parsing.rejections import REASONS, DocumentRejected

pytestmark = [pytest.mark.process, pytest.mark.security]
INTERNAL = ("Traceback", "Error", "/", "WORKER", "DOCUMENT_", "None", "worker")


@pytest.fixture
async def pool() -> AsyncIterator[ParserPool]:
    # No outcome here is one of time, so a busy machine may take two minutes for any of them.
    limits = ParsingLimits(open_s=120.0, page_s=120.0, page_cpu_s=120)
    async with ParserPool(limits, spare=0) as pool:
        yield pool


async def outcome(pool: ParserPool, content: bytes, name: str) -> str:
    found = None
    texts: list[str] = []
    try:
        async with pool.open(content, name=name) as document:
            texts = [block.text async for page in document.pages() for block in page.blocks]
    except DocumentRejected as rejected:
        found = rejected
    if found is not None:
        # It is shown to users: a sentence without anything internal.
        message = found.message
        assert (message[0].isupper(), message[-1], len(message) < 300) == (True, ".", True), message
        assert not [each for each in INTERNAL if each in message], message
        # What no parser foresaw has a detail: every one of these files is foreseen.
        assert not found.detail, found.detail
        return found.reason
    return "read" if any(texts) else "blank"


@pytest.mark.parametrize("awkward", AWKWARD, ids=lambda one: one.name)
async def test_awkward_file_has_an_outcome_and_the_pool_survives(
    awkward: Awkward, pool: ParserPool
) -> None:
    found = await outcome(pool, awkward.make(), awkward.name)

    if awkward.outcome == "any":
        assert found in {"read", "blank", *REASONS}
    else:
        assert found == awkward.outcome
    assert await outcome(pool, b"honest text", "a.txt") == "read"
    assert pool.pids == []


async def test_unseen_text_is_named_in_the_notes(pool: ParserPool) -> None:
    awkward = next(one for one in AWKWARD if one.name == "unseen.pdf")
    async with pool.open(awkward.make()) as document:
        page = await document.page(1)
    assert [block.kind for block in page.blocks] == [BlockKind.PARAGRAPH]
    assert "not seen" in page.notes[0]
