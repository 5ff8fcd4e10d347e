"""Questions of steps, and their words, by which verified queries are found."""

from typing import Any

import pytest

from bos.common.v1 import ConversationMessage
from bos.runlog.v1 import RunAccepted, SubTask
from bos_gateway.core.agent_input import question_of_step
from bos_gateway.core.run_state import RunState, StepState
from bos_gateway.verified_queries.likeness import MAX_WORDS, words_of
from bos_testkit.plans import step


def test_the_question_of_a_step_stands_by_itself() -> None:
    sub_task = SubTask(task="Count the orders of May")
    said = [ConversationMessage(content="How many orders came in April?")]

    def question(steps: int, history: Any = ()) -> str:
        accepted = RunAccepted(conversation_history=history)
        accepted.request.question = "And in May? "
        state = RunState("run", accepted=accepted)
        for number in range(steps):
            name = str(number)
            state.steps[name] = StepState(step(name, "data"), 0, "data-1", frozenset())
        return question_of_step(state, sub_task)

    assert question(1) == "And in May?"
    assert question(1, said) == sub_task.task
    assert question(2) == sub_task.task


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("How many ORDERS, how many?", ["how", "many", "order"]),
        ("Umsätze der Kunden 2025", ["umsät", "der", "kunde"]),
        ("12 € -- '; 3", []),
        ("", []),
    ],
)
def test_words_are_beginnings_without_numbers_and_repetition(
    question: str, words: list[str]
) -> None:
    assert words_of(question) == words


def test_words_of_a_huge_question_are_bounded() -> None:
    huge = " ".join(f"{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}xyz" for n in range(100_000))
    assert len(words_of(huge)) == MAX_WORDS
