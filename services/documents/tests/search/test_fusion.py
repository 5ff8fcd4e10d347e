import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bos_documents.index.port import Legs, Scored
from bos_documents.search.fusion import Fused, FusionRule, Method, fuse
from bos_documents.search.identifiers import folded, holds, identifiers

RRF = FusionRule(Method.RRF, identifier_boost=0)
BLEND = FusionRule(Method.BLEND, identifier_boost=0)


def leg(**scores: float) -> tuple[Scored, ...]:
    return tuple(Scored(name, score) for name, score in scores.items())


def order(fused: list[Fused]) -> list[str]:
    return [each.chunk_id for each in fused]


@pytest.mark.requirement("G-15")
def test_rrf_adds_reciprocal_ranks() -> None:
    fused = fuse(Legs(leg(a=0.9, b=0.8), leg(b=7, c=3)), RRF)

    assert order(fused) == ["b", "a", "c"]
    best = 2 / 61
    assert [each.score for each in fused] == pytest.approx(
        [(1 / 62 + 1 / 61) / best, 1 / 61 / best, 1 / 62 / best]
    )


def dense_weight(weight: float) -> FusionRule:
    return FusionRule(Method.BLEND, dense_weight=weight, identifier_boost=0)


TEXTS = {"a": "about invoices", "b": "about payment", "c": "see inv-2024-0117, paid"}
LEGS = Legs(leg(a=0.9, b=0.8, c=0.1), leg(a=3, b=2, c=1))
CROSSED = Legs(leg(a=0.90, b=0.89, c=0.1), leg(c=3.0, b=2.9, a=0.1))
WEAK = Legs(leg(a=0.9, b=0.5), leg(b=8, a=1))
PAID = {"question": "Was inv-2024-0117 paid?", "texts": TEXTS}
TWO = {"a": "nothing", "b": "a4711", "c": "a4711 and b0815"}
ORDERS: dict[str, tuple[Legs, FusionRule, dict[str, Any], str]] = {
    "ranks alone": (CROSSED, RRF, {}, "acb"),
    "scores": (CROSSED, BLEND, {}, "bca"),
    "more weight of meaning": (Legs(leg(a=0.9), leg(b=9.0)), dense_weight(0.6), {}, "ab"),
    "more weight of words": (Legs(leg(a=0.9), leg(b=9.0)), dense_weight(0.4), {}, "ba"),
    "negative similarities": (Legs(leg(a=-0.1, b=-0.5)), FusionRule(Method.DENSE), {}, "ab"),
    "meaning alone": (Legs(leg(a=1), leg(b=1)), FusionRule(Method.DENSE), {}, "a"),
    "words alone": (Legs(leg(a=1), leg(b=1)), FusionRule(Method.SPARSE), {}, "b"),
    "words that are covered": (WEAK, BLEND, {"coverage": 0.9}, "ba"),
    "words that are hardly covered": (WEAK, BLEND, {"coverage": 0.3}, "ab"),
    "a limit": (LEGS, RRF, {"limit": 2}, "ab"),
    "no limit": (LEGS, RRF, {}, "abc"),
    "nothing found": (Legs(), RRF, PAID, ""),
    "an identifier by ranks": (LEGS, FusionRule(Method.RRF), PAID, "cab"),
    "an identifier by scores": (LEGS, FusionRule(Method.BLEND), PAID, "cab"),
    "an identifier by meaning alone": (LEGS, FusionRule(Method.DENSE), PAID, "abc"),
    "an identifier by words alone": (LEGS, FusionRule(Method.SPARSE), PAID, "abc"),
    "more identifiers": (LEGS, FusionRule(), {"question": "A4711 B0815", "texts": TWO}, "cba"),
    "no identifier": (LEGS, FusionRule(), PAID | {"question": "Was the invoice paid?"}, "abc"),
    "no boost": (LEGS, RRF, PAID, "abc"),
    "no texts": (LEGS, FusionRule(), PAID | {"texts": None}, "abc"),
    "part of an identifier": (LEGS, FusionRule(), PAID | {"question": "INV-2024-011?"}, "abc"),
}


@pytest.mark.parametrize("name", ORDERS)
def test_rule_decides_the_order(name: str) -> None:
    legs, rule, more, expected = ORDERS[name]
    fused = fuse(legs, rule, **more)
    assert "".join(order(fused)) == expected
    assert all(0 <= each.score <= 1 for each in fused)
    if expected == "cab":
        assert fused[0].matched == ("inv-2024-0117",)


