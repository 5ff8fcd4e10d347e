"""Audit trail of memory: deletions and changes by users, without content."""

import asyncio
import json
from typing import Any

import pytest
from memory_harness import ADA_KEY, PUBLIC_KEY, Caller, Starter, run_token

from bos.common.v1 import LongTermMemory
from bos.memory.v1 import (
    DeleteConversationRequest,
    DeleteLongTermMemoryRequest,
    ExtractFactsRequest,
    RecordTurnRequest,
    UpdateConversationRequest,
    UpdateLongTermMemoryRequest,
)
from bos_chassis.settings import AuthSettings
from bos_errors import BosError
from bos_memory.retention import main
from bos_memory.service import SCHEMA
from bos_postgres import connect
from bos_testkit.audit import AUDITED, audit_entries, audited, sealed_trail
from bos_testkit.scripted_model.replies import fixture

PLANTED = "planted"
RUN = "0197d1a0-0000-7000-8000-000000000001"
FACTS = fixture(
    "ada",
    [f"I am {PLANTED}"],
    schema="PersonalFacts",
    json={"found": True, "critical_facts": {"user_name": PLANTED}},
)


class Deeds:
    """Audited calls of one user and her run."""

    def __init__(self, memory: Caller) -> None:
        self.memory = memory

    async def do(self, method: str) -> None:
        if method == "ExtractFacts":
            request = ExtractFactsRequest(user_id="ada", question=f"I am {PLANTED}")
            request.ask_time.GetCurrentTime()
            await self.memory.call_as_run(method, request, token=run_token("ada", RUN))
            return
        title = f"{PLANTED} title"
        changed = LongTermMemory()
        changed.critical.user_name = PLANTED
        requests: dict[str, Any] = {
            "DeleteConversation": DeleteConversationRequest(conversation_id=PLANTED),
            "UpdateConversation": UpdateConversationRequest(conversation_id=PLANTED, title=title),
            "UpdateLongTermMemory": UpdateLongTermMemoryRequest(memory=changed),
            "DeleteLongTermMemory": DeleteLongTermMemoryRequest(),
        }
        await self.memory.call(method, requests[method])


@pytest.fixture
async def deeds(start: Starter) -> Deeds:
    auth = AuthSettings.load(
        static_key=ADA_KEY, static_key_user="ada", run_token_public_keys=PUBLIC_KEY
    )
    memory = await start(FACTS, auth=auth)
    memory.key = ADA_KEY
    turn = RecordTurnRequest(
        user_id="ada", run_id=RUN, conversation_id=PLANTED, question=f"{PLANTED}?", answer=PLANTED
    )
    turn.ask_time.GetCurrentTime()
    turn.answer_time.GetCurrentTime()
    assert (await memory.call_as_run("RecordTurn", turn, token=run_token("ada", RUN))).recorded
    return Deeds(memory)


async def standing(dsn: str) -> tuple[Any, ...]:
    async with connect(dsn, schema=SCHEMA) as session:
        row = await session.fetchrow(
            "SELECT (SELECT json_agg(c)::text FROM conversations AS c), "
            "(SELECT json_agg(m)::text FROM user_long_term_memory AS m)"
        )
    assert row is not None
    return tuple(row)


@pytest.mark.parametrize("rpc", sorted(audited("memory")))
async def test_each_audited_call_is_recorded_or_rolled_back(
    deeds: Deeds, postgres_dsn: str, rpc: str
) -> None:
    before = await standing(postgres_dsn)
    async with connect(postgres_dsn, schema=SCHEMA) as session:
        await session.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'not now'; END $$; "
            "CREATE TRIGGER refused BEFORE INSERT ON audit_pending FOR EACH ROW "
            f"WHEN (NEW.action = '{AUDITED[rpc]}') EXECUTE FUNCTION refuse()"
        )
        with pytest.raises(BosError):
            await deeds.do(rpc.rpartition("/")[2])
        assert await standing(postgres_dsn) == before
        assert await audit_entries(postgres_dsn, SCHEMA, AUDITED[rpc]) == []
        await session.execute("DROP TRIGGER refused ON audit_pending")

    await deeds.do(rpc.rpartition("/")[2])
    (entry,) = await audit_entries(postgres_dsn, SCHEMA, AUDITED[rpc])
    assert (entry["actor"], entry["actor_kind"]) == (
        ("memory", "service") if "TurnService" in rpc else ("ada", "user")
    )
    assert entry["target"]
    assert PLANTED not in json.dumps(await audit_entries(postgres_dsn, SCHEMA))
    await sealed_trail(postgres_dsn, SCHEMA)


async def test_rolled_back_change_writes_no_audit_entry(deeds: Deeds, postgres_dsn: str) -> None:
    async with connect(postgres_dsn, schema=SCHEMA) as session:
        await session.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'not now'; END $$; "
            "CREATE CONSTRAINT TRIGGER undone AFTER DELETE ON conversations "
            "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
        with pytest.raises(BosError):
            await deeds.do("DeleteConversation")
        assert await audit_entries(postgres_dsn, SCHEMA, "conversation.deleted") == []
        await session.execute("DROP TRIGGER undone ON conversations")
    await deeds.do("DeleteConversation")
    assert len(await audit_entries(postgres_dsn, SCHEMA, "conversation.deleted")) == 1


async def test_erasure_by_an_operator_is_audited(
    deeds: Deeds, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOS_MEMORY_STORE_URL", postgres_dsn)
    assert await asyncio.to_thread(main, ["erase", "--user", "ada"]) == 0
    assert await asyncio.to_thread(main, ["erase", "--user", "ada"]) == 1
    (entry,) = await audit_entries(postgres_dsn, SCHEMA, "memory.erased")
    assert (entry["actor_kind"], entry["target"]) == ("operator", "ada")
    assert entry["details"] == {"conversations": "1"}
