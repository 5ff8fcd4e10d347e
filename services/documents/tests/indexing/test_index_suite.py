"""One suite for both adapters of the index; the server's runs on the client's local mode.

With ``BOS_TEST_QDRANT_URL`` it runs against that server too (`make trial NAME=qdrant`).
"""

import asyncio
import os
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from index_cases import DOCUMENT, MODEL, OTHER_DOCUMENT, chunk, chunk_id, direction

from bos_chassis.telemetry import Telemetry
from bos_documents.index.embedded import EmbeddedIndex
from bos_documents.index.port import ChunkIndex, IndexFilter, Legs
from bos_documents.index.server import ServerIndex, connect
from bos_errors import InvalidArgument

pytestmark = pytest.mark.filterwarnings("ignore:Payload indexes have no effect:UserWarning")
ANY = IndexFilter()


SERVER = os.environ.get("BOS_TEST_QDRANT_URL", "")
"""A real Qdrant server whose collections of documents may be deleted (`make trial NAME=qdrant`)."""
LAYOUTS = ("collection_per_user", "tenant_key")


@asynccontextmanager
async def opened(param: str, tmp_path: Path) -> AsyncIterator[ChunkIndex]:
    made: ChunkIndex
    layout, _, place = param.partition(" ")
    if layout == "embedded":
        made = EmbeddedIndex(tmp_path, Telemetry.for_tests().logger("index"))
    elif not place:
        from qdrant_client import AsyncQdrantClient  # two seconds that no other test is to spend

        made = ServerIndex(AsyncQdrantClient(":memory:"), layout=layout)
    else:
        client = connect(SERVER, None)
        for each in (await client.get_collections()).collections:
            await client.delete_collection(each.name)
        made = ServerIndex(client, layout=layout)
    yield made
    await made.close()


def adapters(*layouts: str) -> list[str]:
    return ["embedded", *layouts, *(f"{each} on a server" for each in layouts if SERVER)]


@pytest.fixture(params=adapters("tenant_key"))
async def index(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ChunkIndex]:
    """Each adapter; where users share a collection, which is the harder layout."""
    async with opened(request.param, tmp_path) as made:
        yield made


@pytest.fixture(params=adapters(*LAYOUTS))
async def layout(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ChunkIndex]:
    """Each adapter in each layout, for what separates users, models and documents."""
    async with opened(request.param, tmp_path) as made:
        yield made


async def search(
    index: ChunkIndex,
    *,
    user: str = "ann",
    degrees: float | None = None,
    text: str | None = None,
    filter: IndexFilter = ANY,
    limit: int = 10,
) -> Legs:
    dense = None if degrees is None else direction(degrees)
    return await index.search(user, MODEL, dense=dense, text=text, filter=filter, limit=limit)


def numbers(leg: Any) -> list[int]:
    return [int(each.chunk_id.replace("-", ""), 16) for each in leg]


@pytest.mark.requirement("G-14")
async def test_finds_by_embedding_and_by_words(index: ChunkIndex) -> None:
    await index.upsert("ann", MODEL, [chunk(1, "late delivery", 0), chunk(2, "price list", 90)])

    legs = await search(index, degrees=80, text="deliveries")
    assert (numbers(legs.dense), numbers(legs.sparse)) == ([2, 1], [1])
    assert legs.dense[0].score == pytest.approx(0.9848, abs=1e-3)
    assert (await search(index, degrees=0)).sparse == ()
    assert (await search(index, text="delivery")).dense == ()
    assert await search(index, text="the of and") == Legs()


async def test_rare_word_outweighs_a_common_one(index: ChunkIndex) -> None:
    common = [chunk(number, "delivery terms") for number in range(1, 6)]
    await index.upsert("ann", MODEL, [*common, chunk(9, "INV-2024-0117 terms")])

    assert numbers((await search(index, text="delivery INV-2024-0117")).sparse)[0] == 9


async def test_upsert_replaces_equal_ids(index: ChunkIndex) -> None:
    await index.upsert("ann", MODEL, [chunk(1, "old"), chunk(2, "old")])
    await index.upsert("ann", MODEL, [chunk(1, "new", 90)])

    assert await index.count("ann", MODEL) == 2
    assert numbers((await search(index, text="old")).sparse) == [2]
    assert numbers((await search(index, degrees=90)).dense) == [1, 2]


@pytest.mark.requirement("R-08", "G-08")
async def test_users_do_not_see_each_other(layout: ChunkIndex) -> None:
    await layout.upsert("ann", MODEL, [chunk(1, "shared secret")])
    await layout.upsert("bob", MODEL, [chunk(2, "shared secret", document_id=OTHER_DOCUMENT)])

    assert numbers((await search(layout, user="ann", degrees=0)).dense) == [1]
    assert numbers((await search(layout, user="bob", text="secret")).sparse) == [2]
    assert await layout.count("ann", MODEL) == 1
    await layout.delete_document("bob", DOCUMENT)
    await layout.delete_chunks("bob", MODEL, [chunk_id(1)])
    await layout.delete_user("bob")
    assert await layout.count("ann", MODEL) == 1
    assert await layout.count("bob", MODEL) == 0


