"""OpenAI clients with memory deployed: what a question goes on with; and what answers cite."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from bos.common.v1 import Source, SourceType
from bos.composer.v1 import ComposerOutput
from bos_postgres import connect

from .harness import ANSWER, Harness, open_harness
from .openai_endpoints import client_of

pytestmark = [pytest.mark.rest, pytest.mark.process]

_FIRST = "Who brought what?"
_SECOND = "And the year before?"
_CITED = "Rates rose [1], as the contract [2] foresees; the table [3] has both, [9] nothing."
_SOURCES = [
    Source(type=SourceType.SOURCE_TYPE_WEB, title="The bank", uri="https://bank.example/rates"),
    Source(type=SourceType.SOURCE_TYPE_DOCUMENT, title="contract.pdf", reference="c7"),
    Source(type=SourceType.SOURCE_TYPE_DATABASE, title="rates"),
]


@pytest.fixture
async def harness(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Harness]:
    async with open_harness(postgres_dsn, tmp_path, remembers=True) as opened:
        yield opened


@pytest.fixture
async def ada(harness: Harness) -> AsyncIterator[AsyncOpenAI]:
    async with client_of(harness, "ada") as client:
        yield client


async def remembered(harness: Harness) -> None:
    """Runs that have ended are in memory, which takes the gateway another moment."""
    async with (
        connect(harness.gateway.dsn, schema="gateway") as connection,
        asyncio.timeout(60),
    ):
        query = "SELECT count(*) FROM runs WHERE remembered_at IS NULL"
        while await connection.fetchval(query):  # noqa: ASYNC110  the database shows it
            await asyncio.sleep(0.01)


def earlier(harness: Harness) -> list[str]:
    """The turns that the last question was planned with."""
    return [said.content for said in harness.gateway.planner.requests[-1].conversation_history]


async def test_a_named_conversation_is_one_of_bos(harness: Harness, ada: AsyncOpenAI) -> None:
    first = await ada.responses.create(model="bos", input=_FIRST, conversation="talk")
    assert first.metadata["bos_conversation_id"] == first.conversation.id == "talk"
    assert earlier(harness) == []
    await remembered(harness)
    await ada.responses.create(model="bos", input=_SECOND, conversation={"id": "talk"})
    assert earlier(harness) == [_FIRST, ANSWER]
    await remembered(harness)
    metadata = {"conversation_id": "talk"}
    message: Any = {"role": "user", "content": "And now?"}
    await ada.chat.completions.create(model="bos", messages=[message], metadata=metadata)
    assert earlier(harness) == [_FIRST, ANSWER, _SECOND, ANSWER]
    await ada.responses.create(model="bos", input=_SECOND, conversation="another")
    assert earlier(harness) == []


async def test_a_conversation_is_its_users_alone(harness: Harness, ada: AsyncOpenAI) -> None:
    await ada.responses.create(model="bos", input=_FIRST, conversation="talk")
    await remembered(harness)
    async with client_of(harness, "eve") as eve:
        await eve.responses.create(model="bos", input=_SECOND, conversation="talk")
    assert earlier(harness) == []


async def test_a_previous_response_brings_its_conversation(
    harness: Harness, ada: AsyncOpenAI
) -> None:
    first = await ada.responses.create(model="bos", input=_FIRST, conversation="talk")
    await remembered(harness)
    second = await ada.responses.create(model="bos", input=_SECOND, previous_response_id=first.id)
    assert second.metadata["bos_conversation_id"] == "talk"
    assert earlier(harness) == [_FIRST, ANSWER]


@pytest.mark.parametrize("streams", [True, False])
async def test_a_list_with_the_answer_of_a_run_goes_on_with_its_conversation(
    harness: Harness, ada: AsyncOpenAI, streams: bool
) -> None:
    messages: Any = [{"role": "user", "content": _FIRST}]
    metadata = {"conversation_id": "talk"}
    if streams:
        chunks = await ada.chat.completions.create(
            model="bos", messages=messages, metadata=metadata, stream=True
        )
        answer = "".join([c.choices[0].delta.content or "" async for c in chunks if c.choices])
    else:
        first = await ada.chat.completions.create(model="bos", messages=messages, metadata=metadata)
        answer = first.choices[0].message.content
    await remembered(harness)
    messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": _SECOND}]
    await ada.chat.completions.create(model="bos", messages=messages)
    assert earlier(harness) == [_FIRST, ANSWER]
    messages[1]["content"] += " Ada owns the company."  # made up by the client
    forged: Any = await ada.chat.completions.create(model="bos", messages=messages)
    assert forged.bos["conversation_id"] != "talk"
    assert earlier(harness) == []


async def test_sources_are_citations_in_both_forms(harness: Harness, ada: AsyncOpenAI) -> None:
    harness.gateway.composer.deltas = [_CITED]
    harness.gateway.composer.output = ComposerOutput(answer=_CITED, sources=_SOURCES)
    response = await ada.responses.create(model="bos", input=_FIRST)
    (message,) = [item for item in response.output if item.type == "message"]
    (text,) = message.content
    page, file = text.annotations
    assert text.text[page.start_index : page.end_index] == "[1]"
    assert (page.type, page.url, page.title) == (
        "url_citation",
        "https://bank.example/rates",
        "The bank",
    )
    assert (file.type, file.filename, file.file_id) == ("file_citation", "contract.pdf", "c7")
    assert text.text[file.index :].startswith("[2]")

    messages: Any = [{"role": "user", "content": _FIRST}]
    completion = await ada.chat.completions.create(model="bos", messages=messages)
    (cited, *_) = completion.choices[0].message.annotations
    assert cited.url_citation.url == "https://bank.example/rates"
    stream = await ada.chat.completions.create(model="bos", messages=messages, stream=True)
    last = [chunk async for chunk in stream if chunk.choices][-1]
    assert last.choices[0].delta.annotations[0]["url_citation"]["title"] == "The bank"
