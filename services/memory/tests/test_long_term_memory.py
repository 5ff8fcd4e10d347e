"""Long-term memory of a user: extraction, correction, deletion."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from memory_harness import Caller, Starter

from bos.common.v1 import CriticalFacts, LongTermMemory, UserPreferences
from bos.memory.v1 import DeleteLongTermMemoryRequest, UpdateLongTermMemoryRequest
from bos_errors import InvalidArgument
from bos_memory.facts import FoundFacts, FoundPreferences, PersonalFacts, joined
from bos_memory.origins import Asked
from bos_memory.profiles import Profiles
from bos_memory.service import READER, SCHEMA
from bos_postgres import open_database
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.requirement("L-01", "L-02", "L-03", "L-04", "L-05", "L-06", "L-07", "L-11")

VINAY = "I am Vinay working on RAG Project at Google"
FACTS = {"user_name": "Vinay", "company_name": "Google", "recent_projects": ["RAG Project"]}
CASUAL = {"tone": "casual", "detail_level": "short"}
REPLIES = (
    fixture(
        "vinay",
        [f"look through <untrusted> {VINAY}"],
        schema="PersonalFacts",
        json={"found": True, "critical_facts": FACTS},
    ),
    fixture(
        "casual",
        ["Keep answers short and casual"],
        schema="PersonalFacts",
        json={"found": True, "preferences": CASUAL},
    ),
    fixture("nothing", ["What was revenue?"], schema="PersonalFacts", json={"found": False}),
)
BOTH = LongTermMemory(
    critical=CriticalFacts(
        user_name="Vinay", company_name="Google", recent_projects=["RAG Project"]
    ),
    preferences=UserPreferences(tone="casual", detail_level="short"),
)


@pytest.mark.requirement("L-06", "L-07")
async def test_facts_of_a_question_are_available_to_the_next(start: Starter) -> None:
    memory = await start(*REPLIES)

    assert await memory.extract(VINAY)
    assert await memory.extract("Keep answers short and casual")

    assert await memory.memory() == BOTH
    assert (await memory.open("")).long_term_memory == BOTH


@pytest.mark.requirement("L-03")
async def test_extraction_call_has_the_specified_parameters(start: Starter) -> None:
    memory = await start(*REPLIES)
    await memory.extract(VINAY)

    assert memory.model is not None
    (request,) = memory.model.requests
    assert request.body["temperature"] == 0.1
    assert request.body["max_tokens"] == 512


async def test_reasoning_model_gets_extra_tokens_for_reasoning(start: Starter) -> None:
    fixtures = [fixture("nothing", [], schema="PersonalFacts", json={"found": False})]
    memory = await start(*fixtures, model_name="qwen3-8b", max_reply_tokens=600)
    await memory.extract("What was revenue?")
    assert memory.model is not None
    (request,) = memory.model.requests
    assert request.body["max_tokens"] > 2 * 600

    memory = await start(*fixtures, model_name="plain-8b", max_reply_tokens=600)
    await memory.extract("What was revenue?")
    assert memory.model is not None
    (request,) = memory.model.requests
    assert request.body["max_tokens"] == 600


async def test_extraction_costs_at_most_200_tokens(start: Starter) -> None:
    everything = {
        "found": False,
        "critical_facts": {
            "user_name": None,
            "company_name": None,
            "job_title": None,
            "recent_projects": [],
        },
        "preferences": {"tone": None, "detail_level": None, "language": None},
    }
    memory = await start(fixture("nothing", [], schema="PersonalFacts", json=everything))
    await memory.extract("Which five customers brought the most revenue last quarter?")
    model = memory.model
    assert model is not None
    assert model.calls == 1
    assert model.input_tokens + model.output_tokens <= 200
    (request,) = model.requests
    assert "### Known" not in request.prompt


async def test_tokens_of_extraction_are_counted_apart_from_runs(start: Starter) -> None:
    memory = await start(*REPLIES)
    await memory.extract(VINAY)

    assert memory.model is not None
    counted = {
        direction: memory.metric(
            "bos_model_tokens_total", agent="memory", model="scripted", direction=direction
        )
        for direction in ("input", "output")
    }
    model = memory.model
    assert counted == {"input": model.input_tokens, "output": model.output_tokens}
    assert min(counted.values()) > 0


@pytest.mark.requirement("L-04")
async def test_extraction_without_findings_changes_nothing(start: Starter) -> None:
    memory = await start(*REPLIES)
    assert not await memory.extract("What was revenue?")

    assert await memory.memory() == LongTermMemory()
    assert memory.metric("bos_memory_extractions_total", outcome="nothing") == 1


@pytest.mark.requirement("L-04")
async def test_known_facts_are_skipped(start: Starter) -> None:
    memory = await start(*REPLIES)
    assert await memory.extract(VINAY)
    assert not await memory.extract(VINAY)

    assert memory.metric("bos_memory_extractions_total", outcome="known") == 1


async def test_facts_of_two_questions_at_once_are_both_kept(start: Starter) -> None:
    memory = await start(*REPLIES)
    await asyncio.gather(memory.extract(VINAY), memory.extract("Keep answers short and casual"))

    assert await memory.memory() == BOTH


async def test_facts_can_be_corrected_by_the_user(start: Starter) -> None:
    memory = await start(*REPLIES)
    await memory.extract(VINAY)
    corrected = LongTermMemory(critical=CriticalFacts(user_name=" Vinaya\n"))
    request = UpdateLongTermMemoryRequest(memory=corrected)
    shown = (await memory.call("UpdateLongTermMemory", request)).memory

    assert shown.critical.user_name == "Vinaya"
    assert await memory.memory() == shown


async def test_deleted_facts_are_not_restored_by_an_earlier_question(start: Starter) -> None:
    memory = await start(*REPLIES)
    before = datetime.now(UTC) - timedelta(seconds=1)
    await memory.extract(VINAY)
    await memory.call("DeleteLongTermMemory", DeleteLongTermMemoryRequest())

    assert not await memory.extract(VINAY, asked=before)
    assert await memory.memory() == LongTermMemory()
    assert (await memory.open("")).long_term_memory == LongTermMemory()
    assert await memory.extract(VINAY, asked=datetime.now(UTC) + timedelta(minutes=1))


async def test_correction_during_the_model_call_wins(memory: Caller, start: Starter) -> None:
    asked = datetime.now(UTC) - timedelta(seconds=1)
    async with (
        open_database(start.dsn, schema=SCHEMA) as pool,
        open_database(start.dsn, schema=SCHEMA, role=READER) as readers,
    ):
        profiles, vinay = Profiles(pool, readers), found({"user_name": "Vinay"})
        assert await profiles.known("local", asked) == LongTermMemory()
        await memory.call("DeleteLongTermMemory", DeleteLongTermMemoryRequest())
        assert await profiles.remember("local", vinay, Asked("", asked, False)) == "outdated"

    assert await memory.memory() == LongTermMemory()


async def test_error_for_too_long_facts_names_the_fields(memory: Caller) -> None:
    long = LongTermMemory(critical=CriticalFacts(job_title="x" * 201))
    with pytest.raises(InvalidArgument) as refused:
        await memory.call("UpdateLongTermMemory", UpdateLongTermMemoryRequest(memory=long))

    assert [each.field for each in refused.value.violations] == ["memory.critical.job_title"]
    fits = LongTermMemory(critical=CriticalFacts(job_title="x" * 200))
    await memory.call("UpdateLongTermMemory", UpdateLongTermMemoryRequest(memory=fits))
    assert await memory.memory() == fits


@pytest.mark.requirement("L-11")
async def test_failed_model_call_raises_no_error(start: Starter) -> None:
    memory = await start()  # the scripted model has no reply for this

    assert not await memory.extract(VINAY)
    assert memory.metric("bos_memory_extractions_total", outcome="failed") == 1


async def test_without_a_model_nothing_is_extracted(memory: Caller) -> None:
    assert not await memory.extract(VINAY)
    assert await memory.memory() == LongTermMemory()


async def test_extractions_above_the_limit_are_skipped(start: Starter) -> None:
    memory = await start(*REPLIES, max_extractions=1)
    model = memory.model
    assert model is not None
    model.knobs.latency_s = 60.0
    first = asyncio.create_task(memory.extract(VINAY))
    await eventually(lambda: bool(model.requests))

    assert not await memory.extract("Keep answers short and casual")
    assert memory.metric("bos_memory_extractions_total", outcome="left_out") == 1
    # A cancelled call frees its place.
    first.cancel()
    model.knobs.latency_s = 0.0
    while not await memory.extract("Keep answers short and casual"):
        pass


def found(facts: dict[str, Any] | None = None, **preferences: str) -> PersonalFacts:
    return PersonalFacts(
        found=True,
        critical_facts=FoundFacts(**(facts or {})),
        preferences=FoundPreferences(**preferences),
    )


def test_new_job_replaces_the_old_one_and_projects_accumulate() -> None:
    new = joined(
        BOTH,
        found({"company_name": "Bosch", "recent_projects": ["rag project", "Bos"]}),
        tainted=False,
    )

    assert new.critical.company_name == "Bosch"
    assert new.critical.user_name == "Vinay"
    assert list(new.critical.recent_projects) == ["RAG Project", "Bos"]


def test_only_the_last_ten_projects_are_kept() -> None:
    new = joined(
        BOTH, found({"recent_projects": [f"P{number}" for number in range(10)]}), tainted=False
    )
    assert list(new.critical.recent_projects) == [f"P{number}" for number in range(10)]


def test_facts_are_short_single_lines_for_any_model_reply() -> None:
    new = joined(
        LongTermMemory(), found({"user_name": "A\n### Instructions\0" + "x" * 500}), tainted=False
    )
    assert new.critical.user_name.startswith("A ### Instructions x")
    assert len(new.critical.user_name) == 200


def test_findings_are_ignored_if_the_model_says_there_are_none() -> None:
    silent = found({"user_name": "Eve"}).model_copy(update={"found": False})
    assert joined(BOTH, silent, tainted=False) == BOTH
