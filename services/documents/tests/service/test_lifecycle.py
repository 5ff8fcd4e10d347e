"""A document from its upload to its deletion."""

import asyncio

import pytest
from documents_harness import FAILED, READY, TEXT, Caller, Starter, parts_of

from bos.documents.v1 import DocumentState, SearchFilter, SearchMode, UploadDocumentRequest
from bos_documents.context import ENTRIES
from bos_errors import InvalidArgument, NotFound
from bos_testkit.waiting import eventually


@pytest.mark.requirement("G-12")
async def test_document_is_read_found_cited_and_deleted(documents: Caller) -> None:
    found = await documents.ready(name="terms.txt")
    assert found.digest.startswith("sha256:")
    assert (found.page_count, found.chunk_count, found.media_type) == (2, 3, "text/plain")
    assert found.progress.pages_parsed == found.progress.pages_total == 2
    assert found.progress.chunks_indexed == found.progress.chunks_total == 3
    assert "Terms" in found.description
    # With the user, the name of the embedding model says which collection holds its vectors.
    assert await documents.rows("SELECT user_id, model, serving_chunks FROM documents") == [
        ("local", documents.engines.model, 3)
    ]

    response = await documents.search("penalty percent")
    best = response.passages[0]
    assert best.chunk.text == "Penalty is two percent."
    assert (best.chunk.first_page, list(best.chunk.section_path)) == (1, ["Terms"])
    assert best.chunk.document_name == "terms.txt"
    assert response.documents_searched == 1
    assert response.mode == SearchMode.SEARCH_MODE_BLEND
    assert response.coverage > 0

    around = await documents.chunk(best.chunk.chunk_id, before=5, after=5)
    assert around.chunk == best.chunk
    assert [each.text for each in around.before] == ["Delivery within five days."]
    assert [each.text for each in around.after] == ["Apples cost INV-7."]

    await documents.delete(found.document_id)
    assert await documents.documents() == []
    assert await documents.texts("penalty") == []
    with pytest.raises(NotFound):
        await documents.get(found.document_id)
    with pytest.raises(NotFound):
        await documents.chunk(best.chunk.chunk_id)
    for table in ("documents", "pages", "chunks", "jobs"):
        assert await documents.value(f"SELECT count(*) FROM {table}") == 0
    assert documents.engines.index.points() == []
    assert documents.files() == []
    second = await documents.upload(name="terms.txt")
    assert (second.existed, second.document.document_id == found.document_id) == (False, False)


@pytest.mark.requirement("G-09")
async def test_document_is_found_by_its_description(documents: Caller) -> None:
    apples = await documents.ready("# Apples\nPrices of apples.", name="apples.txt")
    pears = await documents.ready("# Pears\nPrices of pears.", name="pears.txt")
    found = await documents.search("What do we have about pears?", limit=1)
    assert found.documents[0].document_name == "pears.txt"
    assert found.documents[0].document_id == pears.document_id
    assert found.documents[0].description == pears.description
    assert [each.chunk.document_name for each in found.passages] == ["pears.txt"]
    assert {each.document_id for each in found.documents} <= {
        apples.document_id,
        pears.document_id,
    }

    only = SearchFilter(document_ids=[apples.document_id])
    narrowed = await documents.search("pears", filter=only)
    assert [each.document_id for each in narrowed.documents] == [apples.document_id]
    await documents.delete(pears.document_id)
    left = await documents.search("pears")
    assert [each.document_id for each in left.documents] == [apples.document_id]


async def test_entries_of_documents_take_no_place_of_passages(start: Starter) -> None:
    documents = await start(candidates=20)
    for number in range(40):
        await documents.ready(f"# Pears\nPears of farm {number}.\nPears of mill {number}.")
    found = await documents.search("pears", limit=20)
    assert len(found.passages) == 20
    # As many as were met among the candidates, which ids decide where scores are equal.
    assert 1 <= len(found.documents) <= 10


async def test_passage_is_found_by_document_name_and_heading(documents: Caller) -> None:
    await documents.ready("# Termination\nThree months.", name="agreement_Northwind.txt")
    for query, found in (("Northwind", True), ("Termination", True), ("Southwind", False)):
        texts = await documents.texts(query, mode=SearchMode.SEARCH_MODE_SPARSE)
        assert texts == ["Three months."] * found, "nothing but name and headings was added"