def test_scale_of_a_leg_does_not_matter_to_the_blend() -> None:
    small = fuse(Legs(leg(a=0.9, b=0.5), leg(b=2, a=1)), BLEND)
    large = fuse(Legs(leg(a=0.9, b=0.5), leg(b=2000, a=1000)), BLEND)

    assert [each.score for each in small] == pytest.approx([each.score for each in large])


@pytest.mark.parametrize("rule", [RRF, BLEND])
def test_ties_are_in_the_order_of_ids(rule: FusionRule) -> None:
    legs = Legs(leg(d=0.5, b=0.5), leg(a=3, c=3))

    assert order(fuse(legs, rule)) == sorted(order(fuse(legs, rule))[:2]) + sorted(
        order(fuse(legs, rule))[2:]
    )
    shuffled = Legs(legs.dense[::-1], legs.sparse[::-1])
    assert fuse(shuffled, rule) == fuse(legs, rule)


@pytest.mark.requirement("G-15")
def test_chunk_is_there_once_with_its_better_score() -> None:
    twice = (Scored("a", 0.2), Scored("a", 0.9), Scored("b", 0.5))

    fused = fuse(Legs(dense=twice), RRF)

    assert order(fused) == ["a", "b"]
    assert fused[0].dense == 0.9


def test_scores_of_the_legs_are_shown() -> None:
    (both, only) = fuse(Legs(leg(a=0.9), leg(a=7, b=3)), RRF)

    assert (both.dense, both.sparse) == (0.9, 7)
    assert (only.dense, only.sparse) == (None, 3)


@pytest.mark.parametrize(("holders", "first"), [(5, "c19"), (6, "c00")])
def test_identifier_in_over_a_quarter_of_candidates_is_not_rare(holders: int, first: str) -> None:
    names = [f"c{number:02}" for number in range(20)]
    found = tuple(Scored(name, 1 - n / 100) for n, name in enumerate(names))
    texts = dict.fromkeys(names, "none") | dict.fromkeys(names[-holders:], "contract c-100")
    texts["c19"] = "contract c-100"
    fused = fuse(Legs(found), question="C-100", texts=texts)

    assert (fused[0].chunk_id == "c00") == (first == "c00")


@pytest.mark.parametrize(
    "text",
    [
        "INV-2024-0117",
        "4711234",
        "SLA/GOLD",
        "v2.3.1",
        "X#12",
        "4.12.3",
        "9.3",
    ],
)
def test_identifiers(text: str) -> None:
    assert identifiers(f"What about ({text}), please?") == (text.casefold(),)


@pytest.mark.parametrize(
    "text",
    ["invoice", "2024", "12", "1,000", "late-delivery", "e.g.", "A1"],
)
def test_plain_words_and_numbers_are_no_identifiers(text: str) -> None:
    assert identifiers(f"What about {text} please?") == ()


def test_identifiers_are_bounded() -> None:
    assert len(identifiers(" ".join(f"A{n:04}" for n in range(1000)))) == 16
    assert identifiers("A1" * 500) == ()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("INV-1 x", True),
        ("INV-12, INV-1", True),
        ("INV-12", False),
        ("XINV-1", False),
    ],
)
def test_identifier_is_matched_as_a_whole(text: str, found: bool) -> None:
    assert holds(folded(text), "inv-1") is found


def test_words_alone_keep_their_order_however_little_they_cover() -> None:
    fused = fuse(Legs(sparse=leg(b=8, a=1)), BLEND, coverage=0.0)

    assert order(fused) == ["b", "a"]
    assert fused[0].score > fused[1].score > 0


@pytest.mark.parametrize("numbers", [{"k": 0}, {"dense_weight": 1.1}, {"identifier_boost": -1}])
def test_numbers_out_of_range_are_refused(numbers: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="from"):
        FusionRule(**numbers)  # type: ignore[arg-type]


scored = st.lists(
    st.builds(Scored, st.sampled_from("abcdefgh"), st.floats(-1, 50, allow_nan=False)), max_size=12
)


@given(scored, scored, st.sampled_from(list(Method)), st.randoms())
def test_ranking_does_not_depend_on_the_order_of_the_legs(
    dense: list[Scored], sparse: list[Scored], method: Method, rand: random.Random
) -> None:
    rule = FusionRule(method)
    fused = fuse(Legs(tuple(dense), tuple(sparse)), rule)
    rand.shuffle(dense)
    rand.shuffle(sparse)

    assert fuse(Legs(tuple(dense), tuple(sparse)), rule) == fused
    assert len({each.chunk_id for each in fused}) == len(fused)
    assert all(0 <= each.score <= 1 + 1e-9 for each in fused)
    assert fused == sorted(fused, key=lambda each: (-each.score, each.chunk_id))
