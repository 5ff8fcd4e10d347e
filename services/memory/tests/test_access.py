"""Access to memory: users reach their own data, runs that of their user."""

import grpc
import pytest
from memory_harness import ADA_KEY, PUBLIC_KEY, Caller, Starter, run_token
from token_issuer import Issuer, openid_issuer

from bos.memory.v1 import (
    DeleteConversationRequest,
    GetConversationRequest,
    GetLongTermMemoryRequest,
    ListMessagesRequest,
    OpenTurnRequest,
    RecordTurnRequest,
    UpdateConversationRequest,
)
from bos_chassis.settings import AuthSettings
from bos_errors import NotFound, PermissionDenied, Unauthenticated
from bos_postgres import open_database

RUN = "0197d1a0-0000-7000-8000-000000000001"


@pytest.fixture
async def guarded(start: Starter) -> Caller:
    """Memory with authentication on; ada has the key."""
    auth = AuthSettings.load(
        static_key=ADA_KEY, static_key_user="ada", run_token_public_keys=PUBLIC_KEY
    )
    memory = await start(model=False, auth=auth)
    memory.key = ADA_KEY
    return memory


def turn(user: str, run_id: str = RUN) -> RecordTurnRequest:
    request = RecordTurnRequest(
        user_id=user, run_id=run_id, conversation_id="talk", question="What was revenue?"
    )
    request.ask_time.GetCurrentTime()
    request.answer_time.GetCurrentTime()
    return request


async def test_run_reads_and_writes_data_of_its_own_user_only(guarded: Caller) -> None:
    token = run_token("ada", RUN)
    assert (await guarded.call_as_run("RecordTurn", turn("ada"), token=token)).recorded
    for request in (turn("eve"), turn("ada", "another-run")):
        with pytest.raises(PermissionDenied):
            await guarded.call_as_run("RecordTurn", request, token=token)
    with pytest.raises(PermissionDenied):
        await guarded.call_as_run("OpenTurn", OpenTurnRequest(user_id="eve"), token=token)
    with pytest.raises(Unauthenticated):
        await guarded.call_as_run("OpenTurn", OpenTurnRequest(user_id="ada"))
    elsewhere = run_token("ada", RUN, audiences=("sql",))
    with pytest.raises(Unauthenticated):
        await guarded.call_as_run("OpenTurn", OpenTurnRequest(user_id="ada"), token=elsewhere)


@pytest.mark.security
async def test_step_token_of_a_run_is_refused(guarded: Caller) -> None:
    """Agents hold these tokens; with one they could read conversations or forge turns."""
    step = run_token("ada", RUN, step=f"{RUN}/0/a")
    ahead = run_token("ada", RUN, use="step")
    for token in (step, ahead):
        for method, request in (
            ("RecordTurn", turn("ada")),
            ("OpenTurn", OpenTurnRequest(user_id="ada")),
        ):
            with pytest.raises(Unauthenticated):
                await guarded.call_as_run(method, request, token=token)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await guarded.people.GetLongTermMemory(
                GetLongTermMemoryRequest(), metadata=(("bos-run-token", token),), timeout=60
            )
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
    assert await guarded.conversations() == []


async def test_users_are_refused_by_the_turn_service(guarded: Caller) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await guarded.turns.OpenTurn(
            OpenTurnRequest(user_id="ada"),
            metadata=(("authorization", f"Bearer {ADA_KEY}"),),
            timeout=20,
        )
    assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED


async def test_memory_fetches_keys_of_an_issuer_over_http(start: Starter) -> None:
    issuer = Issuer()
    async with openid_issuer(issuer) as url:
        memory = await start(model=False, auth=AuthSettings.load(issuer=url))
        token = issuer.token(iss=url, exp=2**40)
        found = await memory.call("GetLongTermMemory", GetLongTermMemoryRequest(), key=token)
        with pytest.raises(Unauthenticated):
            await memory.call("GetLongTermMemory", GetLongTermMemoryRequest(), key="another")
    assert not found.memory.tainted


async def test_runs_are_refused_by_the_memory_service(guarded: Caller) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await guarded.people.GetLongTermMemory(
            GetLongTermMemoryRequest(),
            metadata=(("bos-run-token", run_token("ada", RUN)),),
            timeout=20,
        )
    assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED


async def test_conversation_of_another_user_is_out_of_reach(guarded: Caller) -> None:
    await guarded.call_as_run("RecordTurn", turn("eve"), token=run_token("eve", RUN))

    assert await guarded.conversations() == []
    for method, request in (
        ("GetConversation", GetConversationRequest(conversation_id="talk")),
        ("ListMessages", ListMessagesRequest(conversation_id="talk")),
        ("UpdateConversation", UpdateConversationRequest(conversation_id="talk", title="Mine")),
        ("DeleteConversation", DeleteConversationRequest(conversation_id="talk")),
        ("DeleteConversation", DeleteConversationRequest(conversation_id="\0")),
    ):
        with pytest.raises(NotFound):
            await guarded.call(method, request)
    opened = await guarded.call_as_run(
        "OpenTurn",
        OpenTurnRequest(user_id="eve", conversation_id="talk", max_messages=5),
        token=run_token("eve", RUN),
    )
    assert [each.content for each in opened.conversation_history] == ["What was revenue?"]


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
