"""What people read of a run in a client of texts, and what their next message decides."""

import pytest

from bos.agent.v1 import AgentResult, ProposedAction
from bos.common.v1 import (
    Artefact,
    Clarification,
    ClarifyingQuestion,
    Column,
    Row,
    Table,
    Value,
)
from bos.gateway.v1 import (
    ActionDisplay,
    Approval,
    ApprovalDisplay,
    ApprovalKind,
    DisplayBlock,
    OrchestratorResponse,
)
from bos_conversation import (
    Decision,
    answer_text,
    approval_text,
    clarification_text,
    decision_of,
    table_text,
)
from bos_errors import FailedPrecondition


def test_one_word_decides_and_more_words_are_instructions() -> None:
    replies = {
        **dict.fromkeys(["Yes.", "**Approved**", "y"], Decision(approved=True)),
        **dict.fromkeys(["No!", "`denied`", "  ", "..."], Decision(approved=False)),
    }
    for text in ("yes, but only the first", "not yes", "ja"):
        replies[text] = Decision(approved=True, instructions=text)
    assert {text: decision_of(text) for text in replies} == replies


def approval(*lines: str, kind: ApprovalKind = ApprovalKind.APPROVAL_KIND_PROPOSED) -> Approval:
    block = DisplayBlock(label="body", type="text", lines=lines)
    action = ActionDisplay(title="Send a mail", tool="send_mail", arguments=[block])
    return Approval(
        approval_id="0197a",
        kind=kind,
        actions=[ProposedAction()],
        display=ApprovalDisplay(actions=[action]),
    )


def test_an_approval_shows_every_argument_and_how_to_decide() -> None:
    text = approval_text(approval("1 Dear Ms Lind,", "2 it is paid."))
    assert "0197a" in text
    for shown in (
        "Send a mail",
        "send_mail",
        "1 Dear Ms Lind,",
        "2 it is paid.",
        "**yes**",
        "**no**",
    ):
        assert shown in text


def test_yes_to_an_action_of_unknown_outcome_does_it_again() -> None:
    unknown = ApprovalKind.APPROVAL_KIND_OUTCOME_UNKNOWN
    assert "**yes** does it again" in approval_text(approval("x", kind=unknown))
    assert "again" not in approval_text(approval("x"))


def test_nothing_in_an_argument_ends_the_fence_around_it() -> None:
    marks = "text ```` text"
    lines = approval_text(approval(marks, "Reply yes")).splitlines()
    fence = lines[2].removesuffix("text")
    assert set(fence) == {"`"}
    assert fence not in marks
    assert lines.index(fence) > lines.index("    Reply yes")


def test_what_is_not_seen_stands_as_an_escape() -> None:
    assert "\\u{202E}" in approval_text(approval("pay \u202e 100"))


def test_an_action_without_display_is_not_shown_in_part() -> None:
    hidden = approval("x")
    hidden.actions.append(ProposedAction())
    with pytest.raises(FailedPrecondition, match="console"):
        approval_text(hidden)


def table(*cells: str, truncated: bool = False) -> Table:
    rows = [Row(values=[Value(string_value=cell), Value(decimal_value="1.50")]) for cell in cells]
    columns = [Column(name="name"), Column(name="a|b")]
    return Table(columns=columns, rows=rows, truncated=truncated)


def test_a_table_has_its_columns_and_rows() -> None:
    assert table_text(table("Ada")).splitlines() == [
        "| name | a\\|b |",
        "| --- | --- |",
        "| Ada | 1.50 |",
    ]


def test_cells_hold_no_marks_of_markdown() -> None:
    cell = "x | ![a](http://evil.example/?q)\n<img src=x>"
    shown = "x \\| \\!\\[a\\]\\(http://evil.example/?q\\) \\<img src=x\\>"
    assert shown in table_text(table(cell)).splitlines()[2]


def test_a_long_table_says_how_many_rows_are_left() -> None:
    text = table_text(table(*"abcdef"), max_rows=4)
    assert "| d |" in text
    assert "| e |" not in text
    assert "2 more rows" in text
    assert "more rows" not in table_text(table(*"abcd"), max_rows=4)


def test_a_cut_table_says_so() -> None:
    assert "more rows than were returned" in table_text(table("a", truncated=True))


def test_an_answer_has_its_table_and_links_to_its_files() -> None:
    file = Artefact(digest="sha256:" + "a" * 64, name="chart [1].png")
    response = OrchestratorResponse(
        run_id="0197", answer="Ada.", data=table("Ada"), agent_results=[AgentResult(files=[file])]
    )
    text = answer_text(response, "https://bos.example.org")
    assert text.startswith("Ada.\n\n| name")
    link = "https://bos.example.org/v1/runs/0197/files/" + "a" * 64
    assert text.endswith(f"- [chart \\[1\\].png]({link})")


def test_questions_back_have_their_options_and_assumptions() -> None:
    asked = Clarification(
        questions=[ClarifyingQuestion(question="Which year?", options=["2025", "2026"])],
        assumptions=["all regions"],
    )
    response = OrchestratorResponse(run_id="0197", clarification=asked)
    assert clarification_text(asked) in answer_text(response, "")
    for shown in ("Which year?", "- 2025", "- 2026", "- all regions"):
        assert shown in clarification_text(asked)
