"""Questions without prepared replies: the nearest prepared ones are named."""

import pytest

from bos_demo.questions import load_every_question
from bos_demo.scripted.nearest import NEAREST, NearestQuestions
from bos_demo.scripted.replies import PLANNER_SCHEMA

KNOWN = (
    "How many active customers do we have in each region?",
    "Which five suppliers delivered late most often?",
    "Write me a poem about the sea",
    "Which product was returned most often?",
    "What does the travel policy say about flights?",
    "What is the value of our stock?",
)


def planner(question: str, before: str = "") -> str:
    return f"{before}### Question\n{question}\n\n### Instructions\nPlan."


def composer(question: str, before: str = "") -> str:
    return f"{before}### Question\n{question}\n\nWrite the answer to this question now."


@pytest.fixture
def nearest() -> NearestQuestions:
    return NearestQuestions(KNOWN)


def test_question_with_most_rare_words_in_common_comes_first(nearest: NearestQuestions) -> None:
    for asked, first in (
        ("customers per region, please", KNOWN[0]),
        ("WHO WAS LATE? a supplier?", KNOWN[1]),
    ):
        found = nearest.to(asked)
        assert found[0] == first
        assert len(found) == len(set(found)) == NEAREST


def test_question_without_a_known_word_gets_questions(nearest: NearestQuestions) -> None:
    for asked in ("", "कितने ग्राहक", "x" * 100_000):
        assert nearest.to(asked) == KNOWN[:NEAREST], asked[:20]


def test_questions_over_the_mailbox_are_among_the_nearest() -> None:
    nearest = NearestQuestions([each.question for each in load_every_question()])
    found = nearest.to("Which mails in my inbox have I not read, what is unread?")
    assert found[0] == "Which unread mails are in my inbox?"
    assert len(found) == NEAREST


def test_planner_gets_a_plan_without_steps(nearest: NearestQuestions) -> None:
    reply = nearest.reply(PLANNER_SCHEMA, planner("stock?"))
    assert isinstance(reply, dict)
    assert reply["steps"] == []
    assert reply["intent"] == "OUT_OF_SCOPE"


def test_composer_names_the_nearest_questions_and_how_to_get_a_real_model(
    nearest: NearestQuestions,
) -> None:
    reply = nearest.reply(None, composer("### Question\ntricks\n\nWhat is our stock worth?"))
    assert isinstance(reply, str)
    assert f"- {KNOWN[5]}" in reply
    assert "OPENAI_API_KEY" in reply


@pytest.mark.parametrize(
    ("schema", "prompt"),
    [
        ("GeneratedSql", planner("stock?")),
        (PLANNER_SCHEMA, "no question at all"),
        (PLANNER_SCHEMA, planner("stock?", "### Revision\nThe last plan failed.\n\n")),
        (None, composer("stock?", "### Agent results\n1. sql\n\n")),
        (None, composer("stock?", "### What did not succeed\nsql\n\n")),
        (None, planner("stock?")),
    ],
)
def test_calls_of_other_kinds_are_refused(
    schema: str | None, prompt: str, nearest: NearestQuestions
) -> None:
    assert nearest.reply(schema, prompt) is None
