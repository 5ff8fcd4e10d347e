import io
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from rich.console import Console

from bos.agent.v1 import ProposedAction
from bos.common.v1 import Table, Usage
from bos.gateway.v1 import Approval, Run, RunEvent, RunStatus
from bos_cli.render import View, make_console, show_run
from bos_cli.render.parts import show_approval, show_journal
from bos_cli.render.table import rows_note, table_grid
from bos_testkit.scripted_gateway import RUN_ID, response, story


async def replay(events: Sequence[RunEvent]) -> AsyncIterator[RunEvent]:
    for event in events:
        yield event


async def shown(events: Sequence[RunEvent], view: View | None = None) -> str:
    file = io.StringIO()
    outcome = await show_run(replay(events), make_console(file), view)
    assert outcome is None or outcome.run_id == RUN_ID
    return file.getvalue()


def grid_text(table: Table, max_rows: int = 20, width: int = 200) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(table_grid(table, max_rows))
    return file.getvalue()


def event(sequence: int, **kind: Any) -> RunEvent:
    return RunEvent(run_id=RUN_ID, sequence=sequence, **kind)


async def test_a_run_is_shown_from_plan_to_sources_without_any_control_character() -> None:
    text = await shown(story())

    assert "1. find   sql          Find the customers" in text
    assert "2. share  computation  Calculate  (after find)" in text
    assert "▶ find sql" in text
    assert "✔ find sql succeeded in 340 ms, 3 rows" in text
    assert "\nAnswer\nAcme leads [1].\n" in text
    assert "[1] customers: Companies that buy from us" in text
    assert "- Acme is far ahead" in text
    assert "1. And the year before?" in text
    assert f"Run {RUN_ID}: succeeded in 1.5 s; agents sql, computation" in text
    assert text.count("Acme leads") == 1, "the answer was streamed, so it is not printed again"
    assert not [c for c in text if ord(c) < 0x20 and c != "\n"]


async def test_the_response_counts_when_it_differs_from_what_was_streamed() -> None:
    outcome = response()
    outcome.answer = "Zeta leads."
    outcome.highlights[:] = ["Zeta leads.", "Acme follows"]
    assert "conversation" not in await shown(story(outcome))
    outcome.metadata.conversation_id = "talk-1"
    text = await shown(story(outcome))
    assert "Answer as corrected\nZeta leads.\n" in text
    assert "Highlights\n  - Acme follows\n" in text, "what the answer states is not repeated"
    assert "; conversation talk-1" in text
    assert await shown([event(1)]) == "", "an event of a later version"


async def test_consumption_and_trace_lines_come_only_when_asked_for() -> None:
    events = list(story())
    finished = next(e for e in events if e.HasField("step_finished"))
    finished.step_finished.result.usage.CopyFrom(Usage(model_calls=2, input_tokens=7))
    traced, plain = await shown(events, View(trace=True)), await shown(events)
    for part in ("3 rows, 2 model calls, 7 tokens", "sql tool: asked"):
        assert part in traced
        assert part not in plain


async def test_at_the_end_the_trace_shows_what_was_not_shown_live() -> None:
    outcome = response()
    live = story()[3].step_progress.events[0]
    outcome.trace.extend([live])
    outcome.trace.add(type=1, agent="planner", message="chose")

    text = await shown(story(outcome), View(trace=True))

    assert text.count("sql tool: asked") == 1
    assert "planner decision: chose" in text


async def test_the_rest_of_an_answer_that_was_not_streamed_is_added_once() -> None:
    events = story()
    del events[-2]  # the text after "Acme "
    text = await shown(events)
    assert "Answer\nAcme leads [1].\n" in text
    assert text.count("Acme leads") == 1
    assert "corrected" not in text


async def test_an_answer_begun_anew_voids_the_first() -> None:
    events = [
        event(1, answer_delta={"text": "Wro", "attempt": 1}),
        event(2, answer_delta={"text": "Acme leads", "attempt": 2}),
        event(3, answer_delta={"text": "late", "attempt": 1}),
        event(4, answer_delta={"text": " [1].", "attempt": 2}),
        event(5, run_finished={"response": response()}),
    ]
    text = await shown(events)
    assert "Wro\n\nAnswer, begun anew\nAcme leads [1].\n" in text
    assert "late" not in text


async def test_nothing_from_outside_reaches_the_terminal_as_a_command() -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\x9b31m [bold]x[/bold]"
    outcome = response()
    outcome.answer = evil
    outcome.highlights[:] = [evil]
    outcome.data.rows[0].values[0].string_value = evil
    outcome.data.columns[0].name = evil
    text = await shown(story(outcome))

    assert not [c for c in text if c in "\x1b\x07\x9b"]
    assert "[bold]x[/bold]" in text, "text is not markup"


async def test_a_failed_run_says_why() -> None:
    outcome = response(RunStatus.RUN_STATUS_FAILED)
    outcome.error.type, outcome.error.message = "QueryError", "The database is away."
    text = await shown(story(outcome))
    assert "QueryError: The database is away." in text
    assert f"Run {RUN_ID}: failed" in text