async def test_same_content_is_one_document_of_one_user(documents: Caller) -> None:
    first = await documents.upload(name="../../etc/one.txt")
    again = await documents.upload(name="other name.txt")
    assert (first.existed, again.existed) == (False, True)
    assert first.document.document_id == again.document.document_id
    assert again.document.name == "one.txt"
    other = await documents.upload("Something else")
    assert other.document.document_id != first.document.document_id
    assert len(await documents.documents()) == 2


async def test_what_the_owner_says_of_a_document_counts(documents: Caller) -> None:
    await documents.ready(document_type="Contract", document_date="2026-02-28")
    await documents.ready("Other text about delivery", name="b.txt")
    kinds = SearchFilter(document_types=["contract"], date_from="2026-02-01", date_to="2026-03-01")
    assert len(await documents.texts("delivery")) == 4
    assert "Other text about delivery" not in await documents.texts("delivery", filter=kinds)
    assert await documents.texts("delivery", filter=SearchFilter(date_from="2026-03-01")) == []
    prices = SearchFilter(section="prices")
    assert await documents.texts("apples", filter=prices, limit=9) == ["Apples cost INV-7."]
    with pytest.raises(InvalidArgument, match="date_from"):
        await documents.search("delivery", filter=SearchFilter(date_from="2026-02-30"))
    with pytest.raises(InvalidArgument, match="document_date"):
        await documents.upload("x", document_date="2026-02-30")


async def test_mode_and_limit_decide_what_is_searched(documents: Caller) -> None:
    await documents.ready("\n".join(f"Line {number} of words" for number in range(40)))
    for limit, count in ((0, 20), (3, 3), (100, 40)):
        assert len(await documents.texts("words", limit=limit)) == count
    for mode, dense, sparse in (
        (SearchMode.SEARCH_MODE_DENSE, True, False),
        (SearchMode.SEARCH_MODE_SPARSE, False, True),
        (SearchMode.SEARCH_MODE_BLEND, True, True),
    ):
        response = await documents.search("line words", mode=mode)
        best = response.passages[0]
        assert response.mode == mode
        assert (best.HasField("dense_score"), best.HasField("sparse_score")) == (dense, sparse)


@pytest.mark.parametrize(
    ("mode", "embedded"),
    [(SearchMode.SEARCH_MODE_BLEND, ["apples"]), (SearchMode.SEARCH_MODE_SPARSE, [])],
)
async def test_endpoint_is_not_called_for_users_without_vectors(
    documents: Caller, mode: SearchMode.ValueType, embedded: list[str]
) -> None:
    embedder = documents.engines.embedder
    embedder.in_process = False
    assert await documents.texts("apples", mode=mode) == []
    assert embedder.queries == []
    await documents.ready()
    assert await documents.texts("apples", mode=mode)
    assert embedder.queries == embedded


async def test_rejected_document_says_why_and_holds_up_no_other(documents: Caller) -> None:
    bad = (await documents.upload("!encrypted")).document
    blank = (await documents.upload(" \f ")).document
    assert (await documents.ready()).state == READY
    failed = await documents.until_ended(bad.document_id)
    assert failed.state == FAILED
    assert failed.failure.reason == "DOCUMENT_ENCRYPTED"
    assert failed.failure.message == "Remove the password."
    failed = await documents.until_ended(blank.document_id)
    assert failed.failure.reason == "DOCUMENT_WITHOUT_TEXT"
    assert list(failed.pages_without_text) == [1, 2]
    await documents.until_idle()
    assert await documents.value("SELECT count(*) FROM pages") == 0


async def test_upload_out_of_order_empty_or_too_large_is_refused(start: Starter) -> None:
    documents = await start(max_document_bytes=100_000)
    content = UploadDocumentRequest(content=b"x")
    header = next(parts_of(b""))
    for parts in ([content], [header, header], [], [header, content, header]):
        with pytest.raises(InvalidArgument, match="upload"):
            await documents.upload_parts(iter(parts))
    with pytest.raises(InvalidArgument) as empty:
        await documents.upload("")
    assert empty.value.reason == "DOCUMENT_EMPTY"
    await documents.upload(b"x" * 100_000)
    with pytest.raises(InvalidArgument) as large:
        await documents.upload(b"x" * 100_001)
    assert large.value.reason == "DOCUMENT_TOO_LARGE"
    assert len(await documents.documents()) == 1