async def test_words_of_other_users_do_not_change_scores(layout: ChunkIndex) -> None:
    await layout.upsert("ann", MODEL, [chunk(1, "apple"), chunk(2, "pear")])
    before = await search(layout, text="apple")
    others = [chunk(n, "apple", document_id=OTHER_DOCUMENT) for n in range(10, 40)]
    await layout.upsert("bob", MODEL, others)

    assert await search(layout, text="apple") == before


async def test_similar_user_ids_stay_apart(layout: ChunkIndex) -> None:
    for user, twin in (("a/b", "a_b"), ("../../etc", "etc"), ("Ann", "ann"), ("*", "")):
        await layout.upsert(user, MODEL, [chunk(1)])

        assert await layout.count(user, MODEL) == 1, user
        assert await layout.count(twin, MODEL) == 0, twin
        await layout.delete_user(twin)
        assert await layout.count(user, MODEL) == 1, user


async def test_models_have_indexes_of_their_own(layout: ChunkIndex) -> None:
    await layout.upsert("ann", MODEL, [chunk(1, "old")])
    await layout.upsert("ann", "other@2", [chunk(1, "new")])

    await layout.delete_model("ann", MODEL)
    assert (await layout.count("ann", MODEL), await layout.count("ann", "other@2")) == (0, 1)
    await layout.upsert("ann", MODEL, [chunk(1, "old")])
    await layout.upsert("ann", MODEL, [chunk(2, document_id=OTHER_DOCUMENT)])
    await layout.delete_document("ann", DOCUMENT)
    assert (await layout.count("ann", MODEL), await layout.count("ann", "other@2")) == (1, 0)
    assert await layout.count("ann", MODEL, DOCUMENT) == 0
    assert numbers((await search(layout, degrees=0)).dense) == [2], "of the other document"


async def test_deleting_what_is_not_there_is_no_error(index: ChunkIndex) -> None:
    for _ in range(2):
        await index.delete_document("ann", DOCUMENT)
        await index.delete_chunks("ann", MODEL, [chunk_id(1)])
        await index.delete_model("ann", MODEL)
        await index.delete_user("ann")
        assert await index.count("ann", MODEL) == 0
        assert await search(index, degrees=0, text="x") == Legs()
        await index.upsert("ann", MODEL, [])
        await index.upsert("ann", MODEL, [chunk(1)])
    assert numbers((await search(index, degrees=0)).dense) == [1]


FILTERS = (
    (ANY, [1, 2, 3]),
    (IndexFilter(document_ids=(DOCUMENT,)), [1, 3]),
    (IndexFilter(document_ids=("none",)), []),
    (IndexFilter(document_types=("Contract", "policy")), [1, 2]),
    (IndexFilter(topics=("price", "penalty")), [1]),
    (IndexFilter(date_from=20240101, date_to=20240131), [1]),
    (IndexFilter(date_to=20241231), [1, 2]),
    (IndexFilter(section="terms delivery"), [1, 2]),
    (IndexFilter(section="term"), []),
    (IndexFilter(section="delivery", document_types=("policy",)), [2]),
)
"""Filters, and the chunks that they leave of those in :func:`test_filters`."""


@pytest.mark.requirement("G-11", "G-13")
async def test_filters(index: ChunkIndex) -> None:
    contract = chunk(
        1,
        document_type="contract",
        document_date=20240115,
        topics=("late delivery", "penalty"),
        section="Terms > Delivery > Penalties",
    )
    policy = chunk(
        2,
        document_id=OTHER_DOCUMENT,
        document_type="policy",
        document_date=20240201,
        topics=("Late Delivery",),
        section="Delivery: terms",
    )
    await index.upsert("ann", MODEL, [contract, policy, chunk(3)])

    for given, found in FILTERS:
        legs = await search(index, degrees=0, text="text", filter=given)

        assert numbers(legs.dense) == found, given
        assert numbers(legs.sparse) == found, given


async def test_ties_are_in_the_order_of_ids_also_at_the_limit(index: ChunkIndex) -> None:
    chunks = [chunk(number, "same words") for number in range(200, 0, -1)]
    await index.upsert("ann", MODEL, chunks[:77])
    await index.upsert("ann", MODEL, chunks[77:])

    legs = await search(index, degrees=0, text="words", limit=5)

    assert numbers(legs.dense) == [1, 2, 3, 4, 5]
    assert numbers(legs.sparse) == [1, 2, 3, 4, 5]


async def test_embeddings_of_two_lengths_are_refused(index: ChunkIndex) -> None:
    odd = type(chunk(2))(chunk_id(2), DOCUMENT, (1.0, 0.0), "text")

    with pytest.raises(InvalidArgument, match="dimensions"):
        await index.upsert("ann", MODEL, [chunk(1), odd])
    assert await index.count("ann", MODEL) == 0


async def test_concurrent_upserts_of_users(index: ChunkIndex) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        await asyncio.gather(
            *(index.upsert(f"user{n % 5}", MODEL, [chunk(n, f"w{n}")]) for n in range(1, 41))
        )

    counts = await asyncio.gather(*(index.count(f"user{n}", MODEL) for n in range(5)))
    assert counts == [8] * 5
