"""Audit trail of memory: deletions and changes by users, without content."""

import json
from typing import Any

import pytest
from memory_harness import ADA_KEY, AS_ADA, Caller, Starter, run_token

from bos.common.v1 import LongTermMemory
from bos.memory.v1 import (
    ExtractFactsRequest,
    RecordTurnRequest,
)
from bos_errors import BosError
from bos_memory.service import SCHEMA
from bos_postgres import connect
from bos_testkit.audit import AUDITED, audit_entries, audited, refused_entries, sealed_trail
from bos_testkit.scripted_model.replies import fixture

PLANTED = "planted"
RUN = "0197d1a0-0000-7000-8000-000000000001"
FACTS = fixture(
    "ada",
    [f"I am {PLANTED}"],
    schema="PersonalFacts",
    json={"found": True, "critical_facts": {"user_name": PLANTED}},
)


async def do(memory: Caller, method: str) -> None:
    """An audited call of a user, or of her run."""
    if method == "ExtractFacts":
        request = ExtractFactsRequest(user_id="ada", question=f"I am {PLANTED}")
        request.ask_time.GetCurrentTime()
        await memory.call_as_run(method, request, token=run_token("ada", RUN))
        return
    changed = LongTermMemory()
    changed.critical.user_name = PLANTED
    fields: dict[str, dict[str, Any]] = {
        "DeleteConversation": {"conversation_id": PLANTED},
        "UpdateConversation": {"conversation_id": PLANTED, "title": f"{PLANTED} title"},
        "UpdateLongTermMemory": {"memory": changed},
        "DeleteLongTermMemory": {},
    }
    await memory.do(method, **fields[method])


@pytest.fixture
async def ada(start: Starter) -> Caller:
    """Memory as a user has it who has a conversation."""
    memory = await start(FACTS, auth=AS_ADA)
    memory.key = ADA_KEY
    turn = RecordTurnRequest(
        user_id="ada", run_id=RUN, conversation_id=PLANTED, question=f"{PLANTED}?", answer=PLANTED
    )
    turn.ask_time.GetCurrentTime()
    turn.answer_time.GetCurrentTime()
    assert (await memory.call_as_run("RecordTurn", turn, token=run_token("ada", RUN))).recorded
    return memory


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
    ada: Caller, postgres_dsn: str, rpc: str
) -> None:
    before = await standing(postgres_dsn)
    async with refused_entries(postgres_dsn, SCHEMA, AUDITED[rpc]):
        with pytest.raises(BosError):
            await do(ada, rpc.rpartition("/")[2])
        assert await standing(postgres_dsn) == before
        assert await audit_entries(postgres_dsn, SCHEMA, AUDITED[rpc]) == []

    await do(ada, rpc.rpartition("/")[2])
    (entry,) = await audit_entries(postgres_dsn, SCHEMA, AUDITED[rpc])
    assert (entry["actor"], entry["actor_kind"]) == (
        ("memory", "service") if "TurnService" in rpc else ("ada", "user")
    )
    assert entry["target"]
    assert PLANTED not in json.dumps(await audit_entries(postgres_dsn, SCHEMA))
    await sealed_trail(postgres_dsn, SCHEMA)