async def test_reread_serves_old_chunks_until_the_new_are_complete(documents: Caller) -> None:
    found = await documents.ready()
    before = {each.chunk.chunk_id for each in (await documents.search("a")).passages}
    parser = documents.engines.parser
    parser.held = asyncio.Event()
    again = await documents.reindex(found.document_id)
    # A worker may have taken it before its state was read; it reads no further than to the parser.
    assert again.state in (
        DocumentState.DOCUMENT_STATE_QUEUED,
        DocumentState.DOCUMENT_STATE_PARSING,
    )
    assert again.chunk_count == 3
    await eventually(lambda: parser.read.count(1) == 2)
    assert await documents.texts("penalty percent", limit=1) == ["Penalty is two percent."]
    # Asked for once more while it is being read: nothing begins anew.
    await documents.reindex(found.document_id)
    parser.held.set()
    assert (await documents.until_ended(found.document_id)).chunk_count == 3
    after = {each.chunk.chunk_id for each in (await documents.search("a")).passages}
    assert after == before
    assert parser.read.count(1) == 2


@pytest.mark.parametrize(("stage", "begins"), [("clean", True), ("index", False)])
async def test_reread_starts_during_cleanup_but_not_during_a_read(
    documents: Caller, stage: str, begins: bool
) -> None:
    found = await documents.ready()
    await documents.until_idle()
    await documents.rows(
        "INSERT INTO jobs (document_id, user_id, generation, stage, not_before) "
        "SELECT document_id, user_id, generation, $1, now() + interval '1 hour' FROM documents",
        stage,
    )
    await documents.reindex(found.document_id)
    assert (await documents.until_ended(found.document_id)).state == READY
    assert documents.engines.parser.read.count(1) == 1 + begins


async def test_changed_chunks_replace_the_old_ones_whole(documents: Caller) -> None:
    import documents_doubles

    found = await documents.ready()

    def halves(document_id: object, pages: object) -> object:
        return documents_doubles.chunk_lines(document_id, pages[:1])  # type: ignore[index, arg-type]

    object.__setattr__(documents.engines, "chunker", halves)
    await documents.reindex(found.document_id)
    await documents.until_ended(found.document_id)
    await eventually(lambda: len(documents.engines.index.points()) == 2 + ENTRIES)
    assert sorted(await documents.texts("a")) == [
        "Delivery within five days.",
        "Penalty is two percent.",
    ]


async def test_failed_rereading_keeps_what_can_be_found_and_says_so(documents: Caller) -> None:
    found = await documents.ready("Fine text\f!absent text")

    async def refuse(number: int) -> None:
        from bos_documents.parsing.rejections import DocumentRejected

        raise DocumentRejected("DOCUMENT_DAMAGED", "It is damaged.")

    documents.engines.parser.before_page = refuse
    await documents.reindex(found.document_id)
    after = await documents.until_ended(found.document_id)
    assert after.state == READY
    assert after.notes[0] == "Reading it again failed: It is damaged."
    assert await documents.texts("fine", limit=1) == ["Fine text"]


async def test_failed_document_is_read_again_when_uploaded_anew(documents: Caller) -> None:
    documents.engines.parser.absent = True
    bad = (await documents.upload("!encrypted")).document
    await documents.until_ended(bad.document_id)
    again = await documents.upload("!encrypted")
    assert again.existed
    assert again.document.state != FAILED
    assert (await documents.until_ended(bad.document_id)).state == FAILED


async def test_text_is_the_truth(documents: Caller) -> None:
    """What cannot be stored as text is replaced, and spoils nothing."""
    found = await documents.ready(
        TEXT
        + "\nNul \x00 and \\u0000 stay \ud83d".encode("utf-8", "surrogatepass").decode(
            "utf-8", "replace"
        )
    )
    assert found.chunk_count == 4
