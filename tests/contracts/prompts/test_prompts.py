"""Every prompt of every demo question, and what it costs, against what is committed."""

import difflib
import re
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import pytest

from bos_testkit.scripted_model.server import RecordedRequest

from . import counts, files, golden
from .asking import ask_both
from .files import Measured

HOW = "If this is meant, `make prompts` writes figures and prompts anew."
REQUIREMENT = re.compile(r"\b[A-Z]{1,3}-\d\d\b")
MEASURED_TIME = re.compile(r"(?:elapsed|latency|duration)_m?s\W+\d+")
SHOWN_LINES = 40


@pytest.fixture(scope="module")
def measured(
    tmp_path_factory: pytest.TempPathFactory, started_before: Callable[[Path], Path]
) -> Measured:
    def folder() -> Path:
        made = tmp_path_factory.mktemp("prompts")
        started_before(made / "data")
        return made

    return ask_both(folder)


@pytest.fixture(scope="module")
def goldens(measured: Measured) -> dict[str, str]:
    return files.golden_files(measured)


def changes(committed: str, now: str, name: str) -> list[str]:
    lines = (committed.splitlines(), now.splitlines())
    return list(difflib.unified_diff(*lines, name, "now", lineterm="", n=1))


def test_figures_are_as_committed_and_within_what_is_promised(measured: Measured) -> None:
    table = counts.table(measured["schema_apart"])
    committed = files.MARKDOWN.read_text(encoding="utf-8")
    changed = changes(committed, counts.as_markdown(table), files.MARKDOWN.name)
    assert not changed, "\n".join([*changed[:SHOWN_LINES], HOW])
    for question, (in_a_row, tokens) in counts.PROMISED.items():
        found = table[question]
        assert (found.in_a_row <= in_a_row, found.tokens <= tokens) == (True, True), found


def test_prompts_are_as_committed(goldens: dict[str, str]) -> None:
    committed = files.committed_golden_files()
    assert sorted(committed) == sorted(goldens), HOW
    changed = [
        line for name, text in goldens.items() for line in changes(committed[name], text, name)
    ]
    assert not changed, "\n".join([*changed[:SHOWN_LINES], HOW])


def test_the_form_stands_in_the_prompt_only_where_it_has_to(measured: Measured) -> None:
    apart, inside = map(golden.calls_of, measured.values())
    structured = [call for call in inside if call.schema is not None]

    assert {call.schema for call in inside} == {call.schema for call in apart}
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
