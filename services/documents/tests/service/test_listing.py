"""Documents found in the list by words and states, and a document's passages in its order."""

from typing import Any

import pytest
from documents_harness import FAILED, READY, Caller

from bos.documents.v1 import DocumentState, ListChunksRequest, ListDocumentsRequest
from bos_documents.store.names import shown_name
from bos_errors import InvalidArgument, NotFound

TEXT = "# Terms\nOne.\nTwo.\f# Prices\nThree."


async def names(documents: Caller, **more: Any) -> list[str]:
    found = (await documents.call("ListDocuments", ListDocumentsRequest(**more))).documents
    return [each.name for each in found]


async def chunks(documents: Caller, document_id: str, **more: Any) -> Any:
    return await documents.call("ListChunks", ListChunksRequest(document_id=document_id, **more))


async def test_words_find_documents_by_name_and_kind(documents: Caller) -> None:
    supply, sure = "Supply contract.txt", "100%_sure.txt"
    await documents.ready("First text.", supply, document_type="framework")
    await documents.ready("Second text.", sure)
    for query, found in (
        ("", [sure, supply]),
        ("contract SUPPLY", [supply]),
        ("supply invoice", []),
        ("framework", [supply]),
        ("0%_s", [sure]),
        ("\0", [sure, supply]),
    ):
        assert await names(documents, query=query) == found, query


async def test_query_of_nine_words_is_refused(documents: Caller) -> None:
    assert await names(documents, query="a " * 8) == []
    with pytest.raises(InvalidArgument):
        await names(documents, query="a " * 9)


async def test_states_narrow_the_list_and_its_pages(documents: Caller) -> None:
    for number in range(3):
        await documents.ready(f"Text {number}.", f"{number}.txt")
    failed = (await documents.upload("!encrypted", "locked.txt")).document
    assert (await documents.until_ended(failed.document_id)).state == FAILED

    assert await names(documents, states=[FAILED]) == ["locked.txt"]
    assert await names(documents, states=[DocumentState.DOCUMENT_STATE_PARSING]) == []
    assert len(await names(documents, states=[FAILED, READY])) == 4
    seen, token = [], ""
    while True:
        request = ListDocumentsRequest(states=[READY], page_size=2, page_token=token)
        page = await documents.call("ListDocuments", request)
        seen += [each.name for each in page.documents]
        token = page.next_page_token
        if not token:
            break
    assert seen == ["2.txt", "1.txt", "0.txt"]
    for wrong in ({"states": [DocumentState.DOCUMENT_STATE_UNSPECIFIED]}, {"page_token": "x"}):
        with pytest.raises(InvalidArgument):
            await names(documents, **wrong)


async def test_passages_are_paged_in_document_order(documents: Caller) -> None:
    found = await documents.ready(TEXT)
    first = await chunks(documents, found.document_id, page_size=2)
    rest = await chunks(documents, found.document_id, page_token=first.next_page_token)
    assert [each.text for each in (*first.chunks, *rest.chunks)] == ["One.", "Two.", "Three."]
    assert [list(each.section_path) for each in first.chunks] == [["Terms"], ["Terms"]]
    assert [(each.first_page, *each.section_path) for each in rest.chunks] == [(2, "Prices")]
    assert rest.next_page_token == ""
    with pytest.raises(InvalidArgument):
        await chunks(documents, found.document_id, page_token="made up")


async def test_failed_document_has_no_passages_and_deleted_is_404(documents: Caller) -> None:
    failed = (await documents.upload("!encrypted")).document
    await documents.until_ended(failed.document_id)
    assert list((await chunks(documents, failed.document_id)).chunks) == []
    await documents.delete(failed.document_id)
    for document_id in (failed.document_id, "no id"):
        with pytest.raises(NotFound):
            await chunks(documents, document_id)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("C:\\Users\\a\\b.pdf", "b.pdf"),
        ("a\u202efdp.exe", "a fdp.exe"),
        ("..", "document"),
        ("x\x00\n.txt", "x .txt"),
        ("n" * 400 + ".txt", "n" * 222 + "…" + "n" * 28 + ".txt"),
    ],
)
def test_name_has_no_folder_and_no_hidden_character(given: str, shown: str) -> None:
    assert shown_name(given) == shown
