"""Metadata index: tokeniser, ranking, join paths, schema excerpts, cache."""

import asyncio
from typing import Any

import pytest

from bos_agentkit.ranking import Ranking, terms, words
from bos_sql.grounding.cache import MetadataIndexes
from bos_sql.grounding.catalog import Catalog, Join, Metric, read_catalog
from bos_sql.grounding.curated import parse_curated
from bos_sql.grounding.index import MetadataFilters, MetadataIndex
from bos_sql.grounding.joins import JoinGraph
from bos_sql.grounding.schema_excerpt import GroundingPack

from .wide_schema import described, wide_questions, wide_tables

pytestmark = pytest.mark.requirement("D-06", "D-07")


def shop() -> list[dict[str, Any]]:
    tables = [
        described("regions", "region_id region_name"),
        described("customers", "customer_id name region_id", region_id=("regions", "region_id")),
        described(
            "orders",
            "order_id customer_id placed_on netAmount",
            "What was bought",
            customer_id=("customers", "customer_id"),
        ),
        described("weather", "day temperature"),
    ]
    tables[0]["columns"][1]["sample_values"] = ["Bavaria", "Saxony"]
    return tables


@pytest.fixture
def index() -> MetadataIndex:
    return MetadataIndex(read_catalog("shop", shop()))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("customerName", "customer names"),
        ("HTTPStatus2", "http status2"),
        ("categories", "Category"),
        ("boxes matches", "box match"),
        ("addresses", "address"),
        ("shipped", "shipping"),
        ("Größen", "größen"),
    ],
)
def test_forms_of_a_word_have_the_same_stem(one: str, other: str) -> None:
    assert words(one) == words(other)


@pytest.mark.parametrize(
    ("one", "other"), [("status", "statue"), ("order", "border"), ("bus", "bu")]
)
def test_different_words_have_different_stems(one: str, other: str) -> None:
    assert words(one) != words(other)


def test_stop_words_are_left_out() -> None:
    assert words("Show me all of the tables, please") == ["tabl"]
    assert words("") == []


def test_a_name_is_found_where_its_words_occur_in_order() -> None:
    assert "=purchas order" in terms("late purchase orders")
    assert "=purchas order" not in terms("orders of a purchase")


def test_rare_words_and_words_in_names_weigh_more() -> None:
    rare = Ranking([[(1.0, ["sale", "pump"])], [(1.0, ["sale"])], [(1.0, ["sale"])]])
    scores = rare.scores(["sale", "pump"])
    assert scores[0] > 2 * scores[1]
    assert rare.scores(["nothing"]) == {}
    named = Ranking([[(4.0, ["order"])], [(1.0, ["order"]), (3.0, ["else"])]])
    assert named.scores(["order"])[0] > named.scores(["order"])[1]


def test_an_empty_database_has_nothing_to_find() -> None:
    empty = MetadataIndex(Catalog("shop", ()))

    assert empty.search_metadata("orders") == []
    assert empty.suggested_tables("orders", 5) == ()
    assert empty.pack((), "orders") == GroundingPack()


def test_documents_of_every_kind_are_found(index: MetadataIndex) -> None:
    hits = index.search_metadata("net amount of orders by customer", top_k=50)

    ids = [hit.doc.doc_id for hit in hits]
    assert ids[0] in {"shop.orders", "shop.orders.netAmount"}
    assert {"shop.orders.netAmount", "shop.orders(customer_id)=customers(customer_id)"} <= set(ids)
    assert {hit.doc.kind for hit in hits} == {"table", "field", "relationship"}
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert not any("weather" in each for each in ids)


def test_top_k_and_filters_narrow_the_search(index: MetadataIndex) -> None:
    only_fields = MetadataFilters(frozenset({"field"}), frozenset({"customers"}))

    assert len(index.search_metadata("customer orders region", top_k=2)) == 2
    found = index.search_metadata("customer orders region", 50, only_fields)
    assert {hit.doc.tables for hit in found} == {("customers",)}
    assert {hit.doc.kind for hit in found} == {"field"}


def test_a_table_is_found_by_the_values_in_it(index: MetadataIndex) -> None:
    assert index.ranked_tables("What about Bavaria?") == ("regions",)