async def test_clarification_shows_questions_options_and_assumptions() -> None:
    outcome = response(RunStatus.RUN_STATUS_CLARIFICATION_NEEDED)
    outcome.clarification.questions.add(question="Which year?", options=["2025", "2026"])
    outcome.clarification.assumptions.append("2026")
    text = await shown(story(outcome))
    assert "? Which year?\n      1. 2025\n      2. 2026\n" in text
    assert f'To answer: bos ask --continue {RUN_ID} "your answers"' in text
    assert "would be assumed: 2026" in text


def approval_text(approval: Approval) -> str:
    out = io.StringIO()
    show_approval(Console(file=out, width=1000), approval)
    return out.getvalue()


def test_what_would_be_done_is_shown_as_the_gateway_says() -> None:
    approval = Approval(actions=[ProposedAction(tool="never shown", summary="never shown")])
    action = approval.display.actions.add(title="Run it", tool="execute_code", notes=["careful"])
    action.arguments.add(label="code", type="text, 2 lines", lines=["1 | x = 1", "2 |     y"])
    action.arguments.add(label="count", type="int64", lines=["5"])
    action.arguments.add(label="empty", type="text, empty")
    assert approval_text(approval) == (
        "  Run it  (execute_code)\n"
        "    careful\n"
        "    code (text, 2 lines)\n"
        "      1 | x = 1\n"
        "      2 |     y\n"
        "    count (int64): 5\n"
        "    empty (text, empty)\n"
    )


@pytest.mark.security
def test_no_part_of_an_approval_shows_hidden_characters() -> None:
    """The gateway escapes them already; `as_it_is` is tested with the whole corpus."""
    hostile = "pay \u202e1\x1b[2J\u200b"
    shown = "pay \\u{202E}1\\u{1B}[2J\\u{200B}"
    approval = Approval(actions=[ProposedAction()])
    action = approval.display.actions.add(title=hostile, tool=hostile, notes=[hostile])
    action.arguments.add(label=hostile, type=hostile, lines=[hostile, hostile])
    action.arguments.add(label=hostile, type=hostile, lines=[hostile])
    assert approval_text(approval).count(shown) == 10


@pytest.mark.security
def test_approval_without_a_display_is_not_to_be_approved() -> None:
    action = ProposedAction(tool="t", summary="harmless")
    for approval in (Approval(actions=[action]), Approval(actions=[action, action])):
        if len(approval.actions) > 1:
            approval.display.actions.add(title="harmless")
        assert "do not approve it from here" in approval_text(approval)
    assert "do not approve" not in approval_text(Approval())


def test_numbers_stand_to_the_right_and_keep_every_digit() -> None:
    lines = grid_text(response().data).splitlines()
    assert lines[0].split() == ["customer", "revenue"]
    assert lines[2] == "Acme       9007199254740993.10"
    assert lines[3] == "Zeta                      7.50"
    assert lines[4].strip() == "Yoyo"
    assert "9007199254740993.10" in grid_text(response().data, width=30)


def test_rows_are_bounded_and_what_is_left_out_is_said() -> None:
    table = response().data
    assert "Zeta" not in grid_text(table, max_rows=1)
    assert rows_note(table, 1) == "1 of 3 rows shown"
    assert rows_note(table, 3) == ""
    table.truncated = True
    assert rows_note(table, 3) == "the source has more than was returned"
    table.columns[1].type = 0  # a column of numbers all the same
    assert grid_text(table).splitlines()[3] == "Zeta                      7.50"


@pytest.mark.parametrize(
    ("step_ids", "reason"),
    [
        (["find", "share"], "↻ planning anew, because of find, share"),
        ([], "↻ planning anew, because the results are thin"),
    ],
)
async def test_a_revision_says_why_there_is_another_plan(step_ids: list[str], reason: str) -> None:
    events = story()
    started = event(0, revision_started={"revision": 1, "failed_step_ids": step_ids})
    assert reason in await shown([*events[:5], started, *events[5:]])


@pytest.mark.parametrize("revised", [True, False])
def test_attempts_are_listed_if_there_was_more_than_one(revised: bool) -> None:
    found = Run(run_id=RUN_ID)
    found.journal.add(entry="execution attempt 1 started")
    if revised:
        found.journal.add(entry="replanning 1 started,\x1b because of find", revision=1)
    file = io.StringIO()
    show_journal(make_console(file), found)
    text = file.getvalue()
    assert ("- replanning 1 started" in text) is revised
    assert ("Attempts" in text) is revised
    assert "\x1b" not in text


async def test_status_line_on_a_terminal_shows_progress() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, color_system=None)
    await show_run(replay(story()), console, View())
    assert "planning" in file.getvalue()
    assert "\x1b[?25h" in file.getvalue(), "the cursor is given back"
