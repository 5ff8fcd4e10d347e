"""Access to memory: users reach their own data, runs that of their user; erasure of a user."""

import asyncio

import pytest
from memory_harness import ADA_KEY, AS_ADA, Caller, Starter, run_token

from bos.memory.v1 import OpenTurnRequest, RecordTurnRequest
from bos_errors import NotFound, PermissionDenied, Unauthenticated
from bos_memory.retention import main
from bos_postgres import connect, open_database
from bos_testkit.audit import audit_entries
from bos_testkit.scripted_model.replies import fixture

RUN = "0197d1a0-0000-7000-8000-000000000001"


@pytest.fixture
async def guarded(start: Starter) -> Caller:
    """Memory with authentication on; ada has the key."""
    memory = await start(model=False, auth=AS_ADA)
    memory.key = ADA_KEY
    return memory


def turn(user: str, run_id: str = RUN) -> RecordTurnRequest:
    request = RecordTurnRequest(
        user_id=user, run_id=run_id, conversation_id="talk", question="What was revenue?"
    )
    request.ask_time.GetCurrentTime()
    request.answer_time.GetCurrentTime()
    return request


async def test_run_acts_for_its_own_user_and_run_only(guarded: Caller) -> None:
    token = run_token("ada", RUN)
    assert (await guarded.call_as_run("RecordTurn", turn("ada"), token=token)).recorded
    for request in (turn("eve"), turn("ada", "another-run")):
        with pytest.raises(PermissionDenied):
            await guarded.call_as_run("RecordTurn", request, token=token)
    with pytest.raises(PermissionDenied):
        await guarded.call_as_run("OpenTurn", OpenTurnRequest(user_id="eve"), token=token)


@pytest.mark.security
async def test_step_token_of_a_run_is_refused(guarded: Caller) -> None:
    """Agents hold these tokens; with one they could read conversations or forge turns."""
    for more in ({"step": f"{RUN}/0/a"}, {"use": "step"}):
        token = run_token("ada", RUN, **more)
        with pytest.raises(Unauthenticated):
            await guarded.call_as_run("RecordTurn", turn("ada"), token=token)


async def test_id_that_cannot_be_stored_is_not_found(memory: Caller) -> None:
    with pytest.raises(NotFound):
        await memory.do("DeleteConversation", conversation_id="\0")


async def test_conversation_ids_are_scoped_to_the_user(memory: Caller) -> None:
    await memory.record("Of local")
    await memory.record("Of eve", user="eve")

    assert await memory.history() == ["Of local", "An answer."]
    assert await memory.history(user="eve") == ["Of eve", "An answer."]
    assert [each.turn_count for each in await memory.conversations()] == [1]


async def test_row_security_hides_rows_of_other_users(memory: Caller, start: Starter) -> None:
    for number in range(3):
        await memory.record(f"Question {number}", user="eve")
    tables = ("conversations", "messages", "conversation_summaries", "user_long_term_memory")
    async with open_database(start.dsn, schema="memory", role="bos_memory_reader") as readers:
        for user, sees in (("eve", True), ("ada", False), ("", False)):
            async with readers.acquire() as connection, connection.transaction():
                await connection.execute("SELECT set_config('bos.user_id', $1, true)", user)
                counts = {
                    table: await connection.fetchval(f"SELECT count(*) FROM {table}")
                    for table in tables
                }
            assert bool(counts["conversations"]) == bool(counts["messages"]) == sees


FOUND = fixture(
    "eve",
    ["I am Eve"],
    schema="PersonalFacts",
    json={"found": True, "critical_facts": {"user_name": "Eve"}},
)
_OWNED = """
SELECT table_name FROM information_schema.columns
WHERE table_schema = 'memory' AND column_name = 'user_id'
"""


async def test_erasure_deletes_the_rows_of_one_user(
    start: Starter, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = await start(FOUND)
    for user in ("eve", "ada"):
        for _ in range(3):
            await memory.record("What was revenue?", user=user)
        await memory.extract("I am Eve", user=user)
    monkeypatch.setenv("BOS_MEMORY_STORE_URL", start.dsn)

    assert await asyncio.to_thread(main, ["erase", "--user", "eve"]) == 0
    assert "1 conversation(s) of user eve with 6 message(s), and their" in capsys.readouterr().out
    async with connect(start.dsn, schema="memory") as session:
        tables = [row["table_name"] for row in await session.fetch(_OWNED)]
        assert len(tables) == 5
        for table in tables:
            users = await session.fetch(f"SELECT DISTINCT user_id FROM {table}")
            assert {row["user_id"] for row in users} <= {"ada"}
    assert len(await memory.history(user="ada")) >= 6
    assert (await memory.open("", user="ada")).long_term_memory.critical.user_name == "Eve"

    assert await asyncio.to_thread(main, ["erase", "--user", "eve"]) == 1
    assert "Nothing is stored of user eve." in capsys.readouterr().err
    (entry,) = await audit_entries(start.dsn, "memory", "memory.erased")
    assert (entry["actor_kind"], entry["target"]) == ("operator", "eve")
    assert entry["details"] == {"conversations": "1"}
