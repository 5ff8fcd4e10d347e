"""Audit trail of documents: uploads, deletions, re-reading, without content."""

import json

import pytest
from documents_harness import FAILED, READY, Caller

from bos_documents.service import SCHEMA
from bos_errors import BosError
from bos_postgres import connect
from bos_testkit.audit import AUDITED, audit_entries, audited, sealed_trail

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
    async with connect(guarded.dsn, schema=SCHEMA) as session:
        await session.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'not now'; END $$; "
            "CREATE TRIGGER refused BEFORE INSERT ON audit_pending FOR EACH ROW "
            f"WHEN (NEW.action = '{AUDITED[rpc]}') EXECUTE FUNCTION refuse()"
        )
        with pytest.raises(BosError):
            await do(guarded, rpc.rpartition("/")[2])
        (found,) = await guarded.documents()
        assert found.state == READY
        assert len(await guarded.texts(PLANTED)) == 1
        assert await audit_entries(guarded.dsn, SCHEMA, AUDITED[rpc]) == before
        await session.execute("DROP TRIGGER refused ON audit_pending")

    target = await do(guarded, rpc.rpartition("/")[2])
    entry = (await audit_entries(guarded.dsn, SCHEMA, AUDITED[rpc]))[-1]
    assert (entry["actor"], entry["actor_kind"], entry["target"]) == ("ada", "user", target)
    assert PLANTED not in json.dumps(await audit_entries(guarded.dsn, SCHEMA))
    await sealed_trail(guarded.dsn, SCHEMA)


async def test_same_content_again_leaves_no_second_entry(guarded: Caller) -> None:
    await guarded.upload()
    await guarded.upload()
    assert len(await audit_entries(guarded.dsn, SCHEMA, "document.uploaded")) == 1


async def test_failure_of_a_document_is_not_audited(guarded: Caller) -> None:
    uploaded = (await guarded.upload("!encrypted")).document
    assert (await guarded.until_ended(uploaded.document_id)).state == FAILED
    actions = [each["action"] for each in await audit_entries(guarded.dsn, SCHEMA)]
    assert [each for each in actions if each.startswith("document.")] == ["document.uploaded"]
