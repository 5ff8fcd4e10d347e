"""Audit trail of documents: uploads, deletions, re-reading, without content."""

import json

import pytest
from documents_harness import ADA_KEY, FAILED, READY, Caller, Starter, ada_auth

from bos.documents.v1 import GetIngestionQueueRequest, IngestionServiceStub
from bos_documents.service import SCHEMA
from bos_errors import BosError
from bos_testkit.audit import AUDITED, audit_entries, audited, refused_entries, sealed_trail

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
