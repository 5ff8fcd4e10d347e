"""What is not shown of a reply: web pages and echoes of the prompt, in pieces of any size."""

from __future__ import annotations

import pytest

from bos_composer.numbers import NumberFormat
from bos_composer.prompts import HEADINGS, own_words
from bos_composer.screening import STRETCH_CHARS, OwnWords, Screen, Unfit

NUMBERS = NumberFormat("en_IN", "INR")
OWN = OwnWords.of_prompts(NUMBERS)
BEGUN = "The five customers brought Rs.3,36,08,987.24 together, which is 22.84 percent of it.\n"
FINE = [
    "43.",
    "",
    "   \n",
    BEGUN,
    f"{BEGUN}<b>bold</b>, 3 < 4, a <un> tag and an untrusted source",
    f"{BEGUN}### Questions\n### Agent results of July\nSee ### Question\n## Question\nQuestion",
    f"{BEGUN}| customer | revenue |\n| --- | --- |\n| Acme | 5 |\n\n###",
    # What the rules ask for is said in their words.
    "I am sorry, this is out of scope; questions about the connected data and services are welcome",
    "I am an assistant, and I help with questions on connected data and services. Ask me anything!",
    "No data was returned for the last quarter, since nothing was sold in that period. 0 is it.",
    f"{BEGUN}No data was returned for the last quarter. [1], [2]",
    "What people call <html> is a language, and this answer is about it and nothing else. Really.",
]
ECHOES = [
    "<untrusted>",
    "</UNTRUSTED >",
    "< / untrusted",
    "### Agent results\n",
    "### Question",
    "\r\n  ### What did not succeed  \r\nmore",
    "### Data of the results\r",
]
PAGES = ["<!DOCTYPE html><html>" + "x" * 99, "\n <html><body>502</body></html>", "<HTML>"]


def screened(pieces: list[str]) -> tuple[str, bool]:
    """What is shown of the pieces, and whether they are fit."""
    screen, shown = Screen(OWN), ""
    try:
        for piece in pieces:
            shown += screen.add(piece)
        return shown + screen.end(), True
    except Unfit:
        return shown, False


def every_split(text: str) -> list[list[str]]:
    """Whole, in two at every place, and one character at a time."""
    halves = [[text[:place], text[place:]] for place in range(1, len(text))]
    return [[text], *halves, list(text)]


@pytest.mark.parametrize("text", FINE)
def test_answers_pass_unchanged_however_they_arrive(text: str) -> None:
    for pieces in every_split(text):
        assert screened(pieces) == (text, True), pieces


@pytest.mark.parametrize("mark", ECHOES)
def test_a_mark_of_the_prompt_is_never_shown_wherever_it_is_cut(mark: str) -> None:
    for pieces in every_split(f"{BEGUN}{mark}\nmore"):
        shown, fit = screened(pieces)
        assert not fit, pieces
        assert BEGUN.startswith(shown.rstrip()), pieces
    for pieces in every_split(mark):
        shown, fit = screened(pieces)
        assert (shown.strip(), fit) == ("", False), pieces


@pytest.mark.parametrize("heading", HEADINGS)
def test_every_heading_of_the_prompt_is_known(heading: str) -> None:
    assert screened([BEGUN, f"### {heading}\nx"]) == (BEGUN, False)
    assert screened([f"{BEGUN}### {heading} x\nx"])[1]


@pytest.mark.parametrize("page", PAGES)
def test_a_web_page_is_no_answer_however_it_arrives(page: str) -> None:
    for pieces in every_split(page):
        assert screened(pieces) == ("", False), pieces


@pytest.mark.parametrize("words", own_words(NUMBERS))
def test_a_long_stretch_of_the_prompt_is_no_answer(words: str) -> None:
    shouted = words.upper().replace(" ", "\n  ")
    for text in (words, shouted, f"Sure! {words}", f"{BEGUN}{words}"):
        assert not screened([text])[1], text
        assert not screened(list(text))[1], text
    if len(words) > 2 * STRETCH_CHARS:
        assert not screened([words[20 : 40 + STRETCH_CHARS]])[1]


def test_a_reply_that_begins_with_the_prompt_is_not_shown_at_all() -> None:
    for words in own_words(NUMBERS):
        assert screened(list(words)) == ("", False)


def test_a_short_stretch_of_the_prompt_is_fine() -> None:
    words = " ".join(own_words(NUMBERS)[0].split())
    stretch = words[: STRETCH_CHARS - 1]
    assert screened([stretch]) == (stretch, True)
    assert screened([words[:STRETCH_CHARS]]) == ("", False)


def test_text_is_shown_as_soon_as_it_is_known_to_be_fit() -> None:
    screen = Screen(OWN)
    assert screen.add("a" * (STRETCH_CHARS - 1)) == ""
    assert screen.add("b") == "a" * (STRETCH_CHARS - 1) + "b"
    assert screen.add(" more") == " more"
    assert screen.add("\n### Que") == "\n"
    assert screen.add("ues") == "### Queues"
    assert screen.add(" 3 <") == " 3 "
    assert screen.add(" 4") == "< 4"


def test_a_huge_line_and_endless_white_space_are_read_once() -> None:
    for piece in ("x" * 5_000, " " * 5_000, "\n" * 5_000, "<" * 5_000, "#" * 5_000):
        text = BEGUN + piece * 10
        assert screened([BEGUN, *[piece] * 10]) == (text, True)
