"""Operators see how the reading of documents stands, in counts alone."""

import pytest
from documents_harness import ADA_KEY, FAILED, Caller, Starter, ada_auth

from bos.documents.v1 import (
    GetIngestionQueueRequest,
    GetIngestionQueueResponse,
    IngestionServiceStub,
)
from bos_chassis.channels import translate_rpc_errors
from bos_documents.service import SCHEMA
from bos_errors import PermissionDenied
from bos_testkit.audit import audit_entries

PLANTED = "planted"


async def queue_of(caller: Caller) -> GetIngestionQueueResponse:
    stub = IngestionServiceStub(caller.channel)
    with translate_rpc_errors():
        return await stub.GetIngestionQueue(
            GetIngestionQueueRequest(), metadata=caller.metadata, timeout=60
        )


async def test_operators_see_counts_without_content(start: Starter) -> None:
    auth = ada_auth().model_copy(update={"static_key_roles": ("user", "operator")})
    caller = await start(auth=auth)
    caller.key = ADA_KEY
    await caller.ready(f"{PLANTED} text", name=f"{PLANTED}.txt")
    broken = (await caller.upload("!encrypted", name=f"{PLANTED}.pdf")).document
    assert (await caller.until_ended(broken.document_id)).state == FAILED
    queue = await queue_of(caller)
    assert queue.ready_documents == 1
    assert queue.stored_bytes > 0
    (failure,) = queue.failures
    assert failure.documents == 1
    assert failure.reason
    assert failure.HasField("last_time")
    assert PLANTED not in str(queue)
    (entry,) = await audit_entries(caller.dsn, SCHEMA, "ingestion.read")
    assert entry["actor"] == "ada"


@pytest.mark.parametrize("who", ["a user", "a step"])
async def test_only_operators_see_the_queue(guarded: Caller, who: str) -> None:
    caller = guarded if who == "a user" else guarded.as_run("ada")
    with pytest.raises(PermissionDenied):
        await queue_of(caller)
    assert await audit_entries(guarded.dsn, SCHEMA, "ingestion.read") == []