def test_tables_that_join_suggested_ones_are_suggested(index: MetadataIndex) -> None:
    suggested = index.suggested_tables("orders placed per region name", 5)

    assert {"orders", "customers", "regions"} <= set(suggested)
    assert "weather" not in suggested
    assert len(index.suggested_tables("orders placed per region name", 2)) == 2


def test_a_question_without_a_word_in_common_suggests_nothing(index: MetadataIndex) -> None:
    assert index.suggested_tables("How are we doing?", 5) == ()


def test_the_schema_excerpt_holds_tables_joins_and_citations(index: MetadataIndex) -> None:
    tables = index.with_joining_tables(("orders", "regions"))

    pack = index.pack(tables, "net amount per region")

    assert tables == ("orders", "regions", "customers")
    assert pack.suggested_tables == tables
    assert pack.table_docs[0] == (
        "orders: What was bought\n"
        "  order_id text pk, customer_id text -> customers.customer_id, placed_on text,"
        " netAmount text"
    )
    assert "orders.netAmount text" in pack.field_docs
    assert "regions.region_name text (e.g. 'Bavaria', 'Saxony')" in pack.field_docs
    assert pack.relationship_docs == (
        "customers.region_id = regions.region_id",
        "orders.customer_id = customers.customer_id",
    )
    assert pack.suggested_join_paths == (
        "orders → customers → regions: orders.customer_id = customers.customer_id"
        " AND customers.region_id = regions.region_id",
    )
    cited = {each.doc_id: each.snippet for each in pack.citations}
    assert list(cited)[:3] == ["shop.orders", "shop.regions", "shop.customers"]
    assert cited["shop.orders.netAmount"] == "orders.netAmount text"
    assert all(len(snippet) <= 200 for snippet in cited.values())


def test_joins_to_tables_outside_the_excerpt_are_left_out(index: MetadataIndex) -> None:
    pack = index.pack(("orders", "weather"), "orders")

    assert pack.relationship_docs == ()
    assert pack.suggested_join_paths == ()


def test_data_of_a_trace_event_is_bounded() -> None:
    pack = GroundingPack(table_docs=tuple("x" * 1_000 for _ in range(9)))

    assert pack.traced()["table_docs"][-1] == "… and 4 more"
    assert sum(map(len, pack.traced()["table_docs"])) < 6_000


def join(table: str, other: str, note: str = "") -> Join:
    return Join(table, ("id",), other, ("id",), note)


def test_the_shortest_path_is_taken_in_either_direction() -> None:
    graph = JoinGraph([join("a", "b"), join("b", "c"), join("c", "d"), join("a", "d")])

    path = graph.path(["a"], "c", max_joins=4, preferred=["d"])

    assert path is not None
    assert path.tables == ("a", "d", "c")
    assert [each.condition for each in path.joins] == ["a.id = d.id", "c.id = d.id"]


def test_paths_end_at_their_limit_and_at_islands() -> None:
    graph = JoinGraph([join("a", "b"), join("b", "c"), join("a", "a")])

    assert graph.path(["a"], "c", max_joins=1) is None
    assert graph.path(["a"], "island", max_joins=9) is None
    assert graph.path(["unknown"], "a", max_joins=9) is None


def test_several_tables_are_joined_into_one_tree() -> None:
    graph = JoinGraph([join("a", "b"), join("b", "c"), join("b", "d")])

    paths = graph.connect(["a", "c", "d", "island"], max_joins=4)

    assert [path.tables for path in paths] == [("a", "b", "c"), ("b", "d")]


def test_of_two_joins_of_the_same_tables_the_first_is_used() -> None:
    graph = JoinGraph([join("a", "b", "curated"), Join("a", ("x",), "b", ("y",))])

    (path,) = graph.connect(["a", "b"], max_joins=1)

    assert path.joins[0].note == "curated"


