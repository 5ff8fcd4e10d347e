"""Every prompt of every demo question, and what it costs, against what is committed."""

import asyncio
import difflib
import re
from itertools import takewhile

import pytest

from bos_testkit.scripted_model.server import RecordedRequest

from . import counts, files, golden
from .asking import MODES, Mode, ask_all
from .files import Measured

HOW = "If this is meant, `make prompts` writes figures, budgets and prompts anew."
every_mode = pytest.mark.parametrize("mode", MODES)
REQUIREMENT = re.compile(r"\b[A-Z]{1,3}-\d\d\b")
MEASURED_TIME = re.compile(r"(?:elapsed|latency|duration)_m?s\W+\d+")
SHOWN_LINES = 40


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Every question asked in every mode."""
    return {mode: asyncio.run(ask_all(mode, tmp_path_factory.mktemp(mode))) for mode in MODES}


@pytest.fixture(scope="module")
def goldens(measured: Measured) -> dict[str, str]:
    return files.golden_files(measured)


@every_mode
def test_no_question_exceeds_its_budget(mode: Mode, measured: Measured) -> None:
    committed = files.counts_of(mode)
    exceeded = [
        f"{question}: {what}"
        for question, found in counts.table(measured[mode]).items()
        if question in committed
        for what in committed[question][1].exceeded_by(found)
    ]
    assert not exceeded, "\n".join([*exceeded, HOW])


@every_mode
def test_figures_are_those_that_are_committed(mode: Mode, measured: Measured) -> None:
    found = counts.table(measured[mode])
    committed = {question: each for question, (each, _) in files.counts_of(mode).items()}
    changed = [
        f"{question}: {found.get(question)}, and {committed.get(question)} is committed"
        for question in dict.fromkeys([*committed, *found])
        if found.get(question) != committed.get(question)
    ]
    assert not changed, "\n".join([*changed, HOW])


def test_budgets_are_what_was_promised() -> None:
    """No change of the committed file raises them."""
    committed = files.counts_of("schema_apart")
    for question, (in_a_row, tokens) in counts.PROMISED.items():
        budget = committed[question][1]
        assert (budget.in_a_row, budget.tokens) == (in_a_row, tokens)


def test_the_table_for_people_is_that_of_the_figures() -> None:
    tables = {
        mode: {question: each for question, (each, _) in files.counts_of(mode).items()}
        for mode in MODES
    }
    assert files.MARKDOWN.read_text(encoding="utf-8") == counts.as_markdown(tables), HOW


def test_prompts_are_as_committed(goldens: dict[str, str]) -> None:
    committed = files.committed_golden_files()
    assert sorted(committed) == sorted(goldens), HOW
    changed = [
        line
        for name, text in goldens.items()
        for line in difflib.unified_diff(
            committed[name].splitlines(), text.splitlines(), name, "now", lineterm="", n=1
        )
    ]
    assert not changed, "\n".join([*changed[:SHOWN_LINES], HOW])


def test_the_form_stands_in_the_prompt_only_where_it_has_to(measured: Measured) -> None:
    apart, inside = (golden.calls_of(measured[mode]) for mode in MODES)
    structured = [call for call in inside if call.schema is not None]

    assert not [call.fixture for call in apart if "### Reply" in call.prompt]
    assert not [call.fixture for call in structured if "### Reply" not in call.prompt]
    assert not [call for call in inside if call.schema is None and "### Reply" in call.prompt]


def test_system_message_never_changes(measured: Measured) -> None:
    """A cache of prompts holds the beginning of one call for the next of its kind."""
    for asked in measured.values():
        shown: dict[str, set[str]] = {}
        for each in asked:
            for who, call in each.path:
                assert call.messages[0]["role"] == "system"
                # An answer that rests on no results follows rules of its own.
                how = each.question.intent if not each.question.steps else "by results"
                kind = f"{who}, {how}" if call.schema is None else call.schema
                shown.setdefault(kind, set()).add(call.messages[0]["content"])
        assert {kind: len(texts) for kind, texts in shown.items()} == dict.fromkeys(shown, 1)


def test_what_changes_stands_behind_what_does_not(measured: Measured) -> None:
    """From one question's plan to the next, and from a query to its review, most is the same."""
    for asked in measured.values():
        first = asked[0].plan[0]
        for each in asked:
            assert shared(first, each.plan[0]) > 0.9, each.question.id
            for step, calls in each.steps.items():
                for later in calls[1:]:
                    assert shared(calls[0], later) > 0.65, (each.question.id, step, later.schema)


def test_prompts_hold_no_ids_or_measured_times(measured: Measured) -> None:
    """Numbers of requirements, and times that no question asks for, which differ in every run."""
    for asked in measured.values():
        for call in golden.calls_of(asked):
            text = f"{call.prompt}\n{call.body.get('response_format')}"
            for useless in (REQUIREMENT, MEASURED_TIME):
                found = useless.search(text)
                assert found is None, f"{call.fixture}: …{text[max(0, found.start() - 80) :][:200]}"


def shared(one: RecordedRequest, other: RecordedRequest) -> float:
    """How much of the shorter prompt is the beginning of both."""
    pairs = zip(one.prompt, other.prompt, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return same / min(len(one.prompt), len(other.prompt))
