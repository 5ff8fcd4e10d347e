"""Long-term memory of a user: extraction, correction, deletion."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from memory_harness import Caller, Starter

from bos.common.v1 import CriticalFacts, LongTermMemory, UserPreferences
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
async def test_facts_of_questions_at_once_are_available_to_the_next(start: Starter) -> None:
    memory = await start(*REPLIES)

    found = memory.extract(VINAY), memory.extract("Keep answers short and casual")
    assert await asyncio.gather(*found) == [True, True]
    assert await memory.memory() == BOTH
    assert (await memory.open("")).long_term_memory == BOTH


@pytest.mark.requirement("L-03", "L-04")
async def test_extraction_call_has_the_specified_parameters(start: Starter) -> None:
    memory = await start(*REPLIES)
    assert await memory.extract(VINAY)
    model = memory.model
    (request,) = model.requests
    assert (request.body["temperature"], request.body["max_tokens"]) == (0.1, 512)
    # Counted apart from runs.
    labels = {"agent": "memory", "model": "scripted"}
    counted = [
        memory.metric("bos_model_tokens_total", direction=direction, **labels)
        for direction in ("input", "output")
    ]
    assert counted == [model.input_tokens, model.output_tokens]
    assert min(counted) > 0

    assert not await memory.extract(VINAY)
    assert memory.metric("bos_memory_extractions_total", outcome="known") == 1
    before = await memory.memory()
    assert not await memory.extract("What was revenue?")
    assert await memory.memory() == before
    assert memory.metric("bos_memory_extractions_total", outcome="nothing") == 1


async def test_reasoning_model_gets_extra_tokens_for_reasoning(start: Starter) -> None:
    limits = []
    for name in ("qwen3-8b", "plain-8b"):
        memory = await start(*REPLIES, model_name=name, max_reply_tokens=600)
        await memory.extract("What was revenue?")
        limits += [request.body["max_tokens"] for request in memory.model.requests]
    assert limits[0] > 2 * 600 == 2 * limits[1]


async def test_extraction_costs_at_most_200_tokens(start: Starter) -> None:
    none = PersonalFacts(found=False, critical_facts=FoundFacts(), preferences=FoundPreferences())
    everything = none.model_dump(mode="json")
    memory = await start(fixture("nothing", [], schema="PersonalFacts", json=everything))
    await memory.extract("Which five customers brought the most revenue last quarter?")
    model = memory.model
    assert model.calls == 1
    assert model.input_tokens + model.output_tokens <= 200
    (request,) = model.requests
    assert "### Known" not in request.prompt


async def test_facts_can_be_corrected_by_the_user(start: Starter) -> None:
    memory = await start(*REPLIES)
    await memory.extract(VINAY)
    corrected = LongTermMemory(critical=CriticalFacts(user_name=" Vinaya\n"))
    shown = (await memory.do("UpdateLongTermMemory", memory=corrected)).memory

    assert shown.critical.user_name == "Vinaya"
    assert await memory.memory() == shown


async def test_deleted_facts_are_not_restored_by_an_earlier_question(start: Starter) -> None:
    memory = await start(*REPLIES)
    before = datetime.now(UTC) - timedelta(seconds=1)
    await memory.extract(VINAY)
    await memory.do("DeleteLongTermMemory")

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
        await memory.do("DeleteLongTermMemory")
        assert await profiles.remember("local", vinay, Asked("", asked, False)) == "outdated"

    assert await memory.memory() == LongTermMemory()


async def test_error_for_too_long_facts_names_the_fields(memory: Caller) -> None:
    long = LongTermMemory(critical=CriticalFacts(job_title="x" * 201))
    with pytest.raises(InvalidArgument) as refused:
        await memory.do("UpdateLongTermMemory", memory=long)

    assert [each.field for each in refused.value.violations] == ["memory.critical.job_title"]
    fits = LongTermMemory(critical=CriticalFacts(job_title="x" * 200))
    await memory.do("UpdateLongTermMemory", memory=fits)
    assert await memory.memory() == fits


@pytest.mark.requirement("L-11")
async def test_failed_model_call_raises_no_error(start: Starter) -> None:
    memory = await start()  # the scripted model has no reply for this

    assert not await memory.extract(VINAY)
    assert memory.metric("bos_memory_extractions_total", outcome="failed") == 1
    assert not await (await start(model=False)).extract(VINAY)


async def test_extractions_above_the_limit_are_skipped(start: Starter) -> None:
    memory = await start(*REPLIES, max_extractions=1)
    model = memory.model
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


def test_findings_are_joined_with_what_is_known() -> None:
    job = found({"company_name": "Bosch", "recent_projects": ["rag project", "Bos"]})
    new = joined(BOTH, job, tainted=True).critical
    assert (new.company_name, new.user_name) == ("Bosch", "Vinay")
    assert list(new.recent_projects) == ["RAG Project", "Bos"]
    projects = [f"P{number}" for number in range(10)]
    new = joined(BOTH, found({"recent_projects": projects}), tainted=False).critical
    assert list(new.recent_projects) == projects, "the last ten"

    silent = found({"user_name": "Eve"}).model_copy(update={"found": False})
    assert joined(BOTH, silent, tainted=True) == BOTH
    assert joined(BOTH, found({"user_name": "vinay"}), tainted=True) == BOTH, "known, and untainted"


def test_facts_are_short_single_lines_for_any_model_reply() -> None:
    hostile = found({"user_name": "A\n### Instructions\0" + "x" * 500})
    name = joined(LongTermMemory(), hostile, tainted=False).critical.user_name
    assert name.startswith("A ### Instructions x")
    assert len(name) == 200
