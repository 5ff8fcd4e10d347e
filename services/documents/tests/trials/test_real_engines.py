"""A document from upload to deletion through real parsers, embedding model and index."""

import pytest
from documents_harness import READY
from documents_trials.service import RealDocuments
from sample_files import office

from bos.documents.v1 import ChunkKind, SearchMode
from bos_errors import NotFound

pytestmark = pytest.mark.process

PLANTED = b"zebrafish-4711"
CONTRACT = office.docx(
    office.p("Delivery", "Heading1")
    + office.p("The carrier delivers within five working days of the order. " * 30)
    + office.p("Penalties", "Heading1")
    + office.p("A late delivery costs two percent of the price, zebrafish-4711.")
    + office.tbl([["Region", "Penalty"], ["North", "2 %"], ["South", "3 %"]], header=True)
    + office.p("Notice", "Heading1")
    + office.p("Either party may end this contract with a notice of three months."),
    title="Contract with the carrier",
)


@pytest.mark.requirement("G-10")
async def test_document_lifecycle_with_real_engines(real: RealDocuments) -> None:
    found = await real.ready(CONTRACT, "contract.docx")
    assert found.page_count == 1
    assert found.chunk_count >= 4
    assert not found.HasField("failure")

    meaning = await real.search(
        "How do we terminate the agreement?", mode=SearchMode.SEARCH_MODE_DENSE
    )
    assert "notice of three months" in meaning.passages[0].chunk.text
    assert list(meaning.passages[0].chunk.section_path) == ["Notice"]
    number = await real.search("zebrafish-4711", mode=SearchMode.SEARCH_MODE_SPARSE)
    best = number.passages[0].chunk
    assert PLANTED.decode() in best.text
    assert best.document_name == "contract.docx"

    around = await real.chunk(best.chunk_id, before=1, after=1)
    assert around.chunk == best
    assert [each.ordinal for each in (*around.before, *around.after)] == [
        best.ordinal - 1,
        best.ordinal + 1,
    ]
    assert around.after[0].kind == ChunkKind.CHUNK_KIND_TABLE
    assert "North" in around.after[0].text
    assert around.after[0].parent_chunk_id == best.chunk_id

    before = {each.chunk.chunk_id for each in (await real.search("delivery")).passages}
    await real.reindex(found.document_id)
    again = await real.until_ended(found.document_id)
    assert (again.state, again.chunk_count) == (READY, found.chunk_count)
    assert {each.chunk.chunk_id for each in (await real.search("delivery")).passages} == before

    assert real.holding(CONTRACT[:200])
    await real.delete(found.document_id)
    assert await real.documents() == []
    assert await real.texts("notice") == []
    with pytest.raises(NotFound):
        await real.chunk(best.chunk_id)
    assert real.holding(CONTRACT[:200]) == []