def test_metrics_are_shown_with_the_tables_that_they_need() -> None:
    catalog = read_catalog("shop", shop())
    metric = Metric("turnover", "SUM(orders.netAmount)", ("orders",), "Without tax", ("revenue",))
    index = MetadataIndex(Catalog("shop", catalog.tables, catalog.joins, (metric,)))

    pack = index.pack(("orders",), "revenue")

    assert pack.metric_docs == ("turnover = SUM(orders.netAmount) (also: revenue): Without tax",)
    assert "shop.metric:turnover" in {each.doc_id for each in pack.citations}
    assert index.pack(("customers",), "revenue").metric_docs == ()
    assert index.ranked_tables("revenue") == ("orders",)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("orders.NETAMOUNT", True),
        ("region_name", True),
        ("bavaria", True),
        ("orders.profit", False),
        ("profit_usd", False),
    ],
)
def test_invented_names_are_recognised(index: MetadataIndex, name: str, known: bool) -> None:
    assert index.names(name) is known


class Loads:
    """Loads the catalogue of the shop, and counts calls."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> Catalog:
        self.count += 1
        return read_catalog("shop", shop())


async def test_an_index_is_built_once_per_schema_fingerprint() -> None:
    indexes, load = MetadataIndexes(None, ttl_s=60), Loads()

    first = await indexes.get("shop", "f1", load)

    assert await indexes.get("shop", "f1", load) is first
    assert await indexes.get("shop", "f2", load) is not first
    assert await indexes.get("other", "f1", load) is not first
    assert load.count == 3


async def test_an_expired_index_is_rebuilt() -> None:
    now, load = [0.0], Loads()
    indexes = MetadataIndexes(None, ttl_s=60, clock=lambda: now[0])

    first = await indexes.get("shop", "f1", load)
    now[0] = 60
    assert await indexes.get("shop", "f1", load) is not first
    await indexes.get("shop", "", load)
    await indexes.get("shop", "", load)
    assert load.count == 4


async def test_concurrent_steps_load_the_catalogue_once() -> None:
    indexes, load = MetadataIndexes(None, ttl_s=60), Loads()

    built = await asyncio.gather(*(indexes.get("shop", "f1", load) for _ in range(5)))

    assert load.count == 1
    assert len(set(map(id, built))) == 1


async def test_a_slow_database_does_not_delay_others() -> None:
    indexes, load = MetadataIndexes(None, ttl_s=60), Loads()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> Catalog:
        begun.set()
        await go_on.wait()
        return read_catalog("slow", shop())

    waiting = asyncio.create_task(indexes.get("slow", "f1", slow))
    await begun.wait()
    async with asyncio.timeout(60):
        await indexes.get("shop", "f1", load)
    same = asyncio.create_task(indexes.get("slow", "f1", load))
    go_on.set()

    assert await same is await waiting
    assert load.count == 1


async def test_after_a_cancelled_build_the_next_step_builds_the_index() -> None:
    indexes, load = MetadataIndexes(None, ttl_s=60), Loads()
    begun = asyncio.Event()

    async def never() -> Catalog:
        begun.set()
        return await asyncio.Future()

    first = asyncio.create_task(indexes.get("shop", "f1", never))
    await begun.wait()
    second = asyncio.create_task(indexes.get("shop", "f1", load))
    first.cancel()

    assert (await second).suggested_tables("orders", 1) == ("orders",)
    assert load.count == 1
    assert first.cancelled()


async def test_at_most_eight_indexes_are_cached() -> None:
    indexes, load = MetadataIndexes(None, ttl_s=60), Loads()

    for number in range(9):
        await indexes.get("shop", f"f{number}", load)
    await indexes.get("shop", "f8", load)
    assert load.count == 9
    await indexes.get("shop", "f0", load)
    assert load.count == 10


async def test_a_curated_file_is_part_of_every_index() -> None:
    curated = parse_curated("tables: {weather: {synonyms: [rain]}}")

    index = await MetadataIndexes(curated, ttl_s=60).get("shop", "f1", Loads())

    assert index.ranked_tables("rain") == ("weather",)


@pytest.fixture(scope="module")
def wide() -> MetadataIndex:
    return MetadataIndex(read_catalog("wide", wide_tables()))


@pytest.mark.parametrize(("question", "needed"), wide_questions().items())
def test_of_200_tables_the_required_ones_are_suggested(
    wide: MetadataIndex, question: str, needed: set[str]
) -> None:
    suggested = wide.suggested_tables(question, 6)

    assert needed <= set(suggested)
    assert len(suggested) <= 6
