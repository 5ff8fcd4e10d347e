"""The counting itself: whose a call is, and what waits for what."""

from typing import Any

import pytest

from bos.gateway.v1 import PlannedEvent, RunEvent, Stage
from bos_demo.questions import Question
from bos_testkit.runs import SeenRun
from bos_testkit.scripted_model.server import RecordedRequest

from . import golden
from .asking import Unattributed, attributed
from .counts import Counts

STEP = {"agent": "computation", "task": "t", "program": "1", "answer": "a"}
QUESTION = Question.model_validate(
    {
        "id": "growth",
        "kind": "parallel",
        "question": "How fast do we grow?",
        "rationale": "r",
        "steps": [{**STEP, "id": "one"}, {**STEP, "id": "two"}, {**STEP, "id": "three"}],
    }
)
STAGES = [Stage(step_ids=["one", "two"]), Stage(step_ids=["three"])]
RUN = SeenRun([RunEvent(planned=PlannedEvent(stages=STAGES))])


def call(fixture: str | None, prompt: str = "p", **more: Any) -> RecordedRequest:
    known: dict[str, Any] = {
        "path": "/v1/chat/completions",
        "headers": {},
        "body": {"model": "m", "temperature": 0.0},
        "model": "m",
        "schema": "Plan",
        "stream": False,
        "messages": [{"role": "user", "content": prompt}],
        "prompt": prompt,
        "prompt_tokens": 10,
        "reply": "done",
        "reply_tokens": 1,
        "fixture": fixture,
    }
    return RecordedRequest(**{**known, **more})


def test_a_stage_takes_as_long_as_the_longest_of_its_steps() -> None:
    calls = [
        call("growth: plan"),
        call("growth/two: Sql"),
        call("memory: nothing found", "… How fast do we grow?"),
        call("growth/one: Sql"),
        call("growth/two: Review"),
        call("growth/three: Sql"),
        call("growth: answer"),
    ]
    (asked,) = attributed([QUESTION], [RUN], calls)
    assert asked.calls_in_a_row == 1 + 2 + 1 + 1
    assert [(who, each.fixture) for who, each in asked.path] == [
        ("planner", "growth: plan"),
        ("step one", "growth/one: Sql"),
        ("step two", "growth/two: Sql"),
        ("step two", "growth/two: Review"),
        ("step three", "growth/three: Sql"),
        ("composer", "growth: answer"),
        ("beside", "memory: nothing found"),
    ]
    counted = Counts.of(asked)
    assert (counted.calls, counted.in_a_row, counted.tokens) == (7, 5, 77)
    assert (counted.prompt_characters, counted.reply_characters) == (6 + 22, 28)


@pytest.mark.parametrize(
    ("unknown", "what"),
    [
        (call(None), "nothing was prepared"),
        (call(None, problem="two fixtures fit"), "two fixtures fit"),
        (call("growth: plan", status=500), "has no reply"),
        (call("memory: nothing found", "How slow?"), "no demo question"),
        (call("shrinking: plan"), "no demo question"),
    ],
)
def test_unassigned_call_is_an_error(unknown: RecordedRequest, what: str) -> None:
    attributed([QUESTION], [RUN], [call("growth: plan")])
    with pytest.raises(Unattributed, match=what):
        attributed([QUESTION], [RUN], [call("growth: plan"), unknown])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("run 0c7ee8b8-2a48-4f0e-9c4e-9a1f0a3b2c1d.", "run <id>."),
        ("trace 4bf92f3577b34da6a3ce929d0e0e4736", "trace <id>"),
        ("at http://127.0.0.1:40123/v1", "at http://<address>/v1"),
        ("120 of 2026-06-15 at 10:30, deadbeef", "120 of 2026-06-15 at 10:30, deadbeef"),
    ],
)
def test_what_differs_between_two_starts_is_masked(text: str, shown: str) -> None:
    assert golden.masked(text) == shown


def test_a_rendered_prompt_shows_all_that_is_sent() -> None:
    sent = call("growth: plan", "a\n~~~\nb", body={"model": "m", "temperature": 0.0})
    (asked,) = attributed([QUESTION], [RUN], [sent])
    assert golden.by_kind([asked, asked]) == {
        "Plan": "# Plan\n\n## growth: planner\n\n"
        "Sent with it: temperature=0.0.\n\nuser:\n\n~~~~text\na\n~~~\nb\n~~~~\n"
    }
