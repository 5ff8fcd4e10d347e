"""Links in texts of models: what carries an address that was not given is no link any more."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bos_chassis.links import REMOVED, LinkCheck, checked_links, may_hold_links

pytestmark = pytest.mark.security

EVIL = "https://evil.example/c?d=secret"
GOOD = "https://good.example/a?b=c"
KNOWN = (f"Read [the terms]({GOOD}) and <a href='https://good.example/q'>this</a>.",)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"![seal]({EVIL}) b", f"[seal] {REMOVED} b"),
        (f"[the terms]({EVIL} 'title')", f"[the terms] {REMOVED} 'title')"),
        (f"[a](<{EVIL}>)", f"[a] {REMOVED}"),
        (f"[a]( {EVIL})", f"[a] ( {REMOVED})"),
        (f"[more][terms]\n[terms]: {EVIL}", f"[more][terms]\n[terms] : {REMOVED}"),
        (f"<img src='{EVIL}'>", f"< img src='{REMOVED}'>"),
        ("<svg/onload=x>", "< svg/onload=x>"),
        (f"See {EVIL}.", f"See {REMOVED}."),
        ("www.evil.example/secret", REMOVED),
        ("mailto:a@evil.example?body=secret", REMOVED),
        ("[a](//evil.example/secret)", f"[a] {REMOVED}"),
        ("[a](/\\evil.example/secret)", f"[a] {REMOVED}"),
        ("[a](\\\\\\\\evil.example/secret)", f"[a] {REMOVED}"),
        ("[a](javascript:alert`1`)", f"[a] {REMOVED}"),
        ("[a](https&#58;//evil.example/secret)", f"[a] {REMOVED}"),
        ("https&#58;//evil.example/secret", "https& #58;//evil.example/secret"),
        ("https\\://evil.example/secret", REMOVED),
        (f"{GOOD}&more=secret", REMOVED),
        (f"[{GOOD}]({EVIL})", f"[{GOOD}] {REMOVED}"),
    ],
)
def test_address_that_was_not_given_is_removed(text: str, shown: str) -> None:
    assert checked_links(text, KNOWN) == shown
    assert may_hold_links(text)


@pytest.mark.parametrize(
    "text",
    [
        f"[the terms]({GOOD})",
        f"[{GOOD}]({GOOD})",
        f"**{GOOD}**: see <{GOOD}>, ({GOOD}).",
        f"As said in {GOOD}[1][2].",
        "https://good.example/q",
        "[here](/v1/files/a.csv), [there](#part), [1](2)",
        "Great![1] At last![2, 3] a < b & c; R&D: 5://7",
        "Bis x<5 und y, 12:30, `rows[7]`, Ä: ö",
    ],
)
def test_addresses_that_were_given_and_text_without_any_stay(text: str) -> None:
    assert checked_links(text, KNOWN) == text


def test_image_becomes_a_link_even_of_an_address_that_was_given() -> None:
    assert checked_links(f"![seal]({GOOD}) ![1]({GOOD})", KNOWN) == f"[seal]({GOOD}) [1]({GOOD})"


def test_removed_addresses_are_counted() -> None:
    check = LinkCheck(KNOWN)
    check.add(f"{EVIL} {GOOD} [a]({EVIL})")
    check.end()
    assert check.removed == 2


def test_endless_word_is_flushed_and_joins_to_no_address() -> None:
    check = LinkCheck(())
    padding = "a." * 2_048
    shown = check.add(padding + "http") + check.add("s://evil.example/secret") + check.end()
    assert shown == f"{padding}http s://evil.example/secret".replace(
        "s://evil.example/secret", REMOVED
    )


def test_text_without_spaces_is_shown_while_it_is_written() -> None:
    check = LinkCheck(())
    assert check.add("納期遅延の違約金は") == "納期遅延の違約金は"
    assert check.add("https") == ""
    assert check.add("://evil.example ") == f"{REMOVED} "


@pytest.mark.parametrize("target", ["</\t/evil.example/secret>", "<java\tscript:alert(1)>"])
def test_target_in_brackets_leads_nowhere_however_it_is_streamed(target: str) -> None:
    check = LinkCheck(KNOWN)
    shown = "".join([*map(check.add, f"[a]({target}) end"), check.end()])
    assert shown == f"[a] {REMOVED} end"


_PARTS = st.sampled_from(
    [
        "![",
        "](",
        ")",
        "]:",
        "[1]",
        "![1, 2]",
        "[3,",
        "<img ",
        "<",
        ">",
        EVIL,
        GOOD,
        "www.",
        "a",
        " ",
        "\n",
        "&#58;",
        "\\",
        "違",
    ]
)


@given(st.lists(_PARTS, max_size=12).map("".join), st.integers(1, 9))
@example(f"](\n{EVIL}", 1)
@example(f"](<img {EVIL}<img ", 1)
@example(f"](<a\n{EVIL}>", 1)
@example("](](<img \n", 1)
@example("](<a ](](<img >", 1)
@example("At last![1, 2] and![1, 2](a)![1,2, ", 1)
def test_stream_shows_what_the_whole_text_would(text: str, size: int) -> None:
    check = LinkCheck(KNOWN)
    pieces = [check.add(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join([*pieces, check.end()]) == checked_links(text, KNOWN)


@given(st.lists(_PARTS, max_size=12).map("".join))
def test_nothing_is_sent_away(text: str) -> None:
    shown = checked_links(text, KNOWN)
    assert "evil.example" not in shown
    assert "![a" not in shown
