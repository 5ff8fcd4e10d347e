"""Tokens of runs, documents of two users, what the database refuses, and the audit trail."""

import json

import pytest
from documents_harness import ADA_KEY, FAILED, READY, TEXT, Caller, Starter, ada_auth, run_token

from bos.documents.v1 import GetIngestionQueueRequest, IngestionServiceStub
from bos_chassis.settings import AuthSettings
from bos_documents.service import READER, SCHEMA
from bos_errors import BosError, NotFound, Unauthenticated
from bos_postgres import open_database
from bos_testkit.audit import AUDITED, audit_entries, audited, refused_entries, sealed_trail


@pytest.mark.security
async def test_tokens_for_others_and_without_a_step_open_nothing(guarded: Caller) -> None:
    """The rows of ``tests/isolation`` show who may call what."""
    run = guarded.as_run("ada")
    await run.search("x")
    for token in (
        run_token("ada", ("sql",)),
        run_token("ada", ("documents",), step=""),
    ):
        run.token = token
        with pytest.raises(Unauthenticated):
            await run.search("x")


async def test_same_content_of_two_users_is_two_documents(guarded: Caller, start: Starter) -> None:
    ada, key = guarded, "the-key-of-eve-0123"
    eve = await start(auth=AuthSettings.load(static_key=key, static_key_user="eve"))
    eve.key = key
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


async def test_reader_role_sees_own_rows_and_changes_nothing(guarded: Caller) -> None:
    await guarded.ready()
    async with open_database(guarded.dsn, schema=SCHEMA, role=READER) as readers:
        for user, sees in (("ada", True), ("eve", False), ("", False)):
            async with readers.acquire() as connection, connection.transaction():
                await connection.execute("SELECT set_config('bos.user_id', $1, true)", user)
                for table in ("documents", "chunks"):
                    count = await connection.fetchval(f"SELECT count(*) FROM {table}")
                    assert bool(count) == sees
        for statement in ("DELETE FROM documents", "UPDATE chunks SET content = ''", "TABLE jobs"):
            with pytest.raises(Exception, match="permission denied"):
                await readers.execute(statement)


async def test_id_that_cannot_be_stored_is_as_one_that_is_not_there(documents: Caller) -> None:
    for name in ("\0", "no id"):
        for call in (documents.chunk(name), documents.get(name), documents.delete(name)):
            with pytest.raises(NotFound):
                await call


PLANTED = "planted"


async def do(documents: Caller, method: str) -> str:
    found = (await documents.documents())[0]
    match method:
        case "UploadDocument":
            uploaded = await documents.upload(f"{PLANTED} other", name=f"{PLANTED} other.txt")
            return str(uploaded.document.document_id)
        case "DeleteDocument":
            await documents.delete(found.document_id)
        case "ReindexDocument":
            await documents.reindex(found.document_id)
    return found.document_id


OF_USERS = sorted(rpc for rpc in audited("documents") if "IngestionService" not in rpc)


@pytest.mark.parametrize("rpc", OF_USERS)
async def test_each_audited_call_is_recorded_or_rolled_back(guarded: Caller, rpc: str) -> None:
    await guarded.ready(f"{PLANTED} text", name=f"{PLANTED}.txt")
    before = await audit_entries(guarded.dsn, SCHEMA, AUDITED[rpc])
    async with refused_entries(guarded.dsn, SCHEMA, AUDITED[rpc]):
        with pytest.raises(BosError):
            await do(guarded, rpc.rpartition("/")[2])
        (found,) = await guarded.documents()
        assert found.state == READY
        assert len(await guarded.texts(PLANTED)) == 1
        assert await audit_entries(guarded.dsn, SCHEMA, AUDITED[rpc]) == before

    target = await do(guarded, rpc.rpartition("/")[2])
    entry = (await audit_entries(guarded.dsn, SCHEMA, AUDITED[rpc]))[-1]
    assert (entry["actor"], entry["actor_kind"], entry["target"]) == ("ada", "user", target)
    assert PLANTED not in json.dumps(await audit_entries(guarded.dsn, SCHEMA))
    await sealed_trail(guarded.dsn, SCHEMA)


async def test_same_content_again_leaves_no_second_entry(guarded: Caller) -> None:
    await guarded.upload()
    await guarded.upload()
    assert len(await audit_entries(guarded.dsn, SCHEMA, "document.uploaded")) == 1


async def test_operators_see_counts_without_content(start: Starter) -> None:
    auth = ada_auth().model_copy(update={"static_key_roles": ("user", "operator")})
    caller = await start(auth=auth)
    caller.key = ADA_KEY
    await caller.ready(f"{PLANTED} text", name=f"{PLANTED}.txt")
    broken = (await caller.upload("!encrypted", name=f"{PLANTED}.pdf")).document
    assert (await caller.until_ended(broken.document_id)).state == FAILED
    queue = await IngestionServiceStub(caller.channel).GetIngestionQueue(
        GetIngestionQueueRequest(), metadata=caller.metadata, timeout=60
    )
    assert queue.ready_documents == 1
    assert queue.stored_bytes > 0
    (failure,) = queue.failures
    assert (failure.documents, bool(failure.reason)) == (1, True)
    assert failure.HasField("last_time")
    assert PLANTED not in str(queue)
    (entry,) = await audit_entries(caller.dsn, SCHEMA, "ingestion.read")
    assert entry["actor"] == "ada"
