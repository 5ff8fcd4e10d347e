"""Citation numbers of a text, whole and in pieces."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bos_composer.markers import Markers, checked

pytestmark = pytest.mark.requirement("K-10")

CASES = [
    ("a [1] b [2]", [5, 6], "a [5] b [6]", 0),
    ("swap [1][2]", [2, 1], "swap [2][1]", 0),
    ("both [1, 2]", [3, 3], "both [3]", 0),
    ("list [1; 2] and [ 1 ]", [1, 2], "list [1, 2] and [1]", 0),
    ("range [1-3], [2–3]", [1, 2, 3], "range [1, 2, 3], [2, 3]", 0),
    ("doubled [[1]]", [4], "doubled [[4]]", 0),
    ("zero [0], below [-1], far [99999999999]", [4], "zero, below, far", 3),
    ("half [1,99]", [4], "half [4]", 1),
    ("range [1-99] and [3-1]", [4, 5, 6], "range and", 2),
    ("doubled [[99]] and [[99] see]", [4], "doubled and [… see]", 2),
    ("nested [9[99]9] [[99]9] [9[99]]", [4], "nested [9…9] […9] [9…]", 3),
    ("attached[99]. In words[1][9]", [4], "attached. In words[4]", 2),
    ("over\n[1,\n99] lines", [4], "over\n[4] lines", 1),
    ("other digits [٩٩] [１]", [4], "other digits [4]", 1),
    ("`x[99]` and ``y[99] ` z`` and x[99]", [4], "`x[99]` and ``y[99] ` z`` and x", 1),
    ("no `code [99]\nat` all [99]", [4], "no `code\nat` all", 2),
    ("```py\nx[99]\n```\nafter [99]", [4], "```py\nx[99]\n```\nafter", 1),
    ("~~~\n[99]\n```\n[99]\n~~~\n[99]", [4], "~~~\n[99]\n```\n[99]\n~~~\n", 1),
    ("```x[99]``` [99]", [4], "```x[99]```", 1),
    (
        "[1](https://example.org) [9](http://e.org)",
        [4],
        "[1](https://example.org) [9](http://e.org)",
        0,
    ),
    ("[9](so it seems) [1](so it is)", [4], "(so it seems) [4](so it is)", 1),
    ("open [99 and [1", [4], "open [99 and [1", 0),
    ("[note] [a1] [1.5] []", [4], "[note] [a1] [1.5] []", 0),
    ("", [1], "", 0),
]
AS_VALUES = [
    ("a [1]", [5], "a [5]", 0),
    ("dangling [3]", [4], "dangling (3)", 0),
    ("half [1,9]", [4], "half (1,9)", 0),
    ("row[0] and f(x)[2]", [], "row[0] and f(x)[2]", 0),
]


def test_known_numbers_are_renumbered_and_unknown_ones_dropped() -> None:
    """The same for a whole text, and for its pieces of any size."""
    for text, numbers, expected, unknown in CASES:
        assert checked(text, numbers) == (expected, unknown), text
        for size in (1, 2, 3, 5):
            markers = Markers(numbers)
            pieces = [markers.add(text[at : at + size]) for at in range(0, len(text), size)]
            assert "".join(pieces) + markers.end() == expected, (size, text)
            assert markers.unknown == unknown, (size, text)


def test_unknown_numbers_stay_as_values_where_nothing_is_cited() -> None:
    for text, numbers, expected, unknown in AS_VALUES:
        assert checked(text, numbers, values=True) == (expected, unknown), text


def test_text_is_held_back_only_while_a_marker_may_begin() -> None:
    markers = Markers([1])
    assert markers.add("Five days") == "Five days"
    assert markers.add(" ") == ""
    assert markers.add("[9") == ""
    assert markers.add("9]") == ""
    assert markers.add(". Two") == ". Two"
    assert markers.add(" [1") == ""
    assert markers.add("]") == ""
    assert markers.add(" more") == " [1] more"


def test_what_is_held_back_is_bounded() -> None:
    for flood in ("[", " ", "9", "`", "[1,", "`code ", "```info ", "~"):
        markers = Markers([1])
        shown = sum(len(markers.add(flood)) for _ in range(5000))
        assert len(flood) * 5000 - shown <= 2000, flood


PARTS = st.sampled_from(
    [*"[]1290-, \n`(", "```", "~~~", "https://", "word", ". "],
)


@given(st.lists(PARTS, max_size=40), st.integers(1, 7))
def test_any_text_in_pieces_cites_nothing_unknown(parts: list[str], size: int) -> None:
    text = "".join(parts)
    whole, _ = checked(text, [1, 2])
    markers = Markers([1, 2])
    pieces = [markers.add(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join(pieces) + markers.end() == whole
    if "`" not in text and "~" not in text:
        cited = re.findall(r"\[(-?\d+)\](?!\(https://)", whole)
        assert set(cited) <= {"1", "2"}
