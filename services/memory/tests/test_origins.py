"""Where remembered facts came from, as their user sees it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from memory_harness import PUBLIC_KEY, Caller, Starter, run_token

from bos.common.v1 import LongTermMemory
from bos.memory.v1 import (
    DeleteLongTermMemoryRequest,
    ExtractFactsRequest,
    FactSource,
    UpdateLongTermMemoryRequest,
)
from bos_chassis.settings import AuthSettings
from bos_errors import PermissionDenied
from bos_memory.service import SCHEMA
from bos_postgres import connect
from bos_testkit.scripted_model.replies import fixture

QUESTION, USER = FactSource.FACT_SOURCE_QUESTION, FactSource.FACT_SOURCE_USER
UNKNOWN = FactSource.FACT_SOURCE_UNSPECIFIED
FIRST, THEN = "I am Asha, on the mill", "Now also on the kiln, and be brief"
NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)


def replied(question: str, **found: Any) -> Any:
    reply = {"found": True, **found}
    return fixture(
        question, [f"look through <untrusted> {question}"], schema="PersonalFacts", json=reply
    )


REPLIES = (
    replied(FIRST, critical_facts={"user_name": "Asha", "recent_projects": ["Mill"]}),
    replied(
        THEN,
        critical_facts={"recent_projects": ["mill", "Kiln"]},
        preferences={"detail_level": "short"},
    ),
)


async def origins(memory: Caller) -> dict[tuple[str, str], tuple[Any, str, bool]]:
    return {(f.field, f.value): (f.source, f.run_id, f.tainted) for f in await memory.facts()}


async def replace(memory: Caller, changed: LongTermMemory) -> None:
    await memory.call("UpdateLongTermMemory", UpdateLongTermMemoryRequest(memory=changed))


async def test_each_fact_names_the_run_that_it_was_found_in(start: Starter) -> None:
    memory = await start(*REPLIES)
    assert await memory.facts() == []
    await memory.extract(FIRST, run_id="run-1", asked=NOON)
    await memory.extract(THEN, run_id="run-2", asked=NOON + timedelta(hours=1), tainted=True)

    assert await origins(memory) == {
        ("user_name", "Asha"): (QUESTION, "run-1", False),
        ("recent_projects", "Mill"): (QUESTION, "run-1", False),
        ("recent_projects", "Kiln"): (QUESTION, "run-2", True),
        ("detail_level", "short"): (QUESTION, "run-2", True),
    }
    learned = {f.value: f.learn_time.ToDatetime(tzinfo=UTC) for f in await memory.facts()}
    assert (learned["Asha"], learned["Kiln"]) == (NOON, NOON + timedelta(hours=1))


async def test_correction_changes_only_the_origin_of_edited_facts(
    start: Starter,
) -> None:
    memory = await start(*REPLIES)
    await memory.extract(FIRST, run_id="run-1", asked=NOON)
    await memory.extract(THEN, run_id="run-2", asked=NOON, tainted=True)
    changed = await memory.memory()
    assert changed.tainted
    changed.critical.user_name = "Asha Rao"
    del changed.critical.recent_projects[0]

    await replace(memory, changed)
    assert await origins(memory) == {
        ("user_name", "Asha Rao"): (USER, "", False),
        ("recent_projects", "Kiln"): (QUESTION, "run-2", True),
        ("detail_level", "short"): (QUESTION, "run-2", True),
    }
    changed.tainted = False  # the user has read all of it
    await replace(memory, changed)
    assert not any(fact.tainted for fact in await memory.facts())
    assert (await origins(memory))["recent_projects", "Kiln"] == (QUESTION, "run-2", False)


async def test_forgetting_everything_leaves_no_origin(start: Starter) -> None:
    memory = await start(*REPLIES)
    await memory.extract(FIRST, run_id="run-1")
    await memory.call("DeleteLongTermMemory", DeleteLongTermMemoryRequest())
    assert await memory.facts() == []
    async with connect(start.dsn, schema=SCHEMA) as session:
        assert await session.fetchval("SELECT origins FROM user_long_term_memory") == "{}"


@pytest.mark.parametrize("tainted", [False, True])
async def test_fact_of_an_earlier_version_is_tainted_without_origin(
    start: Starter, tainted: bool
) -> None:
    memory = await start(*REPLIES)
    await memory.extract(FIRST, run_id="run-1", tainted=tainted)
    async with connect(start.dsn, schema=SCHEMA) as session:
        await session.execute("UPDATE user_long_term_memory SET origins = '{}'")
    (name, _) = await memory.facts()
    assert (name.source, name.run_id, name.tainted) == (UNKNOWN, "", tainted)
    assert not name.HasField("learn_time")


@pytest.mark.security
async def test_run_names_no_other_run_as_the_origin(start: Starter) -> None:
    memory = await start(*REPLIES, auth=AuthSettings.load(run_token_public_keys=PUBLIC_KEY))
    request = ExtractFactsRequest(user_id="ada", question=FIRST, run_id="run-of-eve")
    request.ask_time.FromDatetime(NOON)
    with pytest.raises(PermissionDenied):
        await memory.call_as_run("ExtractFacts", request, token=run_token("ada", "run-of-ada"))
    request.run_id = "run-of-ada"
    assert await memory.call_as_run("ExtractFacts", request, token=run_token("ada", "run-of-ada"))
