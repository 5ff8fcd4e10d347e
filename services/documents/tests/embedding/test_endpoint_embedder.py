import math
from collections.abc import AsyncIterator

import pytest

from bos_chassis.telemetry import Telemetry
from bos_documents.embedding.endpoint import EndpointEmbedder, _batches
from bos_errors import FailedPrecondition
from bos_llm import Models
from bos_testkit.scripted_model.pytest_fixtures import (
    ScriptedModelFactory,
    model_settings,
    scripted_model,
)
from bos_testkit.scripted_model.wire import embed

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
