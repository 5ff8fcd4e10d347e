"""Screening of replies for web pages and echoes of the prompt, in pieces of any size."""

from bos_composer.prompts import HEADINGS, ORDINARY_HEADINGS, STATED_HEADINGS, own_words
from bos_composer.screening import STRETCH_CHARS, OwnWords, Screen, Unfit

OWN = OwnWords.of_prompts()
BEGUN = "The five customers brought Rs.3,36,08,987.24 together, which is 22.84 percent of it.\n"
FINE = [
    "43.",
    "",
    "   \n",
    BEGUN,
    f"{BEGUN}<b>bold</b>, 3 < 4, a <un> tag and an untrusted source",
    f"{BEGUN}trusted<untrusted count, <Untrusted>5</Untrusted>, < / untrusted >, <untrusted",
    f"{BEGUN}### Question\nWhy?\n### Answer\nSo.\n### Question\nHow?\n## Question\nWhen?",
    f"{BEGUN}## Notices\nNotices\nQuestion\n####### Question\n",
    f"{BEGUN}Agent: Smith | status: open\nAgent: Jones | Status: failed.\nAgent: ",
    f"{BEGUN}Agent: Smith\n| status: failed. Agent: {'x' * 99} | status: failed. Agent:",
    f"{BEGUN}### Questions\n### Agent results of July\nSee ### Question\n## Question\nQuestion",
    f"{BEGUN}| customer | revenue |\n| --- | --- |\n| Acme | 5 |\n\n###",
    # Answers that the rules themselves ask for may use their words.
    "I am sorry, this is out of scope; questions about the connected data and services are welcome",
    "I am an assistant, and I help with questions on connected data and services. Ask me anything!",
    "No data was returned for the last quarter, since nothing was sold in that period. 0 is it.",
    f"{BEGUN}No data was returned for the last quarter. [1], [2]",
    "What people call <html> is a language, and this answer is about it and nothing else. Really.",
]
ECHOES = [
    "<untrusted>",
    "</untrusted>",
    "### Agent results\n",
    "# Agent results",
    "\r\n  ###### Sources to cite  \r\nmore",
    "### Data of the results\r",
    "Agent: sql | status: succeeded. Answer: 5",
    "Agent: web search | status: awaiting_approval.",
]
PAGES = ["<!DOCTYPE html><html>" + "x" * 99, "\n <html><body>502</body></html>", "<HTML>"]


def screened(pieces: list[str]) -> tuple[str, bool]:
    """Text shown of the pieces, and whether they passed the screening."""
    screen, shown = Screen(OWN), ""
    try:
        for piece in pieces:
            shown += screen.add(piece)
        return shown + screen.end(), True
    except Unfit:
        return shown, False


def every_split(text: str) -> list[list[str]]:
    """All splits to test: whole, in two at every place, and one character at a time."""
    halves = [[text[:place], text[place:]] for place in range(1, len(text))]
    return [[text], *halves, list(text)]


def test_answers_pass_unchanged_in_any_split() -> None:
    for text in FINE:
        for pieces in every_split(text):
            assert screened(pieces) == (text, True), pieces


def test_tags_of_the_prompt_are_never_shown_in_any_split() -> None:
    for mark in ECHOES:
        for pieces in every_split(f"{BEGUN}{mark}\nmore"):
            shown, clean = screened(pieces)
            assert not clean, pieces
            assert BEGUN.startswith(shown.rstrip()), pieces
        for pieces in every_split(mark):
            shown, clean = screened(pieces)
            assert (shown.strip(), clean) == ("", False), pieces


def test_headings_of_the_prompt_are_detected_at_every_level() -> None:
    allowed = ORDINARY_HEADINGS | STATED_HEADINGS
    for number, heading in enumerate(sorted(HEADINGS)):
        text = f"{'#' * (number % 6 + 1)} {heading}"
        expected = (f"{BEGUN}{text}\nx", True) if heading in allowed else (BEGUN, False)
        assert screened([BEGUN, f"{text}\nx"]) == expected, heading
        assert screened([f"{BEGUN}{text} x\nx"])[1], heading


def test_answer_may_contain_one_ordinary_heading_but_not_two() -> None:
    first, second = sorted(ORDINARY_HEADINGS)
    once = f"{BEGUN}### {first}\nA?\n"
    for pieces in every_split(f"{once}## {second}\nB"):
        shown, clean = screened(pieces)
        assert not clean, pieces
        assert once.startswith(shown), pieces
    assert screened([f"{once}## {first}\nB"])[1]


def test_answer_may_contain_headings_that_notices_ask_for() -> None:
    text = BEGUN + "".join(f"### {heading}\n- x\n" for heading in sorted(STATED_HEADINGS))
    assert screened(list(text)) == (text, True)
    assert not screened([f"{text}<untrusted>"])[1]


def test_agent_line_of_the_prompt_is_detected_without_a_heading() -> None:
    for pieces in every_split(f"{BEGUN}Notices\nAgent: sql | status: failed. Answer: none"):
        shown, clean = screened(pieces)
        assert not clean, pieces
        assert f"{BEGUN}Notices\n".startswith(shown), pieces


def test_web_pages_are_refused_in_any_split() -> None:
    for page in PAGES:
        for pieces in every_split(page):
            assert screened(pieces) == ("", False), pieces


def test_long_echo_of_the_prompt_is_refused() -> None:
    for words in own_words():
        assert screened(list(words)) == ("", False), words
        shouted = words.upper().replace(" ", "\n  ")
        for text in (words, shouted, f"Sure! {words}", f"{BEGUN}{words}"):
            assert not screened([text])[1], text
        if len(words) > 2 * STRETCH_CHARS:
            assert not screened([words[20 : 40 + STRETCH_CHARS]])[1], words


def test_short_echo_of_the_prompt_is_allowed() -> None:
    words = " ".join(own_words()[0].split())
    stretch = words[: STRETCH_CHARS - 1]
    assert screened([stretch]) == (stretch, True)
    assert screened([words[:STRETCH_CHARS]]) == ("", False)


def test_text_is_shown_as_soon_as_it_passes_the_screening() -> None:
    screen = Screen(OWN)
    assert screen.add("a" * (STRETCH_CHARS - 1)) == ""
    assert screen.add("b") == "a" * (STRETCH_CHARS - 1) + "b"
    assert screen.add(" more") == " more"
    assert screen.add("\n### Que") == "\n"
    assert screen.add("ues") == "### Queues"
    assert screen.add(" 3 <") == " 3 "
    assert screen.add(" 4") == "< 4"


def test_huge_lines_are_screened_in_linear_time() -> None:
    for piece in (*(sign * 5_000 for sign in "x \n<#"), "Agent: " * 700):
        text = BEGUN + piece * 10
        assert screened([BEGUN, *[piece] * 10]) == (text, True)
