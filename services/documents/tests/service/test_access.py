"""Who may call what: people their own, runs searching alone, identity for accounts."""

from typing import Any

import pytest
from documents_harness import ADA_KEY, PRIVATE_KEY, PUBLIC_KEY, TEXT, Caller, Starter, ada_auth

from bos.documents.v1 import (
    DeleteDocumentRequest,
    GetChunkRequest,
    GetDocumentRequest,
    ListDocumentsRequest,
    ReindexDocumentRequest,
)
from bos_chassis.auth.callers import RunTokenSigner
from bos_chassis.settings import AuthSettings
from bos_documents.service import READER, SCHEMA
from bos_errors import NotFound, PermissionDenied, Unauthenticated
from bos_postgres import open_database


async def test_run_token_may_only_search_its_users_documents(
    guarded: Caller,
) -> None:
    found = await guarded.ready()
    run = guarded.as_run("ada")
    passages = (await run.search("penalty percent")).passages
    assert passages[0].chunk.text == "Penalty is two percent."
    assert (await run.chunk(passages[0].chunk.chunk_id)).chunk == passages[0].chunk
    by_id: dict[str, Any] = {"document_id": found.document_id}
    for method, request in (
        ("GetDocument", GetDocumentRequest(**by_id)),
        ("ListDocuments", ListDocumentsRequest()),
        ("DeleteDocument", DeleteDocumentRequest(**by_id)),
        ("ReindexDocument", ReindexDocumentRequest(**by_id)),
    ):
        with pytest.raises(PermissionDenied):
            await run.call(method, request)
    with pytest.raises(PermissionDenied):
        await run.upload()
    with pytest.raises(PermissionDenied):
        await anext(run.watch(found.document_id))


async def test_run_of_another_user_finds_nothing(guarded: Caller) -> None:
    await guarded.ready()
    passage = (await guarded.search("penalty")).passages[0]
    eve = guarded.as_run("eve")
    response = await eve.search("penalty")
    assert (len(response.passages), response.documents_searched) == (0, 0)
    assert not response.documents
    with pytest.raises(NotFound):
        await eve.chunk(passage.chunk.chunk_id)


@pytest.mark.security
@pytest.mark.parametrize("audiences", [("sql",), ("memory",)])
async def test_token_for_others_opens_nothing(guarded: Caller, audiences: tuple[str, ...]) -> None:
    with pytest.raises(Unauthenticated):
        await guarded.as_run("ada", audiences).search("x")


@pytest.mark.security
async def test_token_of_the_gateway_itself_opens_nothing(guarded: Caller) -> None:
    run = guarded.as_run("ada")
    run.token = RunTokenSigner(PRIVATE_KEY).mint("ada", "r", "", ["documents"], 60)
    with pytest.raises(Unauthenticated):
        await run.search("x")


async def test_calls_without_a_credential_are_refused(guarded: Caller) -> None:
    for key in ("", "another-key-of-no-user"):
        guarded.key = key
        with pytest.raises(Unauthenticated):
            await guarded.search("x")
        with pytest.raises(Unauthenticated):
            await guarded.upload()


@pytest.fixture
async def two(start: Starter) -> tuple[Caller, Caller]:
    """The same service as ada and as eve have it."""
    ada = await start(auth=ada_auth())
    ada.key = ADA_KEY
    eve = await start(
        auth=AuthSettings.load(
            static_key="the-key-of-eve-0123",
            static_key_user="eve",
            run_token_public_keys=PUBLIC_KEY,
        )
    )
    eve.key = "the-key-of-eve-0123"
    return ada, eve


async def test_document_of_another_is_as_one_that_is_not_there(two: tuple[Caller, Caller]) -> None:
    ada, eve = two
    found = await ada.ready()
    chunk_id = (await ada.search("penalty")).passages[0].chunk.chunk_id
    by_id: dict[str, Any] = {"document_id": found.document_id}
    messages = set()
    for given in (by_id, {"document_id": "0" * 32}, {"document_id": "no id"}):
        for method, request in (
            ("GetDocument", GetDocumentRequest(**given)),
            ("DeleteDocument", DeleteDocumentRequest(**given)),
            ("ReindexDocument", ReindexDocumentRequest(**given)),
        ):
            with pytest.raises(NotFound) as refused:
                await eve.call(method, request)
            messages.add(refused.value.message)
        with pytest.raises(NotFound):
            await anext(eve.watch(given["document_id"]))
    assert len(messages) == 1
    for given in (chunk_id, "0" * 32, "no id"):
        with pytest.raises(NotFound):
            await eve.call("GetChunk", GetChunkRequest(chunk_id=given))
    assert await eve.documents() == []
    assert await eve.texts("penalty") == []
    assert await ada.texts("penalty", limit=1) == ["Penalty is two percent."]


async def test_same_content_of_two_users_is_two_documents(two: tuple[Caller, Caller]) -> None:
    ada, eve = two
    mine, hers = await ada.ready(), await eve.upload(TEXT)
    assert not hers.existed, "it would tell that another has it"
    assert hers.document.document_id != mine.document_id
    await eve.until_ended(hers.document.document_id)
    assert len(ada.files()) == 2
    await ada.delete(mine.document_id)
    assert len(await eve.texts("penalty")) == 3
    found = await eve.search("a")
    ids = {each.chunk.chunk_id for each in found.passages}
    assert [each.document_id for each in found.documents] == [hers.document.document_id]
    assert {point[2] for point in ada.engines.index.points()} == {*ids, hers.document.document_id}


async def test_postgresql_itself_hides_the_rows_of_others(guarded: Caller) -> None:
    await guarded.ready()
    async with open_database(guarded.dsn, schema=SCHEMA, role=READER) as readers:
        for user, sees in (("ada", True), ("eve", False), ("", False)):
            async with readers.acquire() as connection, connection.transaction():
                await connection.execute("SELECT set_config('bos.user_id', $1, true)", user)
                for table in ("documents", "chunks"):
                    count = await connection.fetchval(f"SELECT count(*) FROM {table}")
                    assert bool(count) == sees


async def test_reader_can_change_nothing(guarded: Caller) -> None:
    await guarded.ready()
    async with open_database(guarded.dsn, schema=SCHEMA, role=READER) as readers:
        for statement in (
            "DELETE FROM documents",
            "UPDATE chunks SET content = ''",
            "SELECT * FROM pages",
            "SELECT * FROM jobs",
        ):
            with pytest.raises(Exception, match="permission denied"):
                await readers.execute(statement)


async def test_id_that_cannot_be_stored_is_as_one_that_is_not_there(documents: Caller) -> None:
    with pytest.raises(NotFound):
        await documents.chunk("\0")
    with pytest.raises(NotFound):
        await documents.get("\0")
