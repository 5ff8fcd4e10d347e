"""What a reply over A2A decides."""

import pytest

from bos_conversation import Decision
from bos_protocols.a2a.messages import NamedDecision, Said, decision_in

YES, NO = Decision(approved=True), Decision(approved=False)
ID = "0197a4b2-1111-7000-8000-000000000001"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("yes", NamedDecision("", YES)),
        ("No.", NamedDecision("", NO)),
        ("", NamedDecision("", NO)),
        (f"yes {ID}", NamedDecision(ID, YES)),
        (f"deny  {ID} ", NamedDecision(ID, NO)),
        ("yes but later", NamedDecision("", Decision(True, "yes but later"))),
        ("no way", NamedDecision("", Decision(True, "no way"))),
        (f"use {ID}", NamedDecision("", Decision(True, f"use {ID}"))),
    ],
)
def test_a_word_decides_and_an_id_behind_it_names(text: str, named: NamedDecision) -> None:
    assert decision_in(Said(text, ())) == named


def test_data_decides_before_words_do() -> None:
    data = {"decision": "deny", "approval_id": ID, "instructions": "left out of a refusal"}
    assert decision_in(Said("yes", (data,))) == NamedDecision(ID, NO)
    more = {"decision": "approve", "instructions": "to staging"}
    assert decision_in(Said("", (more,))) == NamedDecision("", Decision(True, "to staging"))
